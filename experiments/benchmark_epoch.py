"""What an MNIST epoch spends on selection, and on recording, bar, metrics and checkpoint.

    python -m experiments.benchmark_epoch [--data_dir=DIR] [--report]

Selection and evaluation are timed in a run of each preset; recording by blocks of steps in turn
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

import jax
import numpy as np
from flax import jax_utils
from tqdm import tqdm

from experiments.markdown import table
from experiments.origin import origin, show_report
from spr_jax import run, settings
from spr_jax.checkpoint import Checkpoints
from spr_jax.cpu_ops import keep_freed_memory
from spr_jax.devices import one_device_per_core
from spr_jax.experiment import init_state, make_experiment
from spr_jax.metrics import Log, read_rows
from spr_jax.train import collect_record, make_program, start_epoch, train_epoch

ROUNDS, BLOCK = 14, 40  # blocks of steps


def mnist(data_dir: str, preset: str = "paper"):
    config = importlib.import_module("configs.mnist_sym").get_config()
    config.preset, config.dataset.data_dir, config.noise.rate = preset, data_dir, 0.4
    settings.resolve(config)
    return config


def selection(data_dir: str, home: Path, epochs: int = 3) -> list[list]:
    """Seconds of an epoch by part, for each preset; the first, which compiles, is left out."""
    rows = []
    for preset in ("paper", "released", "exact"):
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
    """Steps alone, and steps that are recorded with a bar beside them; then the epoch's end.

    Steps in short blocks, which take turns in changing order: this tells a per cent where whole
    epochs, minutes apart, do not.
    """
    config = mnist(data_dir)
    setup = make_experiment(config).setup
    bare = setup._replace(method=setup.method._replace(loss=without_record(setup.method.loss)))
    labels = np.asarray(setup.dataset.train.labels, np.int32)
    memory = jax_utils.replicate(setup.method.init(labels, 10))
    data = jax_utils.replicate((np.asarray(setup.dataset.train.images), labels))
    ways = {"steps alone": bare, "recorded, with a bar": setup}
    programs = {way: make_program(chosen) for way, chosen in ways.items()}
    states = {
        way: start_epoch(chosen, jax_utils.replicate(init_state(config, chosen)), memory)
        for way, chosen in ways.items()
    }

    def block(way, epoch):
        with tqdm(disable=way == "steps alone", leave=False) as bar:
            end = lambda taken: (bar.update(), taken == BLOCK)[1]  # noqa: E731
            arguments = (programs[way], ways[way], states[way], memory, data, epoch)
            progress = jax.block_until_ready(train_epoch(*arguments, on_step=end))
        states[way] = progress._replace(losses=[], place=0)

    times = {way: [] for way in ways}
    for epoch in range(ROUNDS + 1):
        for way in list(ways) if epoch % 2 else reversed(ways):
            took = seconds(block, way, epoch)
            if epoch:  # the first compiles
                times[way].append(took / BLOCK)
    alone, recorded = times.values()
    more = statistics.median(r / a for a, r in zip(alone, recorded, strict=True)) - 1
    epoch_seconds = statistics.median(alone) * len(setup.order(0).index)
    ends = end_of_epoch(
        programs["recorded, with a bar"], setup, states["recorded, with a bar"], home
    )
    rows = [["the steps of an epoch", f"{epoch_seconds:.2f}", ""]]
    rows += [["recording and bar", f"{more * epoch_seconds:.2f}", f"{100 * more:.1f} %"]]
    rows += [[part, f"{t:.3f}", f"{100 * t / epoch_seconds:.2f} %"] for part, t in ends.items()]
    total = more * epoch_seconds + sum(ends.values())
    return [
        *rows,
        ["all that is not a step", f"{total:.2f}", f"{100 * total / epoch_seconds:.1f} %"],
    ]


def end_of_epoch(program, setup, progress, home: Path) -> dict[str, float]:
    """Median seconds of collecting the record, metrics, and a checkpoint until it is written."""
    checkpoints, log, times = Checkpoints(home / "checkpoints"), Log(home), []

    def save(epoch):
        position = run.Position(epoch + 1, progress._replace(place=0), {}, {})
        run.save(checkpoints, setup, program, position)
        checkpoints.manager.wait_until_finished()

    for epoch in range(ROUNDS + 1):
        collect = lambda: jax.block_until_ready(collect_record(program, setup, progress, epoch))  # noqa: B023, E731
        row = {"epoch": epoch, "loss": 0.0}
        times.append([seconds(collect), seconds(log.write, row), seconds(save, epoch)])
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
from absl import flags
from configs import digits_sym
from spr_jax import main
flags.FLAGS(["main"])
config = digits_sym.get_config()
config.epochs, config.compilation_cache = 1, sys.argv[1]
main.start(config, main.Path(sys.argv[2]))
print(sum(total))
"""


def compiling(home: Path) -> list[list]:
    """Seconds in XLA for one epoch of digits, with an empty cache and with the one it leaves."""
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
            f"What else an epoch needs, selection and test apart; medians of {ROUNDS} turns.",
            table(["", "seconds", "of the steps"], around),
            "Compilation for a run on digits, in seconds.",
            table(["", "seconds"], compiled),
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", default="", help="where data sets are kept")
    parser.add_argument("--report", action="store_true", help="write it to experiments/reports")
    options = parser.parse_args()
    text = render(options.data_dir)
    show_report(text, "benchmark_epoch", keep=options.report)
