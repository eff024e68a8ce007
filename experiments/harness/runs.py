"""Runs: started side by side, found again when they are finished, resumed when they are not.

    runs = [Run("configs/mnist_sym.py", "spr", (("noise.rate", 0.4),), seed) for seed in range(3)]
    results = launch(runs, Path("runs/table1"), jobs=2)

The folder of a run follows from the run, and its contents say how far the run got: a table is made
again by reading the folders, and resumes where it was interrupted. `kept.py` is for machines
without these folders.
"""

import contextlib
import hashlib
import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict
from tqdm import tqdm

from spr_jax.devices import num_cores
from spr_jax.io.atomic import check_folder
from spr_jax.io.signals import SAVED
from spr_jax.registry import suggestion
from spr_jax.training.config import resolve
from spr_jax.training.old_configs import CHANGE_NO_RESULT, differences
from spr_jax.training.provenance import commit
from spr_jax.training.workdir import BEGUN, as_json, claim

STOPPED = (SAVED, -signal.SIGTERM, -signal.SIGINT)  # SIGTERM, SIGINT: before it could save
LONGEST_NAME = 120  # characters of a folder's name; file systems allow 255 bytes
POLL = 0.05  # seconds
ERROR_PREFIX = "python -m spr_jax.main: "  # begins the sentence with which a run gives up

Overrides = tuple[tuple[str, Any], ...]  # (field, value): ("noise.rate", 0.4)


class Run(NamedTuple):
    """Everything that a result depends on, apart from the code."""

    config: str  # a file: configs/mnist_sym.py
    method: str = ""  # the text after the colon; without it, the config's own
    overrides: Overrides = ()
    seed: int = 0


class Result(NamedTuple):
    """The state of a run, read from its folder or kept."""

    status: str  # finished, failed, interrupted, missing, or refused: another run's folder
    folder: Path
    summary: dict[str, Any] | None = None  # of a finished run
    origin: dict[str, str] = {}  # commit, machine and versions at its first start
    why: str = ""  # the reason, in a sentence, if it failed or was refused

    @property
    def commit(self) -> str:
        return self.origin.get("commit", "")


class Share(NamedTuple):
    """The part of the machine that one of several concurrent runs may use; by default all."""

    cores: tuple[int, ...] = ()
    environment: dict[str, str] = {}


def folder(run: Run, out: Path) -> Path:
    """OUT/mnist_sym-spr/noise.rate=0.4,preset=paper/seed=0, or where an earlier version left it."""
    home = _name(run, out)
    others = [] if home.exists() else sorted(home.parents[1].glob(f"*/{home.name}/config.json"))
    mine = as_json(config_of(run)) if others else {}
    same = (other for other in others if not differences(_read_json(other), mine))
    return next((other.parent for other in same), home)


def _name(run, out):
    changed = [f"{field}={value}" for field, value in decisive(run.overrides)]
    stem = "-".join(filter(None, [Path(run.config).stem, run.method]))
    return Path(out, _safe(stem), _safe(*changed or ["unchanged"]), f"seed={run.seed}")


def decisive(overrides: Overrides) -> Overrides:
    """The overrides that can change a result, in a fixed order."""
    return tuple(pair for pair in sorted(overrides) if not pair[0].startswith(CHANGE_NO_RESULT))


def _safe(*parts):
    """A name for any file system; a hash is added where replacing or cutting hides a difference."""
    text, plain = (
        ",".join(found)
        for found in (parts, [re.sub(r"[^\w.=+-]", "_", part, flags=re.ASCII) for part in parts])
    )
    if plain == text and len(text) <= LONGEST_NAME:
        return text
    return f"{plain[:LONGEST_NAME]}~{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"


def log_of(home: Path) -> Path:
    """The log of a run, next to its folder, which only the run itself writes to."""
    return home.with_name(f"{home.name}.log")


def command(run: Run, out: Path) -> list[str]:
    config = ":".join(filter(None, [run.config, run.method]))
    fields = [f"--config.{field}={value}" for field, value in (*run.overrides, ("seed", run.seed))]
    workdir = f"--workdir={folder(run, out)}"
    return [sys.executable, "-m", "spr_jax.main", f"--config={config}", *fields, workdir]


