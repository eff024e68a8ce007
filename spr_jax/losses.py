"""Losses, one value for each example, never averaged. Shapes: logits [b, c], labels [b].

All are computed from log p, which stays finite however large the logits are: 1 - p is
-expm1(log p), and p^q is exp(q log p).
"""

import math

import jax
import jax.numpy as jnp
from jax import Array

LOG_ZERO = math.log(1e-4)  # stands for log 0; the papers write -4, all released codes have this


def log_probability(logits: Array, labels: Array) -> Array:
    """log p of the label, [b]."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)[:, 0]


def cross_entropy(logits: Array, labels: Array) -> Array:
    """-log p of the label, [b]."""
    return -log_probability(logits, labels)


def focal(logits: Array, labels: Array, *, gamma: float = 0.5, detach: bool = True) -> Array:
    """(1 - p)^gamma (-log p): cross-entropy at gamma = 0, less weight on easy examples above.

    Args:
        logits: [b, c].
        labels: [b].
        gamma: how much less weight easy examples get.
        detach: treat the weight as a constant, as released with SR and APL.

    References:
        Lin et al., 2017, https://arxiv.org/abs/1708.02002, Eq. 4.
    """
    log_p = log_probability(logits, labels)
    weight = _difficulty(log_p, gamma)
    return -log_p * (jax.lax.stop_gradient(weight) if detach else weight)


def _difficulty(log_p, gamma):
    """(1 - p)^gamma, without gradient where 1 - p < 1e-7: for gamma < 1 it has a pole at 0."""
    return jnp.clip(-jnp.expm1(log_p), 1e-7, 1) ** gamma


def generalized_cross_entropy(logits: Array, labels: Array, *, q: float = 0.7) -> Array:
    """(1 - p^q) / q: cross-entropy as q -> 0, absolute error at q = 1.

    Args:
        logits: [b, c].
        labels: [b].
        q: from 0, cross-entropy, to 1, the most robust.

    References:
        Zhang and Sabuncu, 2018, https://arxiv.org/abs/1805.07836, Eq. 6.
    """
    return -jnp.expm1(q * log_probability(logits, labels)) / q


def absolute_error(logits: Array, labels: Array) -> Array:
    """1 - p: half of the l1 distance between prediction and one-hot label."""
    return -jnp.expm1(log_probability(logits, labels))


def symmetric_cross_entropy(
    logits: Array,
    labels: Array,
    *,
    alpha: float = 0.1,
    beta: float = 1.0,
    log_zero: float = LOG_ZERO,
) -> Array:
    """alpha CE + beta RCE, where the reverse one swaps prediction and one-hot label.

    RCE = -sum_k p_k log e_k = -log_zero (1 - p) if log 0 counts as `log_zero`.

    Args:
        logits: [b, c].
        labels: [b].
        alpha: weight of cross-entropy.
        beta: weight of reverse cross-entropy.
        log_zero: value that stands for log 0.

    References:
        Wang et al., 2019, https://arxiv.org/abs/1908.06112.
    """
    reverse = -log_zero * absolute_error(logits, labels)
    return alpha * cross_entropy(logits, labels) + beta * reverse


def normalized_focal(logits: Array, labels: Array, *, gamma: float = 0.5) -> Array:
    """Focal loss of the label divided by the sum of it over all labels; NCE at gamma = 0.

    Ma et al., 2020, https://arxiv.org/abs/2006.13554; the weights are constants, as released.
    """
    log_p = jax.nn.log_softmax(logits)
    each = jax.lax.stop_gradient(_difficulty(log_p, gamma)) * log_p  # [b, c]
    picked = jnp.take_along_axis(each, labels[:, None], axis=1)[:, 0]
    return picked / each.sum(axis=1)


ACTIVE = ("nce", "nfl")
PASSIVE = {"mae": 1.0, "rce": -LOG_ZERO}  # times 1 - p


def active_passive(
    logits: Array,
    labels: Array,
    *,
    active: str = "nce",
    passive: str = "rce",
    alpha: float = 1.0,
    beta: float = 1.0,
    gamma: float = 0.5,
) -> Array:
    """alpha * active + beta * passive: one raises the label's p, one lowers all others.

    Args:
        logits: [b, c].
        labels: [b].
        active: "nce" (normalized cross-entropy) or "nfl" (normalized focal loss).
        passive: "rce" (reverse cross-entropy) or "mae" (absolute error).
        alpha: weight of the active loss.
        beta: weight of the passive loss.
        gamma: that of "nfl".

    References:
        Ma et al., 2020, https://arxiv.org/abs/2006.13554.
    """
    normalized = normalized_focal(logits, labels, gamma=gamma if active == "nfl" else 0)
    return alpha * normalized + beta * PASSIVE[passive] * absolute_error(logits, labels)


def bootstrap(logits: Array, labels: Array, *, kind: str = "hard", beta: float = 0.8) -> Array:
    """Cross-entropy with the target beta * label + (1 - beta) * prediction.

    Args:
        logits: [b, c].
        labels: [b].
        kind: the prediction is the most probable class ("hard") or p, with its gradient ("soft").
        beta: weight of the label; 0.95 is usual for "soft".

    References:
        Reed et al., 2015, https://arxiv.org/abs/1412.6596.
    """
    log_p = jax.nn.log_softmax(logits)
    if kind == "hard":
        own = cross_entropy(logits, jnp.argmax(logits, axis=1))
    else:
        own = -jnp.sum(jnp.exp(log_p) * log_p, axis=1)
    return beta * cross_entropy(logits, labels) + (1 - beta) * own


def forward_corrected(logits: Array, labels: Array, matrix: Array) -> Array:
    """-log sum_j p_j T_jy, where T_jk is the probability that class j is labeled k.

    Patrini et al., 2017, https://arxiv.org/abs/1609.03683.
    """
    log_matrix = jnp.log(jnp.maximum(matrix, 1e-30)).astype(logits.dtype)
    return -jax.nn.logsumexp(jax.nn.log_softmax(logits) + log_matrix.T[labels], axis=1)


def negative_learning(logits: Array, complementary: Array) -> Array:
    """-log(1 - p) of a label that the example is said not to have.

    Kim et al., 2019, https://arxiv.org/abs/1908.07387. No gradient where 1 - p < 1e-5, as released.
    """
    return -jnp.log(jnp.clip(absolute_error(logits, complementary), 1e-5, 1))


def overparameterized(
    logits: Array,
    labels: Array,
    u: Array,  # [b]
    v: Array,  # [b, c]
) -> tuple[Array, Array]:
    """Cross-entropy in which U = u^2 e_y and V = v^2 (1 - e_y) explain a wrong label, and a square.

    -log q_y of q ~ max(p + U - V, 1e-4), V constant, and |onehot(argmax p) + U - V - e_y|^2, in
    which the logits have no slope. U and V are cut at 1.

    Liu et al., 2022, https://arxiv.org/abs/2202.14026.
    """
    given, hard = (
        jax.nn.one_hot(those, v.shape[1], dtype=v.dtype)
        for those in (labels, jnp.argmax(logits, axis=1))
    )
    plus, minus = jnp.clip(u[:, None] ** 2 * given, 0, 1), jnp.clip(v**2 * (1 - given), 0, 1)
    q = jnp.maximum(jax.nn.softmax(logits) + plus - jax.lax.stop_gradient(minus), 1e-4)
    of_label = jnp.take_along_axis(q, labels[:, None], axis=1)[:, 0]
    corrected = jnp.log(q.sum(axis=1)) - jnp.log(of_label)
    return corrected, jnp.sum((hard + plus - minus - given) ** 2, axis=1)


def kl_divergence(logits: Array, other_logits: Array) -> Array:
    """sum_k p_k log(p_k / q_k) of two predictions, [b]."""
    log_p, log_q = jax.nn.log_softmax(logits), jax.nn.log_softmax(other_logits)
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=1)


def sparse_penalty(logits: Array, *, q: float = 0.2) -> Array:
    """sum_k p_k^q: from 1, for a prediction that is certain of one class, to c^(1-q).

    Probabilities below 1e-7 count as 1e-7 and carry no gradient, as released; otherwise the
    gradient of p^q has a pole at 0. For ten classes and q = 0.2 the smallest value is then 1.36.
    There is no outer root.
    """
    return jnp.sum(jnp.clip(jax.nn.softmax(logits), 1e-7, 1) ** q, axis=1)


def sparse_norm(logits: Array, *, q: float = 0.2) -> Array:
    """(sum_k |z_k|^q)^(1/q) of the logits themselves: the penalty as in the paper's text.

    Magnitudes below 1e-7 count as 1e-7, for the same reason. It grows with the logits without
    bound, and for small q very fast.
    """
    return jnp.sum(jnp.clip(jnp.abs(logits), 1e-7) ** q, axis=1) ** (1 / q)


LOSSES = {
    "ce": cross_entropy,
    "focal": focal,
    "gce": generalized_cross_entropy,
    "sce": symmetric_cross_entropy,
    "apl": active_passive,
    "bootstrap": bootstrap,
}
