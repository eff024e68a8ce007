"""D2L: the estimate of dimension, when the network turns to its predictions, and how far."""

import numpy as np
import pytest
from fakes import draw_logits, revise, slow_cross_entropy, step_on_logits
from jax import random

from spr_jax.methods import dimensionality
from spr_jax.methods.dimensionality import d2l, dimension, from_distances, mean_dimension
from spr_jax.methods.robust_loss import bootstrap, ce

K = 20


def slow_dimension(points, k):
    found = []
    for i, point in enumerate(points):
        others = np.delete(points, i, axis=0)
        nearest = np.sort(np.sqrt(((others - point) ** 2).sum(axis=1)))[:k]
        found.append(-k / np.log(nearest / nearest[-1]).sum())
    return found


def test_dimension_is_by_the_nearest_others():
    points = np.random.default_rng(0).standard_normal((40, 6))
    expected = slow_dimension(points, K)
    np.testing.assert_allclose(dimension(points), expected, rtol=1e-5)
    np.testing.assert_allclose(dimension(1000 * points), expected, rtol=1e-5)
    np.testing.assert_allclose(dimension(points[:9]), slow_dimension(points[:9], 8), rtol=1e-5)


@pytest.mark.parametrize("m", [2, 5, 10])
def test_the_estimate_has_a_known_mean_in_m_dimensions(m):
    """Distances in a ball are U^(1/m), and the estimate has the mean k m / (k - 2)."""
    distances = np.random.default_rng(m).random((20_000, K)) ** (1 / m)
    found = np.mean(from_distances(np.sort(distances, axis=1)))
    assert found == pytest.approx(K * m / (K - 2), rel=0.01)


def test_the_mean_is_over_random_batches():
    points = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    assert mean_dimension(points, random.key(0)) == mean_dimension(points, random.key(0))
    assert mean_dimension(points, random.key(0)) != mean_dimension(points, random.key(1))
    everything = np.mean(slow_dimension(points[:128], K))
    assert mean_dimension(points[:128], random.key(0)) == pytest.approx(everything, rel=1e-4)


def after(method, dimensions, monkeypatch):
    """Memory after every epoch, for these dimensions of the features."""
    found = iter(dimensions)
    monkeypatch.setattr(dimensionality, "mean_dimension", lambda features, key: next(found))
    memory, memories = method.init(np.zeros(30, int), 4), []
    for number in range(len(dimensions)):
        memory = revise(method, memory, {"features": np.zeros((30, 2))}, number=number)
        memories.append(memory)
    return memories


def test_the_network_turns_when_the_dimension_rises(monkeypatch):
    """By two standard deviations, after the warm-up and a window; it never turns back."""
    method = d2l(warmup=2, window=3, horizon=10)
    course = [9.0, 1.0, 8.0, 7.0, 7.5, 7.0, 9.0, 5.0, 6.0]
    memories = after(method, course, monkeypatch)
    assert [bool(memory["has_turned"]) for memory in memories] == [False] * 6 + [True] * 3
    expected = [np.exp(-e / 10 * now / 1.0) for e, now in ((7, 9.0), (8, 5.0), (9, 6.0))]
    np.testing.assert_allclose([memory["alpha"] for memory in memories[6:]], expected, rtol=1e-5)
    assert {float(memory["alpha"]) for memory in memories[:6]} == {1.0}
    assert method.describe(memories[-1], 9)["intrinsic_dimension"] == 6
    early = after(d2l(warmup=9, window=3), course, monkeypatch)
    assert not early[-1]["has_turned"]


def test_it_returns_once_to_the_weights_before_the_expansion(monkeypatch):
    course = [9.0, 8.0, 7.0, 7.5, 7.0, 9.0, 5.0, 20.0, 6.0]
    for returns, expected in ((True, [5]), (False, [])):
        method = d2l(warmup=2, window=3, horizon=10, returns=returns)
        memories = after(method, course, monkeypatch)
        assert [n for n, memory in enumerate(memories) if method.goes_back(memory)] == expected
        assert [bool(memory["has_turned"]) for memory in memories] == [False] * 5 + [True] * 4


@pytest.mark.parametrize("senseless", [0.0, np.nan])
def test_epochs_before_the_first_dimension_are_not_the_lowest(monkeypatch, senseless):
    """Or alpha would be zero for ever, and the first dimension an expansion."""
    course = [senseless] * 4 + [6.0, 6.1, 6.0, 9.0]
    memories = after(d2l(warmup=1, window=3, horizon=10), course, monkeypatch)
    assert [bool(memory["has_turned"]) for memory in memories] == [False] * 7 + [True]
    assert memories[-1]["lowest"] == 6
    assert memories[-1]["alpha"] == pytest.approx(np.exp(-0.8 * 9 / 6))


def test_fewer_examples_than_neighbors_are_named():
    with pytest.warns(UserWarning, match="20 neighbors, and there are 20 examples"):
        d2l().init(np.zeros(20, int), 4)
    points = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    expected = np.mean(slow_dimension(points, 19))
    assert mean_dimension(points, random.key(0)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("senseless", [0.0, -3.0, np.inf, np.nan])
def test_a_dimension_without_a_sense_is_the_one_before(monkeypatch, senseless):
    memories = after(d2l(), [4.0, senseless], monkeypatch)
    assert memories[-1]["dimensions"][-1] == 4 and memories[-1]["lowest"] == 4


def test_equal_points_have_no_dimension():
    assert not 0 < mean_dimension(np.ones((30, 2), np.float32), random.key(0)) < np.inf


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_the_target_mixes_label_and_prediction(alpha):
    logits, labels = draw_logits()
    method = d2l()
    memory = method.init(np.zeros(30, int), 4) | {"alpha": np.float32(alpha)}
    step = step_on_logits(method, logits, labels, memory)
    by_label, slope = slow_cross_entropy(logits[0], labels)
    by_own, own_slope = slow_cross_entropy(logits[0], logits[0].argmax(axis=1))
    np.testing.assert_allclose(step.each, alpha * by_label + (1 - alpha) * by_own, rtol=1e-5)
    slope = alpha * slope + (1 - alpha) * own_slope
    np.testing.assert_allclose(step.slopes[0], slope / len(labels), atol=1e-7)
    same = {1.0: ce(), 0.4: bootstrap("hard", 0.4)}.get(alpha, bootstrap("hard", 0.0))
    np.testing.assert_allclose(
        step.slopes[0], step_on_logits(same, logits, labels).slopes[0], atol=1e-7
    )