def in_shell(run: Run, out: Path) -> str:
    """The command as a person would type it."""
    return shlex.join(["python", *command(run, out)[1:]])


def load_config(file: str, method: str = "") -> ConfigDict:
    try:
        get_config = runpy.run_path(file)["get_config"]
    except OSError as error:
        raise ValueError(f"Cannot read {file}: {error.strerror}.") from None
    except KeyError:
        raise ValueError(f"{file} has no function get_config; give a file of configs/.") from None
    return get_config(*[method] * bool(method))


def fields_of(config: ConfigDict, prefix: str = "") -> dict[str, type]:
    """The fields that can be set: noise.rate -> float."""
    found = {}
    for name, value in config.items():
        if isinstance(value, ConfigDict):
            found |= fields_of(value, f"{prefix}{name}.") if name != "by_preset" else {}
        else:
            found[prefix + name] = config.get_type(name)
    return found


def config_of(run: Run) -> ConfigDict:
    """The config as the process of the run will have it."""
    config = load_config(run.config, run.method)
    known = fields_of(config)
    for field, value in (*run.overrides, ("seed", run.seed)):
        if field not in known:
            raise ValueError(f"{run.config} has no field {field!r}; {suggestion(field, known)}")
        try:
            config.update_from_flattened_dict({field: value})
        except TypeError:
            kind = known[field].__name__
            raise ValueError(f"{field} is of type {kind}, and {value!r} is not.") from None
    resolve(config)
    return config


def why_not_ours(home: Path, config: ConfigDict) -> str:
    """Why a folder belongs to another run, in a sentence; empty if it is free or this run's."""
    try:
        with claim(home, config, writes=False):
            return ""
    except ValueError as error:
        return str(error)


def read(run: Run, out: Path) -> Result:
    """Look at a run without starting it."""
    home = folder(run, out)
    if reason := why_not_ours(home, config_of(run)):
        return Result("refused", home, why=reason)
    begun = (home / BEGUN).exists()
    origin = _read_json(home / "origin.json") if begun else {}
    if begun and (home / "summary.json").exists():
        return Result("finished", home, _read_json(home / "summary.json"), origin)
    status, why = _ending(log_of(home))
    if status is not None and status not in STOPPED:
        return Result("failed", home, None, origin, why)
    return Result("interrupted" if begun else "missing", home, None, origin)


def _read_json(path):
    return json.loads(path.read_text())


def _ending(log):
    """(exit status, reason) of the last start in a log; status None if it has not ended there."""
    text = log.read_text(errors="replace") if log.exists() else ""
    last_start = text.split("\n$ ")[-1]
    *lines, last = [line.strip() for line in last_start.splitlines() if line.strip()] or [""]
    match = re.fullmatch(r"exit status (-?\d+)", last)
    if not match:
        return None, ""
    status = int(match[1])
    if status < 0:
        return status, f"It was ended by {signal.Signals(-status).name}."
    is_error = re.compile(rf"{ERROR_PREFIX}|[\w.]+(Error|Exception)\b")
    errors = [line for line in lines if is_error.match(line)]
    return status, (errors or lines)[-1].removeprefix(ERROR_PREFIX)


