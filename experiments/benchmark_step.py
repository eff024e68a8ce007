"""A report on the time of a training step with our operations, Flax's own, and in PyTorch.

    python -m experiments.benchmark_step --report    # includes PyTorch where it is installed
    python -m experiments.benchmark_step --networks whitened --rounds 5

Forward, backward and SGD on random images, on the CPU. Each contender has a process of its own, and
they take turns. The last line is JSON.
"""

import argparse
import importlib.util
import json
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from experiments.harness import turns
from experiments.harness.provenance import origin, show_report
from experiments.harness.study import table
from spr_jax.devices import keep_freed_memory

LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, CLIP = 0.01, 0.9, 1e-3, 5.0


class Case(NamedTuple):
    """A network, and the images that it is timed on."""

    backbone: str
    shape: tuple[int, int, int]
    batch: int
    steps: int  # in a turn
    title: str
    options: dict[str, Any] = {}


CASES = {
    "c2f2": Case("c2f2", (28, 28, 1), 128, 5, "C2F2"),
    "whitened": Case(
        "whitened", (32, 32, 3), 512, 1, "`whitened` 64-128-256", {"widths": (64, 128, 256)}
    ),
    "whitened94": Case("whitened", (32, 32, 3), 512, 1, "`whitened` 64-256-256"),
    "resnet18": Case("resnet18", (32, 32, 3), 128, 1, "ResNet-18"),
}
CONTENDERS = {  # name -> its operations, and what else it uses
    "stock": "Flax",
    "stock, all": "Flax, freed memory kept, a device for each core",
    "repaired": "ours",
    "ours, one device": "ours, freed memory kept",
    "ours": "ours, freed memory kept, a device for each core",
    "torch": "PyTorch",
    "torch, kept": "PyTorch, freed memory kept",
}


def make_batch(case: Case):
    generator = np.random.default_rng(0)
    images = generator.standard_normal((case.batch, *case.shape), np.float32)
    return images, generator.integers(0, 10, case.batch)


def jax_step(case: Case, parts: str):
    """A function that takes one step and returns when it is done."""
    import jax
    import optax
    from flax import jax_utils

    from spr_jax.backbones import BACKBONES, Classifier
    from spr_jax.devices import one_device_per_core

    if "device" in parts:
        one_device_per_core()
    if "Flax" in parts:
        use_stock_operations()
    model = Classifier(BACKBONES[case.backbone](axis_name="devices", **case.options), 10)
    optimizer = optax.chain(
        optax.clip_by_global_norm(CLIP),
        optax.add_decayed_weights(WEIGHT_DECAY),
        optax.sgd(LEARNING_RATE, MOMENTUM),
    )
    devices = jax.local_device_count()
    images, labels = (array.reshape(devices, -1, *array.shape[1:]) for array in make_batch(case))
    variables = model.init(jax.random.key(0), images[0], False)
    if "constants" in variables:  # as training learns them: zeros would be nothing to do
        constants = model.backbone.learn_constants(images[0])
        variables = {**variables, "constants": {"backbone": constants}}
    state = jax_utils.replicate((variables, optimizer.init(variables["params"])))

    def step(state, images, labels):
        variables, memory = state

        def loss(params):
            output, updated = model.apply(
                {**variables, "params": params}, images, True, mutable=["batch_stats"]
            )
            losses = optax.softmax_cross_entropy_with_integer_labels(output.logits, labels)
            return losses.mean(), updated

        gradients, updated = jax.grad(loss, has_aux=True)(variables["params"])
        gradients = jax.lax.pmean(gradients, "devices")
        updates, memory = optimizer.update(gradients, memory, variables["params"])
        params = optax.apply_updates(variables["params"], updates)
        return {**variables, "params": params, **updated}, memory

    program = jax.pmap(step, axis_name="devices", donate_argnums=0)

    def run():
        nonlocal state
        state = jax.block_until_ready(program(state, images, labels))

    return run


def use_stock_operations() -> None:
    """Give the backbones the convolution and pooling of Flax."""
    from flax import linen as nn

    from spr_jax.backbones import c2f2, layers, whitened

    pool = partial(nn.max_pool, window_shape=(2, 2), strides=(2, 2))
    c2f2.max_pool = whitened.max_pool = pool
    layers.Conv = whitened.Conv = nn.Conv


def torch_step(case: Case):
    import torch
    from torch import nn

    from experiments import torch_networks

    images, labels = map(torch.tensor, make_batch(case))
    images = images.permute(0, 3, 1, 2)  # channels last in memory
    names = {"c2f2": "C2F2", "whitened": "Whitened", "resnet18": "ResNet18"}
    backbone = getattr(torch_networks, names[case.backbone])(**case.options)
    backbone = backbone.to(memory_format=torch.channels_last)
    network = nn.Sequential(backbone, nn.Linear(backbone(images).shape[1], 10))
    trained = [weights for weights in network.parameters() if weights.requires_grad]
    optimizer = torch.optim.SGD(
        trained, LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )

    def run():
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        nn.utils.clip_grad_norm_(trained, CLIP)
        optimizer.step()

    return run


def prepare(case: Case, name: str):
    """The function of a contender that takes one step."""
    parts = CONTENDERS[name]
    if "memory" in parts:
        keep_freed_memory()
    return torch_step(case) if "PyTorch" in parts else jax_step(case, parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="write reports/benchmark_step.md")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--networks", nargs="+", choices=CASES, default=["c2f2", "whitened"])
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, help="these contenders")
    parser.add_argument("--serve", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        case = CASES[options.networks[0]]
        return turns.serve(prepare(case, options.serve), case.batch, repeat=case.steps)

    has_torch = importlib.util.find_spec("torch") is not None
    names = [name for name in options.only or CONTENDERS if has_torch or "torch" not in name]
    tables, ratios = [], {}
    for network in options.networks:
        case = CASES[network]
        speeds = turns.speeds_of(names, "--networks", network, rounds=options.rounds)
        rows = table(["operations", *turns.HEAD], turns.rows(speeds, CONTENDERS))
        title = f"## {case.title}, batches of {case.batch}, turns of {case.steps} steps"
        tables.append(f"{title}\n\n{rows}")
        own = speeds.get("ours")
        ratios |= {
            f"{network}: ours over {name}": round(float(np.median(own / speed)), 3)
            for name, speed in speeds.items()
            if own is not None and name != "ours"
        }
    all_tables = "\n\n".join(tables)
    report = f"""# A training step, timed

{origin("flax", "optax", *["torch"] * has_torch)}

{all_tables}

Medians of {options.rounds} turns; spread is half the distance between the quartiles, ratios are
medians of the ratios within a round.
"""
    show_report(report, "benchmark_step", keep=options.report)
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()
