"""The optimizer against PyTorch's rule, written out in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from spr_jax.training.optim import make_optimizer, make_schedule

SHAPES = {"kernel": (4, 3), "bias": (3,)}


def options(**changes):
    usual = {"learning_rate": 0.1, "schedule": "cosine", "momentum": 0.9}
    usual |= {"weight_decay": 0.01, "clip_norm": 5.0, "warmup_epochs": 0.0, "nesterov": False}
    return ConfigDict(usual | {"decoupled_decay": False, "norm_bias_rate": 1.0} | changes)


def test_cosine_changes_by_epoch_and_ends_above_zero():
    schedule = make_schedule(options(), epochs=4, steps_per_epoch=3)
    rates = np.array([schedule(step) for step in range(12)])
    expected = 0.05 * (1 + np.cos(np.pi * np.arange(4) / 4))
    np.testing.assert_allclose(rates.reshape(4, 3), np.repeat(expected[:, None], 3, 1), rtol=1e-6)


def test_constant_is_constant():
    schedule = make_schedule(options(schedule="constant"), epochs=4, steps_per_epoch=3)
    assert {float(schedule(step)) for step in range(12)} == {0.1}


RISING = [0.2, 0.2 + 0.8 / 3, 0.2 + 1.6 / 3, 1.0, 0.8, 0.6, 0.4, 0.2, 0.0]


@pytest.mark.parametrize("warmup, expected", [(1.5, RISING), (0.0, 1 - np.arange(9) / 8)])
def test_triangle_changes_by_step_and_ends_at_zero(warmup, expected):
    """Four epochs of two steps; the peak may be within an epoch."""
    wanted = options(schedule="triangle", warmup_epochs=warmup)
    schedule = make_schedule(wanted, epochs=4, steps_per_epoch=2)
    rates = [float(schedule(jnp.int32(step))) for step in range(9)]
    np.testing.assert_allclose(rates, 0.1 * np.asarray(expected), atol=1e-8)
    assert schedule(20) == 0  # never negative


@pytest.mark.parametrize("warmup", [4.0, 7.5, -1.0])
def test_a_warmup_longer_than_the_run_is_refused(warmup):
    wanted = options(schedule="triangle", warmup_epochs=warmup)
    with pytest.raises(ValueError, match=f"warmup_epochs is {warmup} .* 4 epochs"):
        make_schedule(wanted, epochs=4, steps_per_epoch=3)
    make_schedule(options(warmup_epochs=warmup), epochs=4, steps_per_epoch=3)  # has no warm-up


def descend(wanted, weights, gradients):
    """Weights after steps of a constant rate of 0.1."""
    optimizer = make_optimizer(wanted, lambda step: 0.1)
    state = optimizer.init(weights)
    for gradient in gradients:
        updates, state = optimizer.update(gradient, state, weights)
        weights = optax.apply_updates(weights, updates)
    return weights


@pytest.mark.parametrize("decoupled", [False, True])
def test_nesterov_and_both_kinds_of_decay(decoupled):
    """v <- m v + g; w <- w - rate (g + m v), with decay in g, or beside it."""
    generator = np.random.default_rng(0)
    start, *gradients = generator.standard_normal((5, 3))
    wanted = options(nesterov=True, decoupled_decay=decoupled, clip_norm=0.0)
    found = descend(wanted, {"w": jnp.asarray(start)}, [{"w": g} for g in gradients])["w"]
    weights, velocity = start, 0
    for gradient in gradients:
        decay = 0.01 * weights
        gradient = gradient if decoupled else gradient + decay
        velocity = 0.9 * velocity + gradient
        weights = weights - 0.1 * (gradient + 0.9 * velocity + (decay if decoupled else 0))
    np.testing.assert_allclose(found, weights, rtol=1e-6)


def test_norm_biases_learn_faster_and_decay_as_before():
    """As with rate * factor and decay / factor for them alone."""
    shape = {"Conv_0": {"bias": 3}, "BatchNorm_0": {"bias": 3, "scale": 3}}
    generator = np.random.default_rng(0)
    draw = lambda: jax.tree.map(generator.standard_normal, shape)  # noqa: E731
    start, gradients = jax.tree.map(jnp.asarray, draw()), [draw() for _ in range(3)]
    wanted = options(norm_bias_rate=4.0, clip_norm=0.0)
    found = descend(wanted, start, gradients)
    expected = descend(options(clip_norm=0.0), start, gradients)
    weights, velocity = np.asarray(start["BatchNorm_0"]["bias"]), 0
    for gradient in gradients:
        velocity = 0.9 * velocity + gradient["BatchNorm_0"]["bias"] + 0.01 / 4 * weights
        weights = weights - 4 * 0.1 * velocity
    np.testing.assert_allclose(found["BatchNorm_0"].pop("bias"), weights, rtol=1e-6)
    expected["BatchNorm_0"].pop("bias")
    jax.tree.map(np.testing.assert_array_equal, found, expected)


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
