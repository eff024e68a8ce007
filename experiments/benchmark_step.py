"""A report on the time of a C2F2 training step with our operations, Flax's own, and in PyTorch.

    python -m experiments.benchmark_step --report    # includes PyTorch where it is installed

Forward, backward and SGD on batches of 128 images of 28 x 28, on the CPU. Each contender has a
process of its own, and they take turns. The last line is JSON.
"""

import argparse
import importlib.util
import json
from functools import partial

import numpy as np

from experiments.harness import turns
from experiments.harness.provenance import origin, show_report
from experiments.harness.study import table
from spr_jax.devices import keep_freed_memory

BATCH, STEPS = 128, 5
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, CLIP = 0.01, 0.9, 1e-3, 5.0
CONTENDERS = {  # name -> its operations, and what else it uses
    "stock": "Flax",
    "stock, all": "Flax, freed memory kept, a device for each core",
    "repaired": "ours",
    "ours, one device": "ours, freed memory kept",
    "ours": "ours, freed memory kept, a device for each core",
    "torch": "PyTorch",
    "torch, kept": "PyTorch, freed memory kept",
}


def make_batch():
    generator = np.random.default_rng(0)
    images = generator.standard_normal((BATCH, 28, 28, 1), np.float32)
    return images, generator.integers(0, 10, BATCH)


def jax_step(parts: str):
    """A function that takes one step and returns when it is done."""
    import jax
    import optax
    from flax import jax_utils
    from flax import linen as nn

    from spr_jax.backbones import Classifier, c2f2
    from spr_jax.devices import one_device_per_core

    if "device" in parts:
        one_device_per_core()
    if "Flax" in parts:
        c2f2.max_pool = partial(nn.max_pool, window_shape=(2, 2), strides=(2, 2))
    model = Classifier(c2f2.C2F2(axis_name="devices"), 10)
    optimizer = optax.chain(
        optax.clip_by_global_norm(CLIP),
        optax.add_decayed_weights(WEIGHT_DECAY),
        optax.sgd(LEARNING_RATE, MOMENTUM),
    )
    devices = jax.local_device_count()
    images, labels = (array.reshape(devices, -1, *array.shape[1:]) for array in make_batch())
    variables = model.init(jax.random.key(0), images[0], False)
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
        return {"params": params, **updated}, memory

    program = jax.pmap(step, axis_name="devices", donate_argnums=0)

    def run():
        nonlocal state
        state = jax.block_until_ready(program(state, images, labels))

    return run


def torch_step():
    import torch
    from torch import nn

    def block(inputs, features):
        return (
            nn.Conv2d(inputs, features, 3, padding=1),
            nn.BatchNorm2d(features),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )

    hidden = (nn.Flatten(), nn.Linear(3136, 128), nn.BatchNorm1d(128), nn.ReLU())
    network = nn.Sequential(*block(1, 32), *block(32, 64), *hidden, nn.Linear(128, 10))
    network = network.to(memory_format=torch.channels_last)
    images, labels = map(torch.tensor, make_batch())
    images = images.permute(0, 3, 1, 2)  # channels last in memory
    optimizer = torch.optim.SGD(
        network.parameters(), LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )

    def run():
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()

    return run


def prepare(name: str):
    """The function of a contender that takes one step."""
    parts = CONTENDERS[name]
    if "memory" in parts:
        keep_freed_memory()
    return torch_step() if "PyTorch" in parts else jax_step(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="write reports/benchmark_step.md")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--serve", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return turns.serve(prepare(options.serve), BATCH, repeat=STEPS)

    has_torch = importlib.util.find_spec("torch") is not None
    names = [name for name in CONTENDERS if has_torch or "torch" not in name]
    speeds = turns.speeds_of(names, rounds=options.rounds)
    report = f"""# A training step of C2F2, timed

{origin("flax", "optax", *["torch"] * has_torch)}

{table(["operations", *turns.HEAD], turns.rows(speeds, CONTENDERS))}

Batches of {BATCH}; medians of {options.rounds} turns of {STEPS} steps; spread is half the distance
between the quartiles, ratios are medians of the ratios within a round.
"""
    show_report(report, "benchmark_step", keep=options.report)
    others = [name for name in speeds if name != "ours"]
    ratios = {f"ours over {name}": np.median(speeds["ours"] / speeds[name]) for name in others}
    print(json.dumps({name: round(float(value), 3) for name, value in ratios.items()}))


if __name__ == "__main__":
    main()
