"""The three views of `label_noise.py` for examples that are read block by block.

The linear regression is that of all examples, by as many passes as it has rounds in memory; the
kernel regression and the votes of neighbors are decided by some examples, as in memory. One more
pass finds the nearest voters of each example, which are kept, and the means of all scores.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from spr_jax.solver import kernel_scores as kernel
from spr_jax.solver import linear_scores as linear
from spr_jax.solver import neighbor_scores as neighbors
from spr_jax.solver.sweep import Block, Stream, over_parts, sweep, total
from spr_jax.solver.sweep_basis import Map, Moments, least_squares, map_from


class Views(NamedTuple):
    """What gives the scores of a row."""

    place: Map  # to all components that any view uses
    beta: Any  # [c, p + 1], of the linear regression,
    slope: Any  # [], and its mean slope
    kernel: kernel.Fit
    lift: kernel.Lift
    places: Any  # [voters, p]
    ballots: Any  # [voters], their labels
    shift: Any  # [views, c], means of the scores,
    factor: Any  # [views], and what scales them to unit mean square, or zero


class Known(NamedTuple):
    """Rows that are among those which decide a view."""

    fitted: np.ndarray  # [rows], which decide the kernel regression
    voters: np.ndarray  # [voters]

    def of(self, block: Block, size: int) -> tuple[np.ndarray, ...]:
        """The place of each of these rows among them, or -1, [size] both."""
        return tuple(_position(block.index, mine, size) for mine in self)


def _position(index, mine, size):
    order = np.argsort(mine)
    place = np.minimum(np.searchsorted(mine[order], index), len(mine) - 1)
    found = np.full(size, -1, np.int32)
    is_mine = mine[order[place]] == index
    found[: len(index)] = np.where(is_mine, order[place], -1)
    return found


def fit_views(stream: Stream, moments: Moments, dim: int) -> tuple[Views, Known, np.ndarray]:
    """Fit the views; return the nearest voters of each row [N, k], too."""
    n, classes = len(stream.labels), len(moments.size)
    place = map_from(moments, max(dim, kernel.MOST_DIMS))
    beta, slope = _fit_linear(
        stream, place.leading(dim), least_squares(moments, place.leading(dim))
    )
    known = Known(np.asarray(kernel.rows_to_fit(n)), np.asarray(neighbors.voters_among(n)))
    fitted = stream.take(known.fitted), stream.labels[known.fitted]
    with jax.default_matmul_precision("highest"):
        fit, lift = _fit_kernel(place, *fitted, classes=classes, dim=_kernel_dim(n))
        places = _coordinates(place, stream.take(known.voters), _neighbor_dim(n))
    views = Views(
        place,
        beta,
        slope,
        fit,
        lift,
        np.asarray(places),
        stream.labels[known.voters].astype(np.int32),
        np.zeros((3, classes), np.float32),
        np.ones(3, np.float32),
    )
    nearest = np.empty((n, min(neighbors.NEIGHBORS, len(known.voters) - 1)), np.uint16)
    views = _normalized(stream, jax.device_get(views), known, nearest)
    return views, known, nearest


def _kernel_dim(n):
    return max(min(kernel.MOST_DIMS, n // 4), 1)


def _neighbor_dim(n):
    return max(min(neighbors.MOST_DIMS, n // 4), 1)


def coordinates_of(place: Map, features: Array, used: Array, dim: int) -> Array:
    """Leading principal coordinates of rows, [n, dim], in the scale of the features."""
    leading = place.leading(dim)
    return (leading.basis(features, used) * leading.length[:, None]).T


@partial(jax.jit, static_argnames="dim")
def _coordinates(place, features, dim):
    return coordinates_of(place, features, jnp.ones(len(features), bool), dim)


@partial(jax.jit, static_argnames=("classes", "dim"))
def _fit_kernel(place, features, labels, *, classes, dim):
    coordinates = _coordinates(place, features, dim)
    targets = jax.nn.one_hot(labels, classes, dtype=coordinates.dtype)
    return kernel.fit_some(coordinates, targets)


def _fit_linear(stream, place, beta):
    """The regression of all rows, and its mean slope."""
    for number in range(linear.ROUNDS):
        blocks = stream.blocks(f"Regression, pass {number + 1} of {linear.ROUNDS}")
        state = place, beta.astype(np.float32)
        beta = beta + linear.RELAXATION * total(sweep(_cut_block, blocks, {0: state}))[0]
    beta = beta.astype(np.float32)
    slope = total(sweep(_slope_of_block, stream.blocks("Slopes"), {0: (place, beta)}))[0]
    slope = max(slope / len(stream.labels), linear.LEAST_SLOPE)
    return beta, np.float32(slope)


@jax.jit
def _cut_block(state, features, labels):
    place, beta = state

    def step(features, labels):
        fit, back = place.regression(beta, features, labels >= 0)
        return back(linear.cut(_targets(labels, beta) - fit)[0]), None

    return over_parts(step, features, labels)[0]


@jax.jit
def _slope_of_block(state, features, labels):
    place, beta = state

    def slope(features, labels):
        fit = place.regression(beta, features, labels >= 0)[0]
        return linear.slope_of(
            linear.cut(_targets(labels, beta) - fit)[1], len(beta), labels >= 0
        ), None

    return over_parts(slope, features, labels)[0]


def _targets(labels, beta):
    return (labels == jnp.arange(len(beta))[:, None]).astype(beta.dtype)


def _normalized(stream: Stream, views: Views, known: Known, nearest: np.ndarray) -> Views:
    """Fill in the nearest voters of all rows; bring each view to mean zero and mean square one."""
    n = len(nearest)

    def kept():
        blocks = stream.blocks("Neighbors")
        extra = partial(known.of, size=stream.size)
        for block, (sums, voters) in sweep(_scores_of_block, blocks, {0: views}, extra):
            nearest[block.index] = voters.T[: len(block.index)]
            yield block, sums

    first, second = total(kept())[0]
    shift = first / n  # [views, c]
    size_of = np.sqrt(np.maximum((second / n - shift**2).mean(axis=1), 0))
    is_signal = size_of > 0.1 * n**-0.5  # as `kernel_scores.normalized`
    is_signal[2] &= views.place.length[-_neighbor_dim(n) :].max() > 0
    factor = np.where(is_signal, 1 / np.where(is_signal, size_of, 1), 0)
    return views._replace(shift=shift.astype(np.float32), factor=factor.astype(np.float32))


@jax.jit
def _scores_of_block(views, features, labels, fitted, voter):
    """Sums of the scores and of their squares, [views, c] both, and the nearest voters [k, n]."""

    def sums_of(features, labels, fitted, voter):
        mine = coordinates_of(views.place, features, labels >= 0, views.places.shape[1])
        nearest = neighbors.nearest_voters(views.places)(mine, voter)
        scores = scores_of(views, features, labels, fitted, nearest) * (labels >= 0)
        return (scores.sum(axis=2), jnp.sum(scores**2, axis=2)), nearest.T

    return over_parts(sums_of, features, labels, fitted, voter)


def scores_of(
    views: Views,
    features: Array,  # [m, d]
    labels: Array,  # [m]
    fitted: Array,  # [m], place among the rows that decide the kernel regression, or -1
    nearest: Array,  # [m, k], voters
) -> Array:
    """Scores of some rows, [views, c, m]."""
    used = labels >= 0
    basis = views.place.leading(views.beta.shape[1] - 1).with_intercept(features, used)
    targets = _targets(labels, views.beta)
    fit, own = linear.leave_out(views.beta, basis, targets, used)[1]
    coordinates = coordinates_of(views.place, features, used, views.lift.landmarks.shape[1])
    by_kernel = kernel.predictor(views.kernel, views.lift)(coordinates)
    by_kernel = jnp.where(fitted[:, None] >= 0, views.kernel.left_out[fitted], by_kernel)
    row = jnp.arange(len(labels))[:, None]
    counted = jnp.zeros_like(targets).at[views.ballots[nearest], row].add(1)
    scores = jnp.stack([fit - own / views.slope, by_kernel.T, neighbors.scores_of(counted)])
    return (scores - views.shift[..., None]) * views.factor[:, None, None]
