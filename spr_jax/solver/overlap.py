"""How much classes overlap, judged by where examples lie and hardly by their labels.

Wrong labels near a border and classes that overlap there give the same labels, but not the same
places: classes that overlap have many examples between them, classes that do not have a gap. So the
scores z of an example, which place it among the classes, are taken to be Gaussian in each class,

    P(z, y) = sum_t pi_t N(z; mu_t, Sigma) T[t, y],

a model in which labels may be wrong anywhere, fitted by EM. Its P(t | z) says how sure the places
are about the class, and hardly heeds the labels: on most of 30 development sources its mean entropy
G moved little when 20 % of the labels were made wrong, near borders or elsewhere. It is too sure,
as scores are not Gaussian, and the more so the more classes there are. By a regression over those
sources with correct labels, c classes of the entropy G by their places have about

    H = 0.95 (G + 0.001)^0.73 min(c, 10)^0.44

by their labels, within a factor of two for most sources. ALLOWANCE times that is taken: correct
labels near a border that are called wrong are worse than errors there that are missed.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

MOST_ROWS = 2000  # the entropy is a mean; more rows change it less than the regression errs
MOST_DIMS = 512  # of the places; a random projection to these keeps distances
STEPS = 20
CORRECT_AT_FIRST = 0.7  # responsibility of the given class
LABELS_BEFORE = 2.0  # examples that say, before all others, that labels are usually correct
SMALLEST = 1e-4  # relative to the largest eigenvalue; directions below it are rounding
FACTOR, LEAST, EXPONENT = 0.955, 0.001, 0.731
MOST_CLASSES, CLASSES_EXPONENT = 10, 0.437
ALLOWANCE = 1.3


def usual_overlap(scores: Array, labels: Array) -> Array:
    """Estimate the mean entropy of P(t | x), in nats, from scores [views, c, n]."""
    by_classes = min(scores.shape[1], MOST_CLASSES) ** CLASSES_EXPONENT
    by_places = (entropy_of_places(scores, labels) + LEAST) ** EXPONENT
    return ALLOWANCE * FACTOR * by_places * by_classes


def entropy_of_places(scores: Array, labels: Array) -> Array:
    """Mean entropy of P(t | z) of Gaussian classes, []."""
    scores, labels = scores[..., :MOST_ROWS], labels[:MOST_ROWS]
    num_views, c, n = scores.shape
    places = scores.reshape(num_views * c, n).T
    if num_views * c > MOST_DIMS:  # very many classes: their scores lie in fewer dimensions
        places @= jax.random.normal(jax.random.key(3), (num_views * c, MOST_DIMS), places.dtype)
    places = _white(places)
    given = jax.nn.one_hot(labels, c, dtype=places.dtype)
    total = places.T @ places
    ridge = 1e-3 * jnp.eye(places.shape[1], dtype=places.dtype)
    believed = LABELS_BEFORE * (0.9 * jnp.eye(c, dtype=places.dtype) + 0.1 / c)

    def step(_, posterior):  # P(t | z, y), [n, c]
        size = posterior.sum(axis=0) + 1e-6
        means = posterior.T @ places / size[:, None]
        within = (total - (means.T * size) @ means) / n + ridge
        solved = jnp.linalg.solve(within, means.T)  # [k, c]
        logits = places @ solved - jnp.sum(means.T * solved, axis=0) / 2
        logits += jnp.log((size + 1) / (n + c))
        by_place = jax.nn.softmax(logits, axis=1)
        transition = posterior.T @ given + believed
        transition /= transition.sum(axis=1, keepdims=True)
        both = by_place * transition[:, labels].T
        return both / (both.sum(axis=1, keepdims=True) + 1e-30), by_place

    start = (1 - CORRECT_AT_FIRST) / max(c - 1, 1) * (1 - given) + CORRECT_AT_FIRST * given
    _, by_place = lax.fori_loop(0, STEPS, lambda i, both: step(i, both[0]), (start, start))
    return jnp.mean(jnp.sum(jax.scipy.special.entr(by_place), axis=1))


def _white(places):
    """Rotate and scale rows [n, k] so that columns are uncorrelated, of unit variance or zero."""
    centered = places - places.mean(axis=0)
    values, vectors = jnp.linalg.eigh(centered.T @ centered / len(places))
    kept = values > SMALLEST * values[-1]
    return centered @ (vectors * jnp.where(kept, lax.rsqrt(jnp.where(kept, values, 1)), 0))
