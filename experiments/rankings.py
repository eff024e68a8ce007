"""Rankings of labels by how suspect they are: SPR's path, and its alternatives.

A ranking is a nonnegative score for each example, larger for more suspect labels. On
orthonormal features Q [n, p] with H = Q Q' and one-hot labels Y [n, c], e = Y - H Y:

    residual      ||e_i||
    studentised   ||t_i||,  t_ik = e_ik / (s_k(-i) sqrt(1 - h_i)),  h_i = ||q_i||^2

where s_k(-i) is the deviation of column k without example i: the residual of a fit that has not
seen the example, in units of its standard deviation.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.linear_model import LogisticRegression

from spr_jax.devices import device_mesh
from spr_jax.solver import CleanSet, Options, clean_set, plan_pieces
from spr_jax.solver.label_noise import label_noise
from spr_jax.solver.pieces import cut_pieces
from spr_jax.solver.top_share import keep_lowest

Ranking = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (basis [n, p], labels [n]) -> [n]
TINY = 1e-12


def orthonormal(features: np.ndarray, dim: int, *, intercept: bool) -> np.ndarray:
    """Orthonormal basis [n, p] of the leading principal components, and of the intercept."""
    centred = features - features.mean(axis=0, dtype=np.float64)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    varies = values[:dim] > values[0] * len(features) * np.finfo(np.float64).eps
    basis = left[:, :dim][:, varies]
    constant = np.full((len(features), int(intercept)), len(features) ** -0.5)
    return np.hstack([basis, constant])


def residuals(basis: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """e = (I - H) Y, [n, classes that occur]."""
    targets = (labels[:, None] == np.unique(labels)).astype(np.float64)
    return targets - basis @ (basis.T @ targets)


def by_residual(basis: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.linalg.norm(residuals(basis, labels), axis=1)


def by_studentised_residual(basis: np.ndarray, labels: np.ndarray) -> np.ndarray:
    square = residuals(basis, labels) ** 2
    slack = np.maximum(1 - np.sum(basis**2, axis=1, keepdims=True), TINY)
    without = np.sum(square, axis=0) - square / slack  # residual sum of squares, example i left out
    variance = np.maximum(without, TINY) / (len(labels) - basis.shape[1] - 1)
    return np.sqrt(np.sum(square / slack / variance, axis=1))


def by_linear_loss(basis: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Cross-entropy of a linear softmax fit to the given labels: small loss, without a network."""
    scores = basis * np.sqrt(len(basis))  # of unit variance
    fit = LogisticRegression(max_iter=1000).fit(scores, labels)
    own = np.searchsorted(fit.classes_, labels)
    return np.abs(fit.predict_log_proba(scores)[np.arange(len(labels)), own])


def by_noise_model(features: np.ndarray, labels: np.ndarray, dim: int) -> np.ndarray:
    """The probability that a label is wrong. The model makes its own basis, with an intercept."""
    options = {"num_classes": int(labels.max()) + 1, "pca_dim": dim, "intervals": False}
    return np.asarray(label_noise(jnp.asarray(features), jnp.asarray(labels), **options).wrong)


def solve(
    features: np.ndarray,
    labels: np.ndarray,
    per_class: int | None,  # None: whole data
    dim: int,
    *,
    seed: int = 0,
) -> CleanSet:
    """SPR with half of each piece kept."""
    mesh = device_mesh()
    plan = plan_pieces(labels, per_class=per_class, multiple_of=mesh.size * _spare(per_class))
    # As in find_label_errors: balanced pieces need no intercept.
    options = Options(pca_dim=dim, intercept=per_class is None)
    data = jnp.asarray(features), jnp.asarray(labels), jax.random.key(seed)
    return jax.device_get(clean_set(*data, plan=plan, options=options, mesh=mesh))


def _spare(per_class):
    """A factor that pads pieces with empty ones, so that similar label sets share a program."""
    return 8 if per_class and per_class <= 50 else 1


def tables_of_pieces(labels: np.ndarray, per_class: int, seed: int = 0) -> list[np.ndarray]:
    """The examples of each piece that `solve` makes with this seed."""
    plan = plan_pieces(labels, per_class=per_class)
    groups = jnp.arange(plan.num_classes)[None]
    pieces = cut_pieces(jnp.asarray(labels), groups, jax.random.key(seed), plan)
    return [index[index >= 0] for index in np.asarray(pieces.index)]


def in_pieces(
    ranking: Ranking,
    features: np.ndarray,
    labels: np.ndarray,
    per_class: int,
    dim: int,
    seed: int = 0,
) -> np.ndarray:
    """Rank within the pieces of `solve`; an example in several pieces gets its lowest score."""
    lowest = np.full(len(labels), np.inf)
    for index in tables_of_pieces(labels, per_class, seed):
        basis = orthonormal(features[index], dim, intercept=False)
        np.minimum.at(lowest, index, ranking(basis, labels[index]))
    return lowest


def keep_share(score: np.ndarray, labels: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Mask [n] of the least suspect `share` [c] of each class."""
    everyone = jnp.ones(len(labels), bool)
    return np.asarray(_keep_lowest(jnp.asarray(score), labels, everyone, jnp.asarray(share)))


_keep_lowest = jax.jit(keep_lowest)


def share_of_right(right: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Fraction of correct labels in each given class, [c]; this needs the true labels."""
    return np.bincount(labels, right) / np.maximum(np.bincount(labels), 1)
