"""A report on the speed of training on vectors: our steps, and the same loop in PyTorch.

    python -m experiments.benchmark_vectors --report    # includes PyTorch where it is installed

SPR on 20,000 vectors of 512 numbers: half of the steps learn from labels weighted by their
probability to be correct, half mix two examples. Each contender has a process of its own, and they
take turns. The last line is JSON.
"""

import argparse
import importlib.util
import json
import tempfile
from itertools import count
from pathlib import Path

import numpy as np

from experiments.harness import turns
from experiments.harness.provenance import origin, show_report
from experiments.harness.study import table

EXAMPLES, COLUMNS, CLASSES, HIDDEN, BATCH, STEPS = 20_000, 512, 10, 256, 256, 78
CONTENDERS = {
    "ours": "ours",
    "per core": "ours, a device for each core",
    "torch": "PyTorch, the same steps in a loop",
}


def make_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((EXAMPLES, COLUMNS)).astype(np.float32)
    return vectors, rng.integers(0, CLASSES, EXAMPLES)


def ours(*, per_core: bool):
    """A function that takes STEPS steps."""
    from configs import features
    from experiments.harness.steps import Steps
    from spr_jax.devices import keep_freed_memory, one_device_per_core
    from spr_jax.training.config import resolve

    keep_freed_memory()
    if per_core:
        one_device_per_core(batch_size=BATCH)
    vectors, labels = make_data()
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "vectors.npz")
        arrays = dict(features=vectors, labels=labels, true_labels=labels)
        np.savez(path, **arrays, test_features=vectors[:100], test_labels=labels[:100])
        config = features.get_config()
        config.dataset.path, config.dataset.components = str(path), 0
        resolve(config)
        steps = Steps(config)
    epochs = count(1)  # in the first, no step mixes
    return lambda: steps.take(STEPS, next(epochs))


def torch_loop():
    """The same in PyTorch: data in one tensor, no loader between."""
    import torch
    from torch.nn import functional as F  # noqa: N812

    from spr_jax.devices import keep_freed_memory, num_cores

    keep_freed_memory()  # as ours has it
    torch.set_num_threads(num_cores())
    torch.manual_seed(0)
    vectors, labels = map(torch.from_numpy, make_data())
    correct = torch.rand(EXAMPLES)
    hidden, norm = torch.nn.Linear(COLUMNS, HIDDEN), torch.nn.BatchNorm1d(HIDDEN)
    network = torch.nn.Sequential(hidden, norm, torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES))
    optimizer = torch.optim.SGD(network.parameters(), 0.02, momentum=0.9, weight_decay=1e-3)

    def view(rows):
        return rows + (torch.rand_like(rows) - 0.5) * (0.2 * 12**0.5)

    def supervised(rows, chosen):
        each = F.cross_entropy(network(view(rows)), labels[chosen], reduction="none")
        weights = correct[chosen]
        return (weights * each).sum() / weights.sum()

    def mixed(rows, chosen):
        first = view(rows)
        with torch.no_grad():
            guess = network(first).softmax(1) + network(view(rows)).softmax(1)
        targets = torch.where(correct[chosen] > 0.5, labels[chosen], guess.argmax(1))
        partner = torch.randperm(len(rows))
        share = torch.rand(())
        share = torch.maximum(share, 1 - share)
        logits = network(share * first + (1 - share) * first[partner])
        own, other = F.cross_entropy(logits, targets), F.cross_entropy(logits, targets[partner])
        return share * own + (1 - share) * other

    def run():
        order = torch.randperm(EXAMPLES)
        for step in range(STEPS):
            chosen = order[step * BATCH : (step + 1) * BATCH]
            loss = (mixed if step % 2 else supervised)(vectors[chosen], chosen)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimizer.step()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="write reports/benchmark_vectors.md")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--serve", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        is_torch = options.serve == "torch"
        run = torch_loop() if is_torch else ours(per_core=options.serve == "per core")
        return turns.serve(run, STEPS * BATCH)

    has_torch = importlib.util.find_spec("torch") is not None
    names = [name for name in CONTENDERS if has_torch or name != "torch"]
    speeds = turns.speeds_of(names, rounds=options.rounds)
    head = ["", "examples/s", *turns.HEAD[1:]]
    report = f"""# Training on vectors, timed

{origin(*["torch"] * has_torch)}

{table(head, turns.rows(speeds, CONTENDERS))}

SPR's steps, half of them supervised and half mixed, on vectors of {COLUMNS} numbers with one hidden
layer of {HIDDEN}, batches of {BATCH}; medians of {options.rounds} turns of {STEPS} steps; spread is
half the distance between the quartiles, ratios are medians of the ratios within a round.
"""
    show_report(report, "benchmark_vectors", keep=options.report)
    if has_torch:
        ratio = float(np.median(speeds["ours"] / speeds["torch"]))
        print(json.dumps({"ours over torch": round(ratio, 3)}))


if __name__ == "__main__":
    main()
