"""A report on the time of a training step of every method, relative to plain cross-entropy.

    python -m experiments.benchmark_methods [--data_dir=DIR] [--methods gce co_teaching] [--report]

The steps are those of a run on MNIST, in the method's first stage, in short blocks that take turns;
a ratio is the median over the rounds, within which conditions are the same for all methods.
"""

import argparse

import numpy as np
from ml_collections import ConfigDict
from tqdm import tqdm

from experiments.benchmark_epoch import seconds
from experiments.harness import study
from experiments.harness.provenance import origin, show_report
from experiments.harness.runs import load_config
from experiments.harness.steps import Steps
from experiments.harness.study import table
from spr_jax.devices import keep_freed_memory, one_device_per_core
from spr_jax.methods import METHODS
from spr_jax.training.config import resolve

PLAIN = "ce"


def config_for(method: str, data_dir: str) -> ConfigDict:
    config = load_config("configs/mnist_sym.py", method)
    config.dataset.data_dir = data_dir
    resolve(config)
    return config


def measure(
    methods: list[str], data_dir: str, rounds: int, num_steps: int
) -> dict[str, np.ndarray]:
    """Seconds per step of each method, in each round."""
    runners, data = {}, None
    for method in tqdm(methods, "compile"):
        runners[method] = Steps(config_for(method, data_dir), data)
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
    return table(["method", "ms per step", "over CE", "spread"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", default="", help="where data sets are kept")
    parser.add_argument("--methods", nargs="+", help="names of spr_jax.methods [all]")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=20, help="steps per method and round")
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
