"""A training step of every method beside one of plain cross-entropy, on MNIST.

    python -m experiments.benchmark_methods [--data_dir=DIR] [--methods gce co_teaching] [--report]

The steps are those of a run, of the method's first stage, in short blocks that take turns; a ratio
is the median over the rounds, inside which the machine is the same for all.
"""

import argparse
from typing import Any

import jax
import numpy as np
from flax import jax_utils
from tqdm import tqdm

from experiments import study
from experiments.benchmark_epoch import seconds
from experiments.markdown import table
from experiments.origin import origin, show_report
from experiments.runs import load_config
from spr_jax import settings
from spr_jax.cpu_ops import keep_freed_memory
from spr_jax.devices import one_device_per_core
from spr_jax.experiment import init_state, make_experiment
from spr_jax.methods import METHODS
from spr_jax.run import init_memory
from spr_jax.train import make_program, start_epoch, train_epoch

PLAIN = "ce"


class Steps:
    """A method in training; each call takes a block of steps."""

    def __init__(self, method: str, data_dir: str, data: Any = None):
        config = load_config("configs/mnist_sym.py", method)
        config.dataset.data_dir = data_dir
        settings.resolve(config)
        self.setup = make_experiment(config).setup
        self.memory = jax_utils.replicate(init_memory(self.setup))
        train = self.setup.dataset.train
        self.data = data or jax_utils.replicate((np.asarray(train.images), train.labels))
        self.program = make_program(self.setup)
        state = jax_utils.replicate(init_state(config, self.setup))
        self.progress = start_epoch(self.setup, state, self.memory)

    def take(self, num_steps: int, epoch: int) -> None:
        arguments = (self.program, self.setup, self.progress, self.memory, self.data, epoch)
        stop = lambda taken: taken == num_steps  # noqa: E731
        progress = jax.block_until_ready(train_epoch(*arguments, on_step=stop))
        self.progress = progress._replace(losses=[], place=0)


def measure(
    methods: list[str], data_dir: str, rounds: int, num_steps: int
) -> dict[str, np.ndarray]:
    """Method -> seconds of a step in each round."""
    runners, data = {}, None
    for method in tqdm(methods, "compile"):
        runners[method] = Steps(method, data_dir, data)
        data = runners[method].data
        runners[method].take(num_steps, epoch=0)
    times = {method: [] for method in methods}
    for turn in tqdm(range(rounds), "in turn"):
        for method in methods if turn % 2 else methods[::-1]:
            times[method].append(seconds(runners[method].take, num_steps, 0) / num_steps)
    return {method: np.array(found) for method, found in times.items()}


def render(times: dict[str, np.ndarray]) -> str:
    rows = []
    for method, found in times.items():
        low, ratio, high = np.percentile(found / times[PLAIN], [25, 50, 75])
        shown = [f"{1000 * np.median(found):.1f}", f"{ratio:.3f}", f"{(high - low) / 2:.3f}"]
        rows.append([method, *shown])
    return table(["method", "ms a step", "over CE", "spread"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", default="", help="where data sets are kept")
    parser.add_argument("--methods", nargs="+", help="names of spr_jax.methods [all]")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=20, help="of a method in a round")
    parser.add_argument("--report", action="store_true", help="write reports/benchmark_methods.md")
    options = parser.parse_args()
    try:
        chosen = study.choose(options.methods, METHODS, "method")
    except ValueError as error:
        parser.error(str(error))
    methods = [PLAIN, *(name for name in chosen if name != PLAIN)]
    times = measure(methods, options.data_dir, options.rounds, options.steps)
    report = f"""# A training step of every method

{origin("flax", "optax")}

{render(times)}

MNIST, C2F2, batches of 128; the first stage of methods that have several. Medians of
{options.rounds} rounds of {options.steps} steps; spread is half the distance between the quartiles.
"""
    show_report(report, "benchmark_methods", keep=options.report)


if __name__ == "__main__":
    keep_freed_memory()
    one_device_per_core(batch_size=128)
    main()
