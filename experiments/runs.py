"""Runs: started side by side, found again when they are finished, resumed when they are not.

    runs = [Run("configs/mnist_sym.py", "spr", (("noise.rate", 0.4),), seed) for seed in range(3)]
    results = launch(runs, Path("runs/table1"), jobs=2)

The folder of a run follows from the run, and what is in it says how far the run came. So nothing is
kept beside the folders: a table is made again by reading them, and goes on where it was broken off.
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

from spr_jax import settings
from spr_jax.cores import num_cores
from spr_jax.files import check_folder
from spr_jax.origin import commit
from spr_jax.registry import suggestion
from spr_jax.settings import SAVED

STOPPED = (SAVED, -signal.SIGTERM, -signal.SIGINT)  # the others: before it could save
LONGEST = 120  # characters of a folder's name; file systems take 255 bytes
POLL = 0.05  # seconds
SPEAKER = "python -m spr_jax.main: "  # begins the sentence with which a run gives up


class Run(NamedTuple):
    """What is run: all that a result depends on, apart from the code."""

    config: str  # a file: configs/mnist_sym.py
    method: str = ""  # the text after the colon; without it, the config's own
    overrides: tuple[tuple[str, Any], ...] = ()  # (field, value): ("noise.rate", 0.4)
    seed: int = 0


class Result(NamedTuple):
    """How far a run came, read from its folder."""

    status: str  # finished, failed, interrupted, missing, or refused: not this run's folder
    folder: Path
    summary: dict[str, Any] | None = None  # if it is finished
    origin: dict[str, str] = {}  # commit, machine and versions it was begun with
    why: str = ""  # it failed or was refused, in a sentence

    @property
    def commit(self) -> str:
        return self.origin.get("commit", "")


class Share(NamedTuple):
    """What one of several runs at a time may use of the machine; by default all of it."""

    cores: tuple[int, ...] = ()
    environment: dict[str, str] = {}


def folder(run: Run, out: Path) -> Path:
    """OUT/mnist_sym-spr/noise.rate=0.4,preset=exact/seed=0"""
    changed = [
        f"{field}={value}"
        for field, value in sorted(run.overrides)
        if not field.startswith(settings.CHANGE_NO_RESULT)
    ]
    stem = "-".join(filter(None, [Path(run.config).stem, run.method]))
    return Path(out, _safe(stem), _safe(*changed or ["unchanged"]), f"seed={run.seed}")


def _safe(*parts):
    """Any file system takes it; a hash is in it where that, or its length, hides a difference."""
    text, plain = (
        ",".join(found)
        for found in (parts, [re.sub(r"[^\w.=+-]", "_", part, flags=re.ASCII) for part in parts])
    )
    if plain == text and len(text) <= LONGEST:
        return text
    return f"{plain[:LONGEST]}~{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"


def log_of(home: Path) -> Path:
    """Beside the folder, which is the run's own."""
    return home.with_name(f"{home.name}.log")


def command(run: Run, out: Path) -> list[str]:
    config = ":".join(filter(None, [run.config, run.method]))
    fields = [f"--config.{field}={value}" for field, value in (*run.overrides, ("seed", run.seed))]
    workdir = f"--workdir={folder(run, out)}"
    return [sys.executable, "-m", "spr_jax.main", f"--config={config}", *fields, workdir]


def in_shell(run: Run, out: Path) -> str:
    """The command, for people."""
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
    """All fields, as the process of the run will have them."""
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
    settings.resolve(config)
    return config


def read(run: Run, out: Path) -> Result:
    """What there is of a run; nothing is started."""
    home, config = folder(run, out), config_of(run)
    try:
        with settings.claim(home, config, writes=False):
            begun = (home / settings.BEGUN).exists()
    except ValueError as error:
        return Result("refused", home, why=str(error))
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
    """(exit status, why) of the last start in a log; without status if its end was not seen."""
    text = log.read_text(errors="replace") if log.exists() else ""
    last_start = text.split("\n$ ")[-1]
    *said, last = [line.strip() for line in last_start.splitlines() if line.strip()] or [""]
    match = re.fullmatch(r"exit status (-?\d+)", last)
    if not match:
        return None, ""
    status = int(match[1])
    if status < 0:
        return status, f"It was ended by {signal.Signals(-status).name}."
    sentences = [line for line in said if re.match(rf"{SPEAKER}|[\w.]+(Error|Exception)\b", line)]
    return status, (sentences or said)[-1].removeprefix(SPEAKER)


def launch(runs: Iterable[Run], out: Path, jobs: int = 1) -> dict[Run, Result]:
    """Run what is not finished, `jobs` at a time; the results of all.

    A run that fails does not stop the others. SIGTERM and Ctrl-C do: those that are running save,
    and the same call goes on from there. Call it from the main thread, which receives signals.
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; expected 1 or more.")
    out, runs = check_folder(out), list(runs)
    found = {run: read(run, out) for run in runs}
    # By folder: runs that differ in nothing that changes a result are one.
    everything = {result.folder: run for run, result in found.items()}
    to_do = [run for run in everything.values() if found[run].status not in ("finished", "refused")]
    if to_do:
        shares = share_out(min(jobs, len(to_do)))
        done = len(everything) - len(to_do)
        # Drawn every few seconds also if nothing is new; the time left is by the mean of all.
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
    finally:  # none of them is left behind
        _stop(running)
        for process in running:
            process.wait()


def _start(run, out, share):
    home = folder(run, out)
    home.parent.mkdir(parents=True, exist_ok=True)
    # Epochs are in the log as they end, and a bar once in a minute.
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
            process_group=0,  # Ctrl-C is for us; we tell the runs
        )
    if share.cores:  # before it has imported anything, let alone counted its cores
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(process.pid, share.cores)
    return process


def _stop(running, at_once=False):
    """Ask the runs to save, for which they need their own processes; or end all of these."""
    if running and not at_once:
        tqdm.write("Stopping when the runs have saved; once more to stop at once.", sys.stderr)
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if at_once else os.kill)(process.pid, signal.SIGTERM)


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """The SIGTERMs and Ctrl-Cs that came, which do nothing else."""
    came = []
    usual = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield came
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def share_out(jobs: int) -> list[Share]:
    """Equal shares of the cores, or of the GPUs, for so many runs at a time."""
    if jobs == 1:
        return [Share()]
    # Another process asks: the one that finds an accelerator takes hold of it.
    ask = "import jax; print(jax.default_backend(), jax.local_device_count())"
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    backend, count = told.stdout.split()
    if backend == "gpu":
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(int(count))))
        parts = _deal(gpus.split(","), jobs, "GPUs")
        return [Share(environment={"CUDA_VISIBLE_DEVICES": ",".join(part)}) for part in parts]
    if backend != "cpu":
        raise ValueError(f"jobs is {jobs}, but a {backend.upper()} belongs to one process; give 1.")
    if not hasattr(os, "sched_setaffinity"):  # not on Linux: the system shares the cores out
        return [Share()] * len(_deal(range(num_cores()), jobs, "cores"))
    return [Share(tuple(part)) for part in _deal(sorted(os.sched_getaffinity(0)), jobs, "cores")]


def _deal(things, jobs, name):
    if jobs > len(things):
        raise ValueError(f"jobs is {jobs}, but there are {len(things)} {name}; give no more.")
    return [things[start::jobs] for start in range(jobs)]


def complaints(results: Iterable[Result]) -> list[str]:
    """What went wrong, a sentence for each folder; and results that other code has made."""
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
