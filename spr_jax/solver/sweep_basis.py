"""Principal components from block sums: the basis of `basis.py` as a map that is applied to blocks.

With C = sum_i (x_i - mean)(x_i - mean)' = V diag(s^2) V', the rows of the basis are

    Q = diag(1 / s) V' (X - mean),

for the leading directions. Sums are in double precision, so Q Q' = I needs no second pass.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from spr_jax.solver.sweep import Block

MOST_WIDTH = 8192  # columns; the sums of their products take 0.5 GB

PART = 2**14  # rows; of fewer, products in double precision are slow
FEW_CLASSES = 64


class Moments(NamedTuple):
    """Sums over the rows of a group."""

    size: np.ndarray  # [c], rows of each class
    mean: np.ndarray  # [d]
    scatter: np.ndarray  # [d, d], of the rows less their mean
    by_class: np.ndarray  # [c, d], sums of the rows of each class less the mean of all


class Map(NamedTuple):
    """Q = matrix (x - mean), and a constant below it: an intercept."""

    mean: Any  # [d]
    rest: Any  # [d], of the mean, which single precision leaves
    matrix: Any  # [p, d]
    constant: Any  # [], n^(-1/2)
    length: Any  # [p], s, or zero where the features do not vary

    def basis(self, features: Array, used: Array) -> Array:
        """Return [p, n]; zeros where a row is not used."""
        return self.matrix @ ((features - self.mean - self.rest) * used[:, None]).T

    def with_intercept(self, features: Array, used: Array) -> Array:
        """Return [p + 1, n]."""
        constant = self.constant * used.astype(features.dtype)
        return jnp.concatenate([self.basis(features, used), constant[None]])

    def regression(
        self,
        beta: Array,  # [c, p + 1]
        features: Array,
        used: Array,
    ) -> tuple[Array, Callable[[Array], Array]]:
        """Return beta Q [c, n] and a function from residuals U [c, n] to U Q' [c, p + 1].

        Where classes are few, (beta matrix) X and (U X') matrix' are cheaper than the basis.
        """
        c, (p, d) = len(beta), self.matrix.shape
        constant = self.constant * used.astype(features.dtype)
        if c * d < p * d / 2 + c * p:
            rows, place = ((features - self.mean - self.rest) * used[:, None]).T, self.matrix
        else:
            rows, place = self.basis(features, used), jnp.eye(p, dtype=features.dtype)

        def back(residuals):
            return jnp.column_stack([residuals @ rows.T @ place.T, residuals @ constant])

        return (beta[:, :-1] @ place) @ rows + beta[:, -1:] * constant, back

    def leading(self, dim: int) -> "Map":
        """Only the leading components, of which the first is the last."""
        return self._replace(matrix=self.matrix[-dim:], length=self.length[-dim:])


def moments_of(blocks: Iterator[Block], groups: int, classes: int) -> list[Moments]:
    """Sum up the rows of each group, of at most so many classes."""
    sums: list = [None] * groups
    for block, rows, labels in _parts(blocks):
        rows = rows.astype(np.float64)
        if sums[block.group] is None:
            d = rows.shape[1]
            # Measured from a point nearby, a large common offset costs no precision.
            origin, zeros = rows.mean(axis=0), np.zeros
            sums[block.group] = origin, zeros(classes, int), zeros((classes, d)), zeros((d, d))
        origin, size, by_class, square = sums[block.group]
        rows -= origin
        square += rows.T @ rows
        _add_by_class(by_class, rows, labels)
        size += np.bincount(labels, minlength=classes)
    return [_centered(*each) for each in sums]


def class_means(blocks: Iterator[Block], classes: int) -> np.ndarray:
    """Mean features of each class, [c, d]; each has an example."""
    sums, size = None, np.zeros(classes, int)
    for _, rows, labels in _parts(blocks):
        sums = np.zeros((classes, rows.shape[1])) if sums is None else sums
        _add_by_class(sums, rows, labels)
        size += np.bincount(labels, minlength=classes)
    return sums / size[:, None]


def _parts(blocks):
    """Yield each block with parts of its rows and labels that stay in the cache."""
    for block in blocks:
        m = len(block.index)
        for start in range(0, m, PART):
            part = slice(start, min(start + PART, m))
            yield block, block.features[part], block.labels[part]


def _add_by_class(sums, rows, labels):
    """Add rows [m, d] to the sums of their classes [c, d]; one-hot labels only if they are few."""
    if len(sums) <= FEW_CLASSES:
        sums += (labels == np.arange(len(sums))[:, None]).astype(rows.dtype) @ rows
        return
    order = np.argsort(labels, kind="stable")
    here, first = np.unique(labels[order], return_index=True)
    sums[here] += np.add.reduceat(rows[order], first, axis=0, dtype=np.float64)


def _centered(origin, size, by_class, square):
    n = size.sum()
    shift = by_class.sum(axis=0) / n
    scatter = square - n * np.outer(shift, shift)
    return Moments(size, origin + shift, scatter, by_class - size[:, None] * shift)


def map_from(moments: Moments, dim: int) -> Map:
    """The map to at most `dim` leading components, in ascending order."""
    values, vectors = np.linalg.eigh(moments.scatter)
    floor = values.max() * len(values) * np.finfo(np.float32).eps  # rounding, as in `basis.py`
    values, vectors = values[-dim:], vectors[:, -dim:]
    kept = values > floor
    length = np.sqrt(np.where(kept, values, 1))
    matrix = (vectors * (kept / length)).T
    single = np.float32
    mean = moments.mean.astype(single)
    return Map(
        mean,
        (moments.mean - mean).astype(single),
        matrix.astype(single),
        single(moments.size.sum() ** -0.5),
        (length * kept).astype(single),
    )


def least_squares(moments: Moments, place: Map) -> np.ndarray:  # [c, p + 1]
    """The fit of the one-hot labels to the basis with its intercept, Y Q'."""
    slopes = moments.by_class @ np.asarray(place.matrix, np.float64).T
    return np.column_stack([slopes, moments.size * float(place.constant)])