def launch(runs: Iterable[Run], out: Path, jobs: int = 1) -> dict[Run, Result]:
    """Run what is not finished, `jobs` at a time, and return the results of all runs.

    A run that fails does not stop the others. SIGTERM and Ctrl-C do: the active runs save, and the
    same call resumes from there. Call it from the main thread, which receives the signals.
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; expected 1 or more.")
    out, runs = check_folder(out), list(runs)
    found = {run: read(run, out) for run in runs}
    # By folder: runs that differ only in fields that change no result are one run.
    everything = {result.folder: run for run, result in found.items()}
    to_do = [run for run in everything.values() if found[run].status not in ("finished", "refused")]
    if to_do:
        shares = share_out(min(jobs, len(to_do)))
        done = len(everything) - len(to_do)
        # Redrawn every few seconds even if nothing is new; the time left uses the mean of all runs.
        often = {"mininterval": 5, "miniters": 0, "smoothing": 0}
        bar = tqdm(total=len(everything), initial=done, unit="run", **often)
        with bar, _signals() as signals:
            try:
                _run_all(to_do, out, shares, bar, signals)
            except OSError as error:
                where, what = error.filename or out, error.strerror or error
                raise ValueError(f"Cannot write to {where}: {what}.") from None
    results = {run: read(run, out) for run in runs}
    for sentence in complaints(results.values()):
        print(sentence, file=sys.stderr)
    return results


def _run_all(to_do, out, shares, bar, signals):
    waiting, free, running = to_do[::-1], list(shares), {}
    handled = failed = 0
    try:
        while waiting or running:
            if len(signals) > handled:
                waiting.clear()
                _stop(running, at_once=handled > 0)
                handled = len(signals)
            while waiting and free:
                run, share = waiting.pop(), free.pop()
                running[_start(run, out, share)] = run, share
            time.sleep(POLL)
            bar.update(0)
            for process in [process for process in running if process.poll() is not None]:
                run, share = running.pop(process)
                free.append(share)
                with open(log_of(folder(run, out)), "a") as log:
                    log.write(f"\nexit status {process.returncode}\n")
                failed += process.returncode not in (0, *STOPPED)
                bar.set_postfix({"failed": failed} if failed else {}, refresh=False)
                bar.update(process.returncode not in STOPPED)
    finally:  # leave no process behind
        _stop(running)
        for process in running:
            process.wait()


def _start(run, out, share):
    home = folder(run, out)
    home.parent.mkdir(parents=True, exist_ok=True)
    # The log shows an epoch as soon as it ends, and the progress bar once a minute.
    environment = {"PYTHONUNBUFFERED": "1", "TQDM_MININTERVAL": "60"} | share.environment
    with open(log_of(home), "a") as log:
        log.write(f"$ {in_shell(run, out)}\n")
        log.flush()
        process = subprocess.Popen(
            command(run, out),
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,  # Ctrl-C reaches this process alone, which then asks the runs to stop
        )
    if share.cores:  # set before the process imports anything or counts its cores
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(process.pid, share.cores)
    return process


def _stop(running, at_once=False):
    """Ask the runs to save and stop; or, at once, end them and all processes they started."""
    if running and not at_once:
        tqdm.write("Stopping when the runs have saved; repeat to stop at once.", sys.stderr)
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if at_once else os.kill)(process.pid, signal.SIGTERM)


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGTERM and Ctrl-C in a list instead of letting them end the process."""
    received = []
    before = {
        number: signal.signal(number, lambda number, _: received.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def share_out(jobs: int) -> list[Share]:
    """Equal shares of the cores, or of the GPUs, for this many runs at a time."""
    if jobs == 1:
        return [Share()]
    # In another process, because the one that looks for an accelerator also reserves it.
    ask = "import jax; print(jax.default_backend(), jax.local_device_count())"
    answer = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    backend, count = answer.stdout.split()
    if backend == "gpu":
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(int(count))))
        parts = _deal(gpus.split(","), jobs, "GPUs")
        return [Share(environment={"CUDA_VISIBLE_DEVICES": ",".join(part)}) for part in parts]
    if backend != "cpu":
        raise ValueError(f"jobs is {jobs}, but a {backend.upper()} belongs to one process; give 1.")
    if not hasattr(os, "sched_setaffinity"):  # not Linux: the system distributes the cores
        return [Share()] * len(_deal(range(num_cores()), jobs, "cores"))
    return [Share(tuple(part)) for part in _deal(sorted(os.sched_getaffinity(0)), jobs, "cores")]


def _deal(things, jobs, name):
    if jobs > len(things):
        raise ValueError(f"jobs is {jobs}, but there are {len(things)} {name}; give no more.")
    return [things[start::jobs] for start in range(jobs)]


def complaints(results: Iterable[Result]) -> list[str]:
    """A sentence for each folder with a problem, and one for each other commit among the runs."""
    sentences, others, here = [], Counter(), commit()
    for result in {result.folder: result for result in results}.values():
        if result.status == "refused":
            sentences.append(f"Refused: {result.why}")
        elif result.status == "failed":
            sentences.append(f"Failed: {result.why} See {log_of(result.folder)}.")
        elif result.status == "finished" and result.commit != here:
            others[result.commit] += 1
    for other, count in others.items():
        sentences.append(f"Runs of another commit: {count} of {other}; the code is now {here}.")
    return sentences
