"""SR: sharpened logits, the growing penalty, and its limits."""

from functools import cache

import jax
import numpy as np
import pytest
from fakes import step_on_logits

from spr_jax import losses
from spr_jax.methods import METHODS
from spr_jax.methods.sparse_regularization import sharpen
from spr_jax.registry import build

GENERATOR = np.random.default_rng(0)
LOGITS, LABELS = GENERATOR.standard_normal((6, 4)), GENERATOR.integers(0, 4, 6)


@cache
def make(**options):
    return build(METHODS, {"name": "sr", **options})


def loss_at(epoch, **options):
    return step_on_logits(make(**options), LOGITS[None], LABELS, epoch=epoch).loss


@pytest.mark.parametrize("base", ["ce", "focal", "gce"])
def test_without_penalty_and_temperature_it_is_the_base_loss(base):
    options = {"q": 0.01} if base == "gce" else {}
    found = loss_at(3, base=base, weight=0.0, temperature=1.0, normalize=False)
    assert found == pytest.approx(losses.LOSSES[base](LOGITS, LABELS, **options).mean())


def test_both_terms_in_slow_numpy():
    total = 0
    for z, label in zip(LOGITS, LABELS, strict=True):
        z = z / np.sqrt(sum(z**2)) / 0.5
        p = np.exp(z) / np.exp(z).sum()
        total += -np.log(p[label]) + 1.2 * sum(p**0.1)
    assert loss_at(0) == pytest.approx(total / 6, rel=1e-6)


@pytest.mark.parametrize(("epoch", "expected"), [(4, 4), (5, 8), (49, 2048)])
def test_weight_doubles_every_five_epochs_on_mnist(epoch, expected):
    """lambda = 4 * 2^floor(e / 5), in the loss as in the log."""
    schedule = {"weight": 4.0, "growth": 2.0, "grow_every": 5}
    assert make(**schedule).describe({}, epoch) == {"sparse_weight": expected}
    penalty = losses.sparse_penalty(sharpen(LOGITS, 0.5, True), q=0.1).mean()
    found = (loss_at(epoch, **schedule) - loss_at(epoch, weight=0.0)) / penalty
    assert found == pytest.approx(expected, rel=1e-6)


def test_weight_grows_with_the_epoch():
    assert loss_at(2, growth=3.0) > loss_at(1, growth=3.0) > loss_at(0, growth=3.0)


@pytest.mark.parametrize("scale", [1e-3, 7.0])
def test_unit_logits_do_not_see_the_scale(scale):
    np.testing.assert_allclose(sharpen(scale * LOGITS, 0.5, True), sharpen(LOGITS, 0.5, True))
    np.testing.assert_allclose(np.linalg.norm(sharpen(LOGITS, 0.5, True), axis=1), 2)


def test_zero_logits_have_a_finite_slope():
    slope = jax.jit(jax.grad(lambda z: losses.cross_entropy(sharpen(z, 0.5, True), LABELS).sum()))
    assert np.isfinite(slope(np.zeros((6, 4), np.float32))).all()


def test_penalty_at_its_ends():
    assert losses.sparse_penalty(np.zeros((1, 10)), q=0.1)[0] == pytest.approx(7.943, abs=1e-3)
    sure = np.array([[1e3] + [0] * 9])
    assert losses.sparse_penalty(sure, q=0.1)[0] == pytest.approx(2.796, abs=1e-3)
