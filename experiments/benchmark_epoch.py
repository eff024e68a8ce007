"""A report on the time of an MNIST epoch: selection, recording, progress bar, log, checkpoint.

    python -m experiments.benchmark_epoch [--data_dir=DIR] [--report]

Selection and evaluation are timed in a run of each preset; recording by alternating blocks of steps
with and without it, the rest by itself; compilation by starting twice with one cache.
"""

import argparse
import importlib
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from experiments.harness.provenance import origin, show_report
from experiments.harness.steps import Steps
from experiments.harness.study import table
from spr_jax.devices import keep_freed_memory, one_device_per_core
from spr_jax.training.checkpoint import Checkpoints
from spr_jax.training.config import resolve
from spr_jax.training.log import Log, read_rows

ROUNDS, BLOCK = 14, 40  # blocks of steps


def mnist(data_dir: str, preset: str = "paper"):
    config = importlib.import_module("configs.mnist_sym").get_config()
    config.preset, config.dataset.data_dir, config.noise.rate = preset, data_dir, 0.4
    resolve(config)
    return config


def selection(data_dir: str, home: Path, epochs: int = 3) -> list[list]:
    """Seconds of an epoch by part, for each preset; the first, which compiles, is left out."""
    rows = []
    for preset in ("paper", "released", "noise_model"):
        command = [sys.executable, "-m", "spr_jax.main", "--config=configs/mnist_sym.py"]
        command += [f"--config.preset={preset}", f"--config.epochs={epochs}"]
        command += [f"--config.dataset.data_dir={data_dir}", "--config.noise.rate=0.4"]
        subprocess.run([*command, f"--workdir={home / preset}"], check=True)
        epoch = read_rows(home / preset / "metrics.jsonl")[1:]
        parts = [f"seconds_{part}" for part in ("train", "select", "test")]
        train, select, test = (statistics.median(row[part] for row in epoch) for part in parts)
        share = 100 * select / (train + select + test)
        rows.append([preset, f"{train:.1f}", f"{select:.2f}", f"{test:.2f}", f"{share:.1f} %"])
    return rows


def overhead(data_dir: str, home: Path) -> list[list]:
    """Time steps alone, steps with recording and a progress bar, and the end of an epoch.

    Short blocks of steps take turns in changing order: this resolves a difference of one per cent,
    which whole epochs, minutes apart, do not.
    """
    config = mnist(data_dir)
    recorded = Steps(config)
    alone = Steps(config, recorded.data, without_record)
    ways, times = {alone: False, recorded: True}, {alone: [], recorded: []}  # with a bar?
    for epoch in range(ROUNDS + 1):
        for steps in list(ways) if epoch % 2 else reversed(ways):
            took = seconds(lambda s=steps: s.take(BLOCK, epoch, with_bar=ways[s]))  # noqa: B023
            if epoch:  # the first compiles
                times[steps].append(took / BLOCK)
    ratios = (r / a for a, r in zip(times[alone], times[recorded], strict=True))
    more = statistics.median(ratios) - 1
    epoch_seconds = statistics.median(times[alone]) * recorded.per_epoch
    ends = end_of_epoch(recorded, home)
    rows = [["the steps of an epoch", f"{epoch_seconds:.2f}", ""]]
    rows += [["recording and bar", f"{more * epoch_seconds:.2f}", f"{100 * more:.1f} %"]]
    rows += [[part, f"{t:.3f}", f"{100 * t / epoch_seconds:.2f} %"] for part, t in ends.items()]
    total = more * epoch_seconds + sum(ends.values())
    return [
        *rows,
        ["everything but the steps", f"{total:.2f}", f"{100 * total / epoch_seconds:.1f} %"],
    ]


def end_of_epoch(steps: Steps, home: Path) -> dict[str, float]:
    """Median seconds to collect the record, log the metrics, and write a checkpoint."""
    checkpoints, log, times = Checkpoints(home / "checkpoints"), Log(home), []
    for epoch in range(ROUNDS + 1):
        row = {"epoch": epoch, "loss": 0.0}
        collecting, logging = seconds(steps.collect, epoch), seconds(log.write, row)
        times.append([collecting, logging, seconds(steps.save, checkpoints, epoch)])
    checkpoints.close()
    log.close()
    names = ("collecting the record", "metrics", "checkpoint")
    return dict(zip(names, map(statistics.median, zip(*times[1:], strict=True)), strict=True))


def seconds(function, *arguments) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def without_record(loss):
    def bare(*arguments):
        value, (networks, _) = loss(*arguments)
        return value, (networks, {})

    return bare


COMPILE = """
import sys
import jax
total = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, seconds, **_: total.append(seconds) if "backend_compile" in name else None
)
from pathlib import Path
from spr_jax.devices import keep_freed_memory, one_device_per_core
from spr_jax.training import start
from spr_jax.training.demo import digits_config
from spr_jax.devices import cache_programs
config = digits_config()
config.epochs = 1
keep_freed_memory()
one_device_per_core(batch_size=config.batch_size)
cache_programs(sys.argv[1])
start(config, Path(sys.argv[2]))
print(sum(total))
"""


def compiling(home: Path) -> list[list]:
    """Seconds in XLA for one epoch of digits, with an empty cache and with a filled one."""
    rows = []
    for name in ("first start", "second start"):
        command = [sys.executable, "-c", COMPILE, home / "xla", home / name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append([name, f"{float(done.stdout.split()[-1]):.2f}"])
    return rows


def render(data_dir: str) -> str:
    with tempfile.TemporaryDirectory() as home:
        home = Path(home)
        compiled = compiling(home)
        selected = selection(data_dir, home)
        keep_freed_memory()
        one_device_per_core(batch_size=128)
        around = overhead(data_dir, home)
    return "\n\n".join(
        [
            "# An epoch of MNIST",
            origin("flax", "orbax-checkpoint"),
            "SPR, symmetric noise 0.4; medians of the epochs after the first, in seconds.",
            table(["preset", "training", "selection", "test", "selection's share"], selected),
            f"The rest of an epoch, without selection and test; medians of {ROUNDS} turns.",
            table(["", "seconds", "of the steps"], around),
            "Compilation for a run on digits, in seconds.",
            table(["", "seconds"], compiled),
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", default="", help="where data sets are kept")
    parser.add_argument("--report", action="store_true", help="write reports/benchmark_epoch.md")
    options = parser.parse_args()
    text = render(options.data_dir)
    show_report(text, "benchmark_epoch", keep=options.report)
