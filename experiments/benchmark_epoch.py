"""What an MNIST epoch spends on selection, and on recording, bar, metrics and checkpoint.

    python -m experiments.benchmark_epoch [--data_dir=DIR] [--report]

Selection and evaluation are timed in a run of each preset; recording and the rest by epochs in turn
with and without them; compilation by starting twice with one cache.
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
from experiments.origin import REPORTS, origin
from spr_jax import run, settings
from spr_jax.checkpoint import Checkpoints
from spr_jax.cpu_ops import keep_freed_memory
from spr_jax.devices import one_device_per_core
from spr_jax.metrics import Log, read_rows
from spr_jax.train import collect_record, make_program, start_epoch, train_epoch

ROUNDS = 5


def mnist(data_dir: str, preset: str = "paper"):
    config = importlib.import_module("configs.mnist_sym").get_config()
    config.preset, config.dataset.data_dir, config.noise.rate = preset, data_dir, 0.4
    settings.resolve(config)
    return config


def selection(data_dir: str, home: Path, epochs: int = 4) -> list[list]:
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
    """An epoch of steps alone, and one with record, bar, metrics and checkpoint."""
    config = mnist(data_dir)
    experiment = run.make_experiment(config)
    setup = experiment.setup
    bare = setup._replace(method=setup.method._replace(loss=without_record(setup.method.loss)))
    labels = np.asarray(setup.dataset.train.labels, np.int32)
    memory = jax_utils.replicate(setup.method.init(labels, 10))
    data = jax_utils.replicate((np.asarray(setup.dataset.train.images), labels))
    checkpoints, log = Checkpoints(home / "checkpoints"), Log(home)
    programs = {
        "steps alone": (make_program(bare), bare),
        "with record, bar, metrics and checkpoint": (make_program(setup), setup),
    }
    states = {
        name: start_epoch(chosen, jax_utils.replicate(run.init_state(config, chosen)), memory)
        for name, (_, chosen) in programs.items()
    }

    def steps_alone(program, chosen, progress, epoch):
        return train_epoch(program, chosen, progress, memory, data, epoch)

    def everything(program, chosen, progress, epoch):
        with tqdm(total=len(chosen.order(0).index), leave=False) as bar:
            update = lambda taken: bool(bar.update() and False)  # noqa: E731
            progress = train_epoch(program, chosen, progress, memory, data, epoch, on_step=update)
        collect_record(program, chosen, progress, epoch)
        log.write({"epoch": epoch, "loss": 0.0})
        position = run.Position(epoch + 1, progress._replace(place=0), {}, {})
        run.save(checkpoints, chosen, program, position)
        return progress

    times = {name: [] for name in programs}
    for epoch in range(ROUNDS + 1):
        for name, (program, chosen) in programs.items():
            take = steps_alone if name == "steps alone" else everything
            start = time.perf_counter()
            progress = jax.block_until_ready(take(program, chosen, states[name], epoch))
            if epoch:  # the first compiles
                times[name].append(time.perf_counter() - start)
            states[name] = progress._replace(losses=[], place=0)
    checkpoints.close()
    log.close()
    rows = [[name, f"{statistics.median(took):.2f}"] for name, took in times.items()]
    ratios = [full / alone for alone, full in zip(*times.values(), strict=True)]
    return [*rows, ["more, median of the rounds", f"{100 * (statistics.median(ratios) - 1):.1f} %"]]


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
            f"An epoch without selection and test, {ROUNDS} in turn, in seconds.",
            table(["", "seconds"], around),
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
    print(text)
    if options.report:
        (REPORTS / "benchmark_epoch.md").write_text(text + "\n")
