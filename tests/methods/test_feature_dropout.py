"""Dropout and nested dropout of features, and how many of them predictions use."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fakes import Head, make_batch, revise, take_step
from jax import random

from spr_jax.devices import AXIS
from spr_jax.losses import cross_entropy
from spr_jax.methods import METHODS
from spr_jax.methods.feature_dropout import first_features
from spr_jax.registry import build

B, D, C = 8, 12, 3
GENERATOR = np.random.default_rng(0)
FEATURES = GENERATOR.random((B, D)) + 0.1
LABELS = np.arange(B) % C
NETWORK = Head({"head": {"kernel": GENERATOR.standard_normal((D, C)), "bias": GENERATOR.random(C)}})
BATCH = make_batch(FEATURES, LABELS)


@cache
def make(name, **options):
    return build(METHODS, {"name": name, **options})


def run_step(method, key=0, memory=None):
    return take_step(method, (NETWORK,), BATCH, memory, key=key)


def seen_of(by_image):
    """Which features the head saw: those that have a slope."""
    return np.asarray(by_image) != 0


def masks_of(method, num_steps):
    """[steps, devices, b, d], of steps on four devices that have the same features."""
    memory = method.init(LABELS, C)

    def value(features, key):
        batch = BATCH._replace(views=(features,))
        return method.steps[0]((NETWORK,), batch, memory, key)[0]

    on_devices = jax.vmap(jax.grad(value), in_axes=(None, 0), axis_name=AXIS)
    keys = random.split(random.key(1), (num_steps, 4))
    return seen_of(jax.jit(jax.vmap(on_devices, in_axes=(None, 0)))(FEATURES, keys))


def test_without_dropout_it_is_cross_entropy():
    found, plain = (run_step(make(*given)) for given in (("dropout",), ("ce",)))
    assert found.loss != plain.loss
    found = run_step(make("dropout", rate=0.0))
    assert found.loss == plain.loss
    np.testing.assert_array_equal(found.by_image, plain.by_image)


def test_dropout_scales_what_it_keeps():
    method = make("dropout", rate=0.75)
    step = run_step(method)
    seen = seen_of(step.by_image)
    assert seen.any() and not seen.all()
    expected = cross_entropy(NETWORK.forward(FEATURES * seen * 4)[0].logits, LABELS).mean()
    assert step.loss == pytest.approx(expected)


def test_dropout_drops_at_its_rate_differently_in_each_step():
    masks = masks_of(make("dropout", rate=0.25), 10)
    assert masks.mean() == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / masks.size))
    for axis in range(3):  # steps, devices, examples
        first, second, *_ = np.moveaxis(masks, axis, 0)
        assert (first != second).any()


def test_predictions_with_dropout_are_those_without():
    found = make("dropout").predict((NETWORK,), {}, FEATURES)
    np.testing.assert_allclose(found, jax.nn.softmax(NETWORK.predict(FEATURES).logits))


def test_nested_dropout_keeps_the_first_features_unscaled():
    step = run_step(make("nested", sigma=6.0))
    seen = seen_of(step.by_image)
    length = seen[0].sum()
    assert 1 <= length < D
    np.testing.assert_array_equal(seen, np.tile(np.arange(D) < length, (B, 1)))  # one for all
    expected = cross_entropy(NETWORK.forward(FEATURES * seen)[0].logits, LABELS).mean()
    assert step.loss == pytest.approx(expected)


def test_nested_dropout_draws_lengths_from_its_density():
    """P(k) ~ exp(-(k / sigma)^2), k from 1."""
    lengths = masks_of(make("nested", sigma=3.0), 2000)[:, 0, 0].sum(axis=1)
    density = np.exp(-((np.arange(1, D + 1) / 3.0) ** 2))
    expected = 2000 * density / density.sum()
    counts = np.bincount(lengths, minlength=D + 1)
    assert counts[0] == 0
    np.testing.assert_array_less(abs(counts[1:] - expected), 4 * np.sqrt(expected) + 1)


def test_nested_dropout_takes_the_same_length_on_all_devices():
    masks = masks_of(make("nested", sigma=6.0), 20)
    assert (masks == masks[:, :1, :1]).all()
    assert len({*masks[:, 0, 0].sum(axis=1)}) > 3


def test_first_features_are_those_of_a_masked_head():
    lengths = jnp.array([1, 5, D, 99])
    found = first_features(NETWORK, FEATURES, lengths)
    for place, length in enumerate(lengths):
        expected = NETWORK.forward(FEATURES, None, np.arange(D) < length)[0].logits
        np.testing.assert_allclose(found[:, place], expected, rtol=1e-6)


def test_held_out_labels_choose_the_length_and_ties_the_shortest():
    method = make("nested", sigma=4.0)
    labels = np.arange(60) % C
    memory = method.init(labels, C)
    num = run_step(method, memory=memory).record["is_right"].shape[1]
    is_right = np.zeros((60, num), bool)
    is_right[np.asarray(memory["weights"]) > 0, 7] = True  # trained on: these have no say
    is_right[[27, 28, 57], 2] = is_right[[27, 28, 57], 4] = True
    is_right[[27, 28, 29, 57, 58], 5] = True
    record = {"is_right": is_right}
    lengths = np.unique(np.geomspace(1, 12, 32).round())
    assert num == len(lengths)
    assert revise(method, memory, record)["length"] == lengths[5]
    memory = revise(method, memory, record, skipped=[29, 58])
    assert memory["length"] == lengths[2] and method.describe(memory, 0) == {"features_used": 3}


def test_nested_dropout_does_not_learn_from_the_held_out():
    method = make("nested")
    memory = method.init(LABELS, C) | {"weights": jnp.array([1.0, 0, 1, 1, 1, 1, 1, 1])}
    slope = run_step(method, memory=memory).by_image
    assert (abs(slope).max(axis=1) > 0).tolist() == [True, False, *[True] * 6]


def test_record_says_which_lengths_are_right():
    method = make("nested", sigma=4.0)
    record = run_step(method).record
    lengths = np.unique(np.geomspace(1, 12, 32).round()).astype(int)
    expected = first_features(NETWORK, FEATURES, lengths).argmax(axis=2) == LABELS[:, None]
    np.testing.assert_array_equal(record["is_right"], expected)


def test_predictions_use_the_chosen_features():
    method = make("nested")
    memory = {"length": jnp.int32(4)}
    expected = NETWORK.forward(FEATURES, None, np.arange(D) < 4)[0].logits
    found = method.predict((NETWORK,), memory, FEATURES)
    np.testing.assert_allclose(found, jax.nn.softmax(expected), rtol=1e-6)


def test_very_wide_nested_dropout_takes_every_length_alike():
    lengths = masks_of(make("nested", sigma=1e9), 600)[:, 0, 0].sum(axis=1)
    np.testing.assert_allclose(np.bincount(lengths)[1:], 600 / D, atol=4 * np.sqrt(600 / D))
