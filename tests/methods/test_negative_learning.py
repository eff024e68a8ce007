"""NLNL: complementary labels, what each stage learns from, and the mean that decides."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from fakes import revise, softmax, step_on_logits
from jax import random

from spr_jax.losses import cross_entropy
from spr_jax.methods import METHODS
from spr_jax.methods.negative_learning import complementary_labels, mean_probability
from spr_jax.registry import build

C = 4
LABELS = np.array([0, 1, 2, 3, 0, 1, 2, 3])
LOGITS = np.random.default_rng(0).standard_normal((8, C))
P = softmax(LOGITS)


@cache
def make(**options):
    return build(METHODS, {"name": "nlnl", **options})


def remember(method, *epochs):
    """Memory after epochs with these probabilities of the given labels."""
    memory = method.init(LABELS, C)
    for probability in epochs:
        memory = revise(method, memory, {"probability": np.float32(probability)})
    return memory


def take_step(method, memory=None, labels=LABELS, **changes):
    return step_on_logits(method, LOGITS[None], labels, memory, **changes)


def learns_from(method, memory):
    (slope,) = take_step(method, memory).slopes
    return np.flatnonzero(abs(slope).max(axis=1) > 0).tolist()


def test_stages_follow_each_other_with_the_same_networks():
    stages = make(stage_epochs=5)
    assert [stage.epochs for stage in stages] == [5, 5, 5]
    assert not any(stage.restart for stage in stages)
    assert [len(make(stages=name)) for name in ("nl", "nl+selnl")] == [1, 2]


def test_complementary_labels_are_uniform_among_the_others():
    labels = jnp.arange(C).repeat(3000)
    drawn = complementary_labels(random.key(0), labels, C, 2)
    assert drawn.shape == (2, 4 * 3000)
    counts = np.histogram2d(np.tile(labels, 2), drawn.ravel(), bins=C)[0]
    assert (np.diag(counts) == 0).all()
    np.testing.assert_allclose(counts, 2000 * (1 - np.eye(C)), atol=4 * np.sqrt(2000))


@pytest.mark.parametrize("negatives", [1, 3])
def test_first_stage_says_what_examples_are_not(negatives):
    method = make(negatives=negatives)[0].method
    step = take_step(method, key=5)
    label_key = random.split(random.key(5))[1]
    drawn = complementary_labels(label_key, LABELS, C, negatives)
    expected = -sum(np.log(1 - P[np.arange(8), other]) for other in drawn)
    assert step.loss == pytest.approx(expected.mean())
    np.testing.assert_allclose(step.record["probability"], P[np.arange(8), LABELS], rtol=1e-6)


def test_loss_of_a_uniform_guess():
    method = make()[0].method
    assert step_on_logits(method, np.zeros((1, 8, C)), LABELS).loss == pytest.approx(
        -np.log(1 - 1 / C)
    )


def test_stages_learn_from_ever_surer_examples():
    likely = [0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.1, 0.9]
    kept = []
    for stage in make():
        memory = remember(stage.method, likely)
        kept.append(learns_from(stage.method, memory))
        assert np.flatnonzero(memory["clean"]).tolist() == kept[-1]  # what the log says
    assert kept == [[*range(8)], [1, 2, 3, 4, 5, 7], [4, 5, 7]]


def test_memory_of_one_stage_is_what_the_next_selects_by():
    first, second, third = (stage.method for stage in make())
    memory = remember(first, [0.2, 0.9] * 4)
    assert memory["clean"].all()
    assert learns_from(second, second.init(LABELS, C) | memory) == [1, 3, 5, 7]
    memory = revise(second, memory, {"probability": np.full(8, 0.15, np.float32)})
    assert learns_from(third, third.init(LABELS, C) | memory) == [1, 3, 5, 7]  # mean 0.525


def test_last_stage_with_gamma_zero_is_cross_entropy():
    method = make(gamma=0.0)[-1].method
    assert take_step(method).loss == pytest.approx(cross_entropy(LOGITS, LABELS).mean())


def test_loss_is_the_mean_over_the_selected_and_zero_without_any():
    method = make()[-1].method
    weights = np.array([2, 2, 2, 2, 0, 0, 0, 0.0])  # the second half fills up a batch
    memory = remember(method, [0.9, 0.1, 0.9, 0.1, 0.9, 0.9, 0.9, 0.9])
    found = take_step(method, memory, weights=weights).loss
    assert found == pytest.approx(cross_entropy(LOGITS, LABELS)[jnp.array([0, 2])].mean())
    none = take_step(method, remember(method, [0.1] * 8), weights=weights)
    assert none.loss == 0 and (none.slopes[0] == 0).all()


def test_small_classes_weigh_more():
    labels = np.array([0, 0, 0, 0, 1, 1, 2, 2])  # and none of the last class
    method = make(gamma=0.0)[-1].method
    memory = method.init(labels, C)
    np.testing.assert_array_equal(memory["balance"], [1, 2, 2, 4])
    each = cross_entropy(LOGITS, labels) * np.array([1, 1, 1, 1, 2, 2, 2, 2])
    assert take_step(method, memory, labels).loss == pytest.approx(each.mean())


def test_mean_is_over_the_last_ten_epochs_seen():
    method = make()[0].method
    epochs = np.random.default_rng(0).random((13, 8))
    for count in (1, 4, 13):
        memory = remember(method, *epochs[:count])
        expected = epochs[max(count - 10, 0) : count].mean(axis=0)
        np.testing.assert_allclose(mean_probability(memory), expected, rtol=1e-5)


def test_example_not_visited_keeps_its_mean():
    method = make()[0].method
    memory = remember(method, [0.2] * 8, [0.6] * 8)
    after = revise(method, memory, {"probability": np.zeros(8, np.float32)}, skipped=[3])
    found = mean_probability(after)
    np.testing.assert_allclose(found, np.where(np.arange(8) == 3, 0.4, 0.8 / 3), rtol=1e-5)
