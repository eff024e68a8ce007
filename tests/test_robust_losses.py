"""Robust losses: in slow NumPy, at their limits, and where numbers are extreme."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fakes import softmax

from spr_jax import losses
from spr_jax.losses import cross_entropy
from spr_jax.methods.sparse_regularization import sharpen

B, C = 6, 5
A = np.log(1e-4)
ALL_PAIRS = [(active, passive) for active in ("nce", "nfl") for passive in ("mae", "rce")]


def make_logits(seed=0):
    generator = np.random.default_rng(seed)
    return 3 * generator.standard_normal((B, C)), generator.integers(0, C, B)


LOGITS, LABELS = make_logits()
P = softmax(LOGITS)
OF_LABEL = P[np.arange(B), LABELS]
ONE_HOT = np.eye(C)[LABELS]
TO_LABEL = P - ONE_HOT  # the slope of cross-entropy


def slope(loss, logits=LOGITS, labels=LABELS):
    return jax.jit(jax.grad(lambda logits: loss(logits, labels).sum()))(logits)


def over_labels(loss):
    """Sum of a loss over all labels that an example might have."""
    every = np.repeat(np.arange(C), B)
    return jax.jit(loss)(np.tile(LOGITS, (C, 1)), every).reshape(C, B).sum(axis=0)


def slow_apl(p, label, active, passive, alpha, beta, gamma):
    weigh = lambda p: (1 - p) ** gamma if active == "nfl" else 1  # noqa: E731
    share = weigh(p[label]) * np.log(p[label]) / sum(weigh(each) * np.log(each) for each in p)
    return alpha * share + beta * (1 if passive == "mae" else -A) * (1 - p[label])


def slow_reverse(p, label):
    return -sum(p[k] * np.log(1 if k == label else 1e-4) for k in range(C))


def slow_bootstrap(p, label, beta, belief):
    target = beta * np.eye(C)[label] + (1 - beta) * belief
    return -sum(target * np.log(p))


MATRIX = np.random.default_rng(1).dirichlet(np.ones(C), C)
SLOW = {
    "focal": (partial(losses.focal, gamma=2.0), lambda p, y: -((1 - p[y]) ** 2) * np.log(p[y])),
    "gce": (
        partial(losses.generalized_cross_entropy, q=0.4),
        lambda p, y: (1 - p[y] ** 0.4) / 0.4,
    ),
    "absolute": (losses.absolute_error, lambda p, y: abs(p - np.eye(C)[y]).sum() / 2),
    "sce": (
        partial(losses.symmetric_cross_entropy, alpha=0.3, beta=2.0),
        lambda p, y: -0.3 * np.log(p[y]) + 2 * slow_reverse(p, y),
    ),
    "hard": (
        partial(losses.bootstrap, beta=0.7),
        lambda p, y: slow_bootstrap(p, y, 0.7, np.eye(C)[np.argmax(p)]),
    ),
    "soft": (
        partial(losses.bootstrap, kind="soft", beta=0.9),
        lambda p, y: slow_bootstrap(p, y, 0.9, p),
    ),
    "forward": (
        partial(losses.forward_corrected, matrix=MATRIX),
        lambda p, y: -np.log(sum(p[j] * MATRIX[j, y] for j in range(C))),
    ),
    "negative": (losses.negative_learning, lambda p, y: -np.log(1 - p[y])),
} | {
    "+".join(pair): (
        partial(losses.active_passive, active=pair[0], passive=pair[1], alpha=3, beta=2, gamma=0.7),
        partial(slow_apl, active=pair[0], passive=pair[1], alpha=3, beta=2, gamma=0.7),
    )
    for pair in ALL_PAIRS
}


def values_and_slopes(table, logits, labels):
    """Of all losses of a table, compiled at once."""

    def one(loss):
        value, pull_back = jax.vjp(lambda logits: loss(logits, labels), logits)
        return value, pull_back(jnp.ones_like(value))[0]

    return jax.jit(lambda: {name: one(loss) for name, loss in table.items()})()


def test_losses_in_slow_numpy():
    fast = values_and_slopes({name: fast for name, (fast, _) in SLOW.items()}, LOGITS, LABELS)
    for name, (_, slow) in SLOW.items():
        expected = [slow(p, label) for p, label in zip(P, LABELS, strict=True)]
        np.testing.assert_allclose(fast[name][0], expected, rtol=1e-6, err_msg=name)


IS_CE = {
    "focal": partial(losses.focal, gamma=0.0),
    "focal, not detached": partial(losses.focal, gamma=0.0, detach=False),
    "gce": partial(losses.generalized_cross_entropy, q=1e-7),
    "sce": partial(losses.symmetric_cross_entropy, alpha=1.0, beta=0.0),
    "hard": partial(losses.bootstrap, beta=1.0),
    "soft": partial(losses.bootstrap, kind="soft", beta=1.0),
    "forward": partial(losses.forward_corrected, matrix=jnp.eye(C)),
}


def test_limits_are_cross_entropy():
    """In values and slopes."""
    for name, (value, gradient) in values_and_slopes(IS_CE, LOGITS, LABELS).items():
        np.testing.assert_allclose(value, -np.log(OF_LABEL), rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(gradient, TO_LABEL, atol=1e-5, err_msg=name)


def test_gce_with_q_one_is_absolute_error():
    found = losses.generalized_cross_entropy(LOGITS, LABELS, q=1.0)
    np.testing.assert_allclose(found, 1 - OF_LABEL, rtol=1e-12)


def test_gce_has_the_slope_of_cross_entropy_times_p_to_the_q():
    found = slope(partial(losses.generalized_cross_entropy, q=0.7))
    np.testing.assert_allclose(found, OF_LABEL[:, None] ** 0.7 * TO_LABEL, rtol=1e-9)


def test_gce_is_between_its_bounds_summed_over_labels():
    q = 0.7
    total = over_labels(partial(losses.generalized_cross_entropy, q=q))
    assert (total > (C - C ** (1 - q)) / q).all() and (total < (C - 1) / q).all()


def test_detached_focal_has_the_slope_of_cross_entropy_times_its_weight():
    found = slope(partial(losses.focal, gamma=0.5))
    np.testing.assert_allclose(found, (1 - OF_LABEL[:, None]) ** 0.5 * TO_LABEL, rtol=1e-9)


def test_exact_focal_has_the_slope_of_both_factors():
    """((1 - p)^g - g (1 - p)^(g - 1) p log p) (p_k - e_k)."""
    p, g = OF_LABEL[:, None], 0.5
    expected = ((1 - p) ** g - g * (1 - p) ** (g - 1) * p * np.log(p)) * TO_LABEL
    np.testing.assert_allclose(
        slope(partial(losses.focal, gamma=g, detach=False)), expected, rtol=1e-9
    )


@pytest.mark.parametrize(
    ("loss", "total"),
    [
        (losses.normalized_focal, 1),
        (partial(losses.normalized_focal, gamma=0), 1),
        (losses.absolute_error, C - 1),
        (partial(losses.symmetric_cross_entropy, alpha=0.0), -A * (C - 1)),
    ],
)
def test_symmetric_loss_has_a_constant_sum_over_labels(loss, total):
    np.testing.assert_allclose(over_labels(loss), total, rtol=1e-9)


def test_released_log_zero_is_the_default():
    assert losses.LOG_ZERO == pytest.approx(-9.2103, abs=1e-4)
    found = losses.symmetric_cross_entropy(LOGITS, LABELS, alpha=0.0, log_zero=-4.0)
    np.testing.assert_allclose(found, 4 * (1 - OF_LABEL), rtol=1e-9)


def test_passive_parts_of_apl_differ_by_a_factor():
    rce, mae = (
        slope(partial(losses.active_passive, passive=passive, alpha=0.0))
        for passive in ("rce", "mae")
    )
    np.testing.assert_allclose(rce, -A * mae, rtol=1e-9)


def test_nfl_takes_its_weights_for_constants():
    weights = (1 - P) ** 0.5

    def by_hand(logits, labels):
        each = weights * jax.nn.log_softmax(logits)
        return each[jnp.arange(B), labels] / each.sum(axis=1)

    np.testing.assert_allclose(slope(losses.normalized_focal), slope(by_hand), rtol=1e-6)


def test_hard_bootstrap_of_the_likeliest_class_is_cross_entropy():
    likeliest = LOGITS.argmax(axis=1)
    found = losses.bootstrap(LOGITS, likeliest, beta=0.3)
    np.testing.assert_allclose(found, cross_entropy(LOGITS, likeliest), rtol=1e-12)


def test_soft_bootstrap_has_the_slope_of_the_entropy_too():
    entropy = -(P * np.log(P)).sum(axis=1, keepdims=True)
    expected = 0.9 * TO_LABEL - 0.1 * P * (np.log(P) + entropy)
    found = slope(partial(losses.bootstrap, kind="soft", beta=0.9))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_forward_with_symmetric_noise_is_bounded():
    rate = 0.4
    matrix = np.full((C, C), rate / (C - 1)) + (1 - rate - rate / (C - 1)) * np.eye(C)
    sure = np.array([[1e3, 0, 0, 0, 0]] * 2)
    found = losses.forward_corrected(sure, np.array([0, 1]), matrix)
    np.testing.assert_allclose(found, [-np.log(1 - rate), -np.log(rate / (C - 1))], rtol=1e-9)


def test_forward_with_a_label_that_no_class_can_have_is_finite():
    matrix = np.eye(C)[[0, 1, 2, 3, 3]]
    found = losses.forward_corrected(LOGITS, np.full(B, 4), matrix)
    assert (found > 30).all() and np.isfinite(found).all()


def test_negative_learning_has_its_closed_form_slope():
    """p on the complementary label, -p p_j / (1 - p) on every other one."""
    p = OF_LABEL[:, None]
    expected = np.where(ONE_HOT, p, -p * P / (1 - p))
    np.testing.assert_allclose(slope(losses.negative_learning), expected, rtol=1e-9)
    np.testing.assert_allclose(expected.sum(axis=1), 0, atol=1e-12)


def test_negative_learning_of_a_sure_mistake_is_limited():
    found = losses.negative_learning(jnp.array([[1e3, 0.0]]), jnp.array([0]))
    assert found[0] == pytest.approx(-np.log(1e-5))


EXTREME = np.array([[1e4, -1e4, 0, 0, 0], [-1e4, 1e4, 1e4, 0, 1], [0, 0, 0, 0, 0]] * 2)
FINITE = {name: fast for name, (fast, _) in SLOW.items()} | {
    "focal, not detached": partial(losses.focal, detach=False),
    "gce of tiny q": partial(losses.generalized_cross_entropy, q=1e-3),
    "forward, identity": partial(losses.forward_corrected, matrix=jnp.eye(C)),
    "unit logits": lambda z, y: cross_entropy(sharpen(z, 0.1, normalize=True), y),
}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_extreme_logits_give_finite_values_and_slopes(dtype):
    found = values_and_slopes(FINITE, jnp.asarray(EXTREME, dtype), jnp.array([0, 1, 3, 1, 0, 2]))
    for name, (value, gradient) in found.items():
        assert value.dtype == gradient.dtype == dtype, name
        assert np.isfinite(np.asarray(value, float)).all(), name
        assert np.isfinite(np.asarray(gradient, float)).all(), name
