"""Per-example losses: against plain NumPy, at their limits, and where numbers are extreme."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spr_jax.losses import LOSSES, cross_entropy, sparse_penalty

EXTREME = np.array([[1e4, -1e4, 0, 0], [-1e4, 1e4, 1e4, 0], [0, 0, 0, 0]])


def make_logits(b=6, c=5, seed=0):
    generator = np.random.default_rng(seed)
    return 3 * generator.standard_normal((b, c)), generator.integers(0, c, b)


def slow_softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def certain(c):
    """One example that is all but sure of the first class."""
    return jnp.zeros((1, c)).at[0, 0].set(1e3)


def slope(loss, logits, *given, **options):
    return jax.jit(jax.grad(lambda logits: loss(logits, *given, **options).sum()))(logits)


def test_cross_entropy_in_slow_numpy():
    logits, labels = make_logits()
    expected = [-np.log(row[k]) for row, k in zip(slow_softmax(logits), labels, strict=True)]
    np.testing.assert_allclose(cross_entropy(logits, labels), expected, rtol=1e-12)


def test_cross_entropy_has_the_slope_of_probability_minus_target():
    logits, labels = make_logits()
    expected = slow_softmax(logits) - np.eye(5)[labels]
    np.testing.assert_allclose(slope(cross_entropy, logits, labels), expected, atol=1e-12)


def test_cross_entropy_of_a_uniform_guess_is_log_c():
    np.testing.assert_allclose(cross_entropy(jnp.ones((2, 7)), jnp.array([0, 6])), np.log(7))


@pytest.mark.parametrize("q", [0.05, 0.2, 1.0])
def test_sparse_penalty_in_slow_numpy(q):
    logits, _ = make_logits()
    logits[0, 1] = -100  # a probability below the limit
    expected = [sum(min(max(p, 1e-7), 1) ** q for p in row) for row in slow_softmax(logits)]
    np.testing.assert_allclose(sparse_penalty(logits, q=q), expected, rtol=1e-12)


def test_sparse_penalty_is_least_for_a_certain_prediction():
    """1 + 9 * 1e-7^0.2: the limit on probabilities keeps it above 1."""
    assert sparse_penalty(certain(10))[0] == pytest.approx(1.358, abs=1e-3)


def test_sparse_penalty_is_largest_for_a_uniform_prediction():
    assert sparse_penalty(jnp.zeros((1, 10)))[0] == pytest.approx(10**0.8)
    assert 10**0.8 == pytest.approx(6.310, abs=1e-3)


def test_sparse_penalty_with_q_one_is_the_sum_of_probabilities():
    logits, _ = make_logits()
    np.testing.assert_allclose(sparse_penalty(logits, q=1.0), 1, rtol=1e-6)


def test_sparse_penalty_with_small_q_counts_the_classes():
    logits, _ = make_logits()
    np.testing.assert_allclose(sparse_penalty(logits, q=1e-9), 5, rtol=1e-6)


def test_sparse_penalty_pulls_towards_the_likeliest_class():
    logits, _ = make_logits()
    pull = -slope(sparse_penalty, logits)
    assert (pull.argmax(axis=1) == logits.argmax(axis=1)).all()


def test_sparse_penalty_has_the_slope_of_its_unclipped_entries_alone():
    logits = np.array([[1.0, 0.0, -1.0, -30.0]])
    p = slow_softmax(logits)[0]
    of_p = np.where(p > 1e-7, 0.2 * p**-0.8, 0)  # d penalty / d p
    expected = p * (of_p - p @ of_p)
    np.testing.assert_allclose(slope(sparse_penalty, logits)[0], expected, rtol=1e-9)


def test_sparse_penalty_of_a_certain_prediction_has_no_slope():
    np.testing.assert_array_equal(slope(sparse_penalty, certain(10)), 0)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_extreme_logits_give_finite_values_and_slopes(dtype):
    logits, labels = jnp.asarray(EXTREME, dtype), jnp.array([1, 0, 3])
    each = {"sparse": (sparse_penalty,)} | {name: (f, labels) for name, f in LOSSES.items()}
    for name, (loss, *given) in each.items():
        value, gradient = jax.jit(loss)(logits, *given), slope(loss, logits, *given)
        assert value.shape == (3,), name
        assert value.dtype == gradient.dtype == dtype, name
        assert np.isfinite(np.asarray(value, float)).all(), name
        assert np.isfinite(np.asarray(gradient, float)).all(), name
