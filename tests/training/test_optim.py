"""The optimizer against PyTorch's rule, written out in NumPy."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from spr_jax.training.optim import make_optimizer, make_schedule

SHAPES = {"kernel": (4, 3), "bias": (3,)}


def options(**changes):
    usual = {"learning_rate": 0.1, "schedule": "cosine", "momentum": 0.9}
    return ConfigDict(usual | {"weight_decay": 0.01, "clip_norm": 5.0} | changes)


def test_cosine_changes_by_epoch_and_ends_above_zero():
    schedule = make_schedule(options(), epochs=4, steps_per_epoch=3)
    rates = np.array([schedule(step) for step in range(12)])
    expected = 0.05 * (1 + np.cos(np.pi * np.arange(4) / 4))
    np.testing.assert_allclose(rates.reshape(4, 3), np.repeat(expected[:, None], 3, 1), rtol=1e-6)


def test_constant_is_constant():
    schedule = make_schedule(options(schedule="constant"), epochs=4, steps_per_epoch=3)
    assert {float(schedule(step)) for step in range(12)} == {0.1}


@pytest.mark.parametrize("clip_norm", [5.0, 0.0])
@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_five_steps_of_torch_sgd(clip_norm, momentum):
    """g <- clip(g) + decay w; v <- momentum v + g; w <- w - rate v."""
    generator = np.random.default_rng(0)
    weights = {name: generator.standard_normal(shape) for name, shape in SHAPES.items()}
    gradients = [
        {name: 4 * generator.standard_normal(shape) for name, shape in SHAPES.items()}
        for _ in range(5)
    ]
    schedule = make_schedule(options(), epochs=3, steps_per_epoch=2)
    optimizer = make_optimizer(options(clip_norm=clip_norm, momentum=momentum), schedule)
    found = {name: jnp.asarray(value) for name, value in weights.items()}
    state, velocity = optimizer.init(found), dict.fromkeys(weights, 0)
    for step, gradient in enumerate(gradients):
        updates, state = optimizer.update(gradient, state, found)
        found = optax.apply_updates(found, updates)
        norm = np.sqrt(sum((g**2).sum() for g in gradient.values()))
        scale = min(1, clip_norm / norm) if clip_norm else 1
        rate = 0.05 * (1 + np.cos(np.pi * (step // 2) / 3))
        for name, g in gradient.items():
            velocity[name] = momentum * velocity[name] + scale * g + 0.01 * weights[name]
            weights[name] = weights[name] - rate * velocity[name]
    for name in weights:
        np.testing.assert_allclose(found[name], weights[name], rtol=1e-6)
