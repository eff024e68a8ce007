"""Scores of a kernel regression, for classes that are not linear in the features.

A ridge regression of the one-hot labels on a lift of the features,

    min_B  sum_i ||y_i - B phi(x_i)||^2 + penalty ||B||^2,
    phi(x) = [(k(z, l_1), ..., k(z, l_m)) W^(-1/2), z / r],
    k(z, l) = exp(-||z - l||^2 / (2 width)),

where z are the leading principal coordinates of x, r their root mean square, l_j some of the
examples (Nystroem's landmarks) and W the kernel of the landmarks with each other. Width and penalty
are those that predict the given labels best, each label from a fit without it: with h_i the
leverage of example i, its residual in that fit is (y_i - f_i) / (1 - h_i).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from spr_jax.solver.basis import point_nearby, principal_basis
from spr_jax.solver.blocks import blocks_of, sum_and_stack

MOST_DIMS = 128  # principal coordinates; at most, a quarter of the number of examples
MOST_LANDMARKS = 300  # the cost grows with their square
TRIAL_ROWS = 3000  # on which the width is chosen
WIDTHS = (1.0, 3.0, 9.0)  # times the usual squared distance to the NEIGHBOR-th landmark
NEIGHBOR = 10
PENALTIES = tuple(10 ** (-0.5 - 0.5 * step) for step in range(9))  # times the number of examples
MOST_FREEDOM = 1 / 3  # degrees of freedom per example; beyond, an example explains itself
JITTER = 1e-5  # relative to the kernel of a point with itself


class Prediction(NamedTuple):
    error: Array  # [], mean squared error of the labels left out
    scores: Array  # [N, c], predictions without the example's own label


def kernel_scores(features: Array, labels: Array, num_classes: int) -> Array:
    """Fit each example from all others, [c, N], of mean zero and unit mean square."""
    n = len(labels)
    dim = max(min(MOST_DIMS, n // 4, features.shape[1]), 1)
    coordinates = principal_coordinates(features, dim)
    targets = jax.nn.one_hot(labels, num_classes, dtype=coordinates.dtype)
    order = jax.random.permutation(jax.random.key(1), n)
    landmarks = coordinates[order[:MOST_LANDMARKS]]
    trial, trial_targets = coordinates[order[:TRIAL_ROWS]], targets[order[:TRIAL_ROWS]]
    nearby = -lax.top_k(-_squared_distances(trial, landmarks), min(NEIGHBOR, len(landmarks)))[0]
    widths = jnp.median(nearby[:, -1]) * jnp.array(WIDTHS, coordinates.dtype)
    widths = jnp.maximum(widths, jnp.finfo(coordinates.dtype).tiny)
    errors = lax.map(lambda width: fit(trial, landmarks, width, trial_targets).error, widths)
    width = widths[jnp.argmin(errors)]
    return normalized(fit(coordinates, landmarks, width, targets).scores.T)


def normalized(scores: Array) -> Array:  # [c, N]
    """Scores of mean zero for each class and of unit mean square; zero if there is no signal."""
    scores -= scores.mean(axis=1, keepdims=True)
    size = jnp.sqrt(jnp.mean(scores**2))
    # Constant features leave what leaving one out makes of the class frequencies.
    is_signal = size > 0.1 * scores.shape[1] ** -0.5
    return jnp.where(is_signal, scores / jnp.where(is_signal, size, 1), 0)


def principal_coordinates(features: Array, dim: int) -> Array:
    """The leading principal component scores, [N, dim], in the scale of the features."""
    used = jnp.ones(len(features), bool)
    origin = point_nearby(features, used)
    basis = principal_basis(features, None, used, dim, origin=origin)  # [blocks, dim, m]
    blocks = blocks_of(len(features))

    def lengths(basis, start, fresh):
        rows = lax.dynamic_slice_in_dim(features, start, blocks.length) - origin
        return (basis * fresh) @ rows, None

    where = jnp.asarray(blocks.starts), jnp.asarray(blocks.fresh)
    along = sum_and_stack(lengths, (basis, *where))[0]  # Q X = S V', row by row
    size = jnp.sqrt(jnp.sum(along**2, axis=1))
    return (jax.vmap(blocks.join, in_axes=1)(basis) * size[:, None]).T


def fit(coordinates: Array, landmarks: Array, width: Array, targets: Array) -> Prediction:
    """Fit at the best of the penalties; predict every example from the others."""
    n = len(coordinates)
    lifted = lift(coordinates, landmarks, width)
    lifted -= lifted.mean(axis=0)
    values, vectors = jnp.linalg.eigh(lifted.T @ lifted)
    kept = values > values[-1] * len(values) * jnp.finfo(values.dtype).eps
    scale = jnp.where(kept, lax.rsqrt(jnp.where(kept, values, 1)), 0)
    basis = lifted @ (vectors * scale)  # [N, k], orthonormal columns, orthogonal to the constant
    frequency = targets.mean(axis=0)
    coefficients = basis.T @ targets

    def leave_out(penalty):
        shrink = jnp.where(kept, values / (values + penalty * n), 0)
        fitted = frequency + basis @ (shrink[:, None] * coefficients)
        leverage = 1 / n + basis**2 @ shrink
        residual = (targets - fitted) / jnp.maximum(1 - leverage, 0.1)[:, None]
        too_free = shrink.sum() > MOST_FREEDOM * n
        error = jnp.where(too_free, jnp.inf, jnp.mean(jnp.sum(residual**2, axis=1)))
        return Prediction(error, targets - residual)

    penalties = jnp.array(PENALTIES, coordinates.dtype)
    errors = lax.map(lambda penalty: leave_out(penalty).error, penalties)
    best = leave_out(penalties[jnp.argmin(errors)])
    return best._replace(error=errors.min())


def lift(coordinates: Array, landmarks: Array, width: Array) -> Array:
    """phi, [N, m + p]."""
    between = jnp.exp(_squared_distances(landmarks, landmarks) / (-2 * width))
    jitter = JITTER * jnp.eye(len(landmarks), dtype=between.dtype)
    values, vectors = jnp.linalg.eigh(between + jitter)
    root = vectors * lax.rsqrt(jnp.maximum(values, JITTER))
    kernel = jnp.exp(_squared_distances(coordinates, landmarks) / (-2 * width))
    length = jnp.sqrt(jnp.mean(jnp.sum(coordinates**2, axis=1)))
    linear = coordinates / jnp.where(length > 0, length, 1)
    return jnp.concatenate([kernel @ root, linear], axis=1)


def _squared_distances(rows, others):
    """[N, m]; rounding must not make them negative."""
    lengths = jnp.sum(rows**2, axis=1)[:, None] + jnp.sum(others**2, axis=1)
    return jnp.maximum(lengths - 2 * rows @ others.T, 0)
