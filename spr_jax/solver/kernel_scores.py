"""Scores of a kernel regression, for classes that are not linear in the features.

A ridge regression of the one-hot labels on a lift of the features,

    min_B  sum_i ||y_i - B phi(x_i)||^2 + penalty ||B||^2,
    phi(x) = [(k(z, l_1), ..., k(z, l_m)) W^(-1/2), z / r],
    k(z, l) = exp(-||z - l||^2 / (2 width)),

where z are the leading principal coordinates of x, r their root mean square, l_j some of the
examples (Nystroem's landmarks) and W the kernel of the landmarks with each other. Width and penalty
are those that predict the given labels best, each label from a fit without it: with h_i the
leverage of example i, its residual in that fit is (y_i - f_i) / (1 - h_i). With very many examples
some of them decide B, and the others are predicted with it, which leaves them out as well.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from spr_jax.solver.basis import Components
from spr_jax.solver.blocks import blocks_of

MOST_DIMS = 128  # principal coordinates; at most, a quarter of the number of examples
MOST_LANDMARKS = 300  # the cost grows with their square
TRIAL_ROWS = 2000  # on which the width is chosen
FIT_ROWS = 10_000  # which decide B; it has far fewer rows than these
WIDTHS = (1.0, 3.0, 9.0)  # times the usual squared distance to the NEIGHBOR-th landmark
NEIGHBOR = 10
LEAST_WIDTH = 0.03  # of the mean squared distance, where most examples have twins among landmarks
PENALTIES = tuple(10 ** (-0.5 - 0.5 * step) for step in range(9))  # times the number of examples
MOST_FREEDOM = 1 / 3  # degrees of freedom per example; beyond, an example explains itself
JITTER = 1e-5  # relative to the kernel of a point with itself


class Lift(NamedTuple):
    landmarks: Array  # [m, p]
    width: Array  # []
    root: Array  # [m, m], W^(-1/2)
    length: Array  # [], r


class Fit(NamedTuple):
    error: Array  # [], mean squared error of the labels left out
    left_out: Array  # [N, c], predictions without the example's own label
    weights: Array  # [m + p, c], B
    offset: Array  # [c]


def kernel_scores(components: Components, labels: Array, num_classes: int) -> Array:
    """Fit each example from all others, [c, N], of mean zero and unit mean square."""
    n = len(labels)
    coordinates = components.coordinates(n, max(min(MOST_DIMS, n // 4), 1))
    targets = jax.nn.one_hot(labels, num_classes, dtype=coordinates.dtype)
    rows = rows_to_fit(n)
    fitted, lift = fit_some(coordinates[rows], targets[rows])
    if n == len(rows):  # nothing is left to predict
        return normalized(jnp.zeros_like(targets).at[rows].set(fitted.left_out).T)
    scores = predict(fitted, lift, coordinates)
    return normalized(scores.at[rows].set(fitted.left_out).T)


def rows_to_fit(n: int) -> Array:
    """The rows that decide B, in random order."""
    return jax.random.permutation(jax.random.key(1), n)[:FIT_ROWS]


def fit_some(coordinates: Array, targets: Array) -> tuple[Fit, Lift]:
    """Choose landmarks and width, and fit these rows, which come in random order."""
    landmarks = coordinates[:MOST_LANDMARKS]
    trial, trial_targets = coordinates[:TRIAL_ROWS], targets[:TRIAL_ROWS]
    squared = _squared_distances(trial, landmarks)
    nearby = -lax.top_k(-squared, min(NEIGHBOR, len(landmarks)))[0]
    usual = jnp.maximum(jnp.median(nearby[:, -1]), LEAST_WIDTH * squared.mean())
    widths = jnp.maximum(usual, jnp.finfo(usual.dtype).tiny) * jnp.array(WIDTHS, usual.dtype)
    errors = lax.map(lambda width: fit(trial, landmarks, width, trial_targets).error, widths)
    width = widths[jnp.argmin(errors)]
    lift = lift_from(coordinates, landmarks, width)
    return fit(coordinates, landmarks, width, targets), lift


def normalized(scores: Array) -> Array:  # [c, N]
    """Scores of mean zero for each class and of unit mean square; zero if there is no signal."""
    scores -= scores.mean(axis=1, keepdims=True)
    size = jnp.sqrt(jnp.mean(scores**2))
    # Constant features leave what leaving one out makes of the class frequencies.
    is_signal = size > 0.1 * scores.shape[1] ** -0.5
    return jnp.where(is_signal, scores / jnp.where(is_signal, size, 1), 0)


def fit(coordinates: Array, landmarks: Array, width: Array, targets: Array) -> Fit:
    """Fit at the best of the penalties; predict every example from the others."""
    n = len(coordinates)
    lifted = lift(lift_from(coordinates, landmarks, width), coordinates)
    mean = lifted.mean(axis=0)
    lifted -= mean
    values, vectors = jnp.linalg.eigh(lifted.T @ lifted)
    kept = values > values[-1] * len(values) * jnp.finfo(values.dtype).eps
    scale = jnp.where(kept, lax.rsqrt(jnp.where(kept, values, 1)), 0)
    rotation = vectors * scale
    basis = lifted @ rotation  # [N, k], orthonormal columns, orthogonal to the constant
    frequency = targets.mean(axis=0)
    coefficients = basis.T @ targets

    shrinks = values / (values + n * jnp.array(PENALTIES, values.dtype)[:, None])
    shrinks = jnp.where(kept, shrinks, 0)  # [penalties, k]
    leverages = 1 / n + shrinks @ (basis**2).T

    def leave_out(shrink, leverage):
        fitted = frequency + basis @ (shrink[:, None] * coefficients)
        residual = (targets - fitted) / jnp.maximum(1 - leverage, 0.1)[:, None]
        too_free = shrink.sum() > MOST_FREEDOM * n
        error = jnp.where(too_free, jnp.inf, jnp.mean(jnp.sum(residual**2, axis=1)))
        return error, targets - residual

    errors = lax.map(lambda each: leave_out(*each)[0], (shrinks, leverages))
    best = jnp.argmin(errors)
    weights = rotation @ (shrinks[best][:, None] * coefficients)
    left_out = leave_out(shrinks[best], leverages[best])[1]
    return Fit(errors.min(), left_out, weights, frequency - mean @ weights)


def predict(fitted: Fit, lift: Lift, coordinates: Array) -> Array:
    """Scores of examples that the fit did not see, [N, c], some rows at a time."""
    blocks, predict_rows = blocks_of(len(coordinates)), predictor(fitted, lift)

    def scores(start):
        return predict_rows(lax.dynamic_slice_in_dim(coordinates, start, blocks.length)).T

    found = lax.map(scores, jnp.asarray(blocks.starts))  # [blocks, c, rows]
    return jax.vmap(blocks.join, in_axes=1, out_axes=1)(found)


def predictor(fitted: Fit, lift: Lift) -> Callable[[Array], Array]:
    """A function from coordinates [n, p] to scores [n, c]."""
    m = len(lift.landmarks)
    by_kernel = lift.root @ fitted.weights[:m]
    by_place = fitted.weights[m:] / lift.length
    return lambda rows: _kernel(rows, lift) @ by_kernel + rows @ by_place + fitted.offset


def lift_from(coordinates: Array, landmarks: Array, width: Array) -> Lift:
    """The lift by these landmarks, in the scale of these coordinates."""
    between = jnp.exp(_squared_distances(landmarks, landmarks) / (-2 * width))
    jitter = JITTER * jnp.eye(len(landmarks), dtype=between.dtype)
    values, vectors = jnp.linalg.eigh(between + jitter)
    root = vectors * lax.rsqrt(jnp.maximum(values, JITTER))
    length = jnp.sqrt(jnp.mean(jnp.sum(coordinates**2, axis=1)))
    return Lift(landmarks, width, root, jnp.where(length > 0, length, 1))


def lift(lift: Lift, coordinates: Array) -> Array:
    """phi, [N, m + p]."""
    return jnp.concatenate([_kernel(coordinates, lift) @ lift.root, coordinates / lift.length], 1)


def _kernel(coordinates, lift):
    return jnp.exp(_squared_distances(coordinates, lift.landmarks) / (-2 * lift.width))


def _squared_distances(rows, others):
    """[N, m]; rounding must not make them negative."""
    lengths = jnp.sum(rows**2, axis=1)[:, None] + jnp.sum(others**2, axis=1)
    return jnp.maximum(lengths - 2 * rows @ others.T, 0)
