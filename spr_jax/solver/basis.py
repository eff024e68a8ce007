"""Principal components of a piece, as an orthonormal basis of its examples.

The regression Y = X beta + gamma sees the features only through the space that their columns
span, so a piece needs Q [dim, n] with Q Q' = I and the span of the first `dim` principal
component scores of X. It comes in blocks of rows (`blocks.py`), [blocks, dim, m]. Directions in
which the features do not vary come out as zero rows, so rank-deficient pieces, constant features
and dim > n need no special case.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from spr_jax.solver.blocks import ROWS, blocks_of, sum_and_stack

OVERSAMPLE = 10  # as in randomized PCA


class Components(NamedTuple):
    """Principal components of all rows, in ascending order."""

    basis: Array  # [blocks, dim, m], of their scores, as from `principal_basis`
    length: Array  # [dim], of their scores

    def coordinates(self, n: int, most: int) -> Array:
        """At most this many leading components of n rows, [N, p], in the scale of the features."""
        join = jax.vmap(blocks_of(n).join, in_axes=1)
        return (join(self.basis[:, -most:]) * self.length[-most:, None]).T


def principal_components(features: Array, dim: int) -> Components:
    """The leading principal components of all rows."""
    n = len(features)
    used, blocks = jnp.ones(n, bool), blocks_of(n)
    origin = point_nearby(features, used)
    basis = principal_basis(features, None, used, min(dim, features.shape[1]), origin=origin)

    def along(basis, start, fresh):
        rows = lax.dynamic_slice_in_dim(features, start, blocks.length) - origin
        return (basis * fresh) @ rows, None

    where = jnp.asarray(blocks.starts), jnp.asarray(blocks.fresh)
    directions = sum_and_stack(along, (basis, *where))[0]  # Q X = S V', row by row
    return Components(basis, jnp.sqrt(jnp.sum(directions**2, axis=1)))


def principal_basis(
    features: Array,  # [N, d]
    index: Array | None,  # [n], rows of the piece; None: all of them in their order
    used: Array,  # [n], false where a row of the table is not used
    dim: int,
    *,
    origin: Array,  # [d], from `point_nearby`
    exact: bool = True,
    axis: str | None = None,
) -> Array:  # [blocks, dim, m]
    """Basis of the leading principal component scores of one piece.

    `exact=False` finds them by subspace iteration where that is cheaper (small pieces of wide
    features). With `axis`, the rows of one large piece are spread over that mesh axis.
    """
    blocks = blocks_of(len(used))

    def take(start, fresh):
        """A block of rows, seen from the origin, and whether each counts."""
        if index is None:
            rows = lax.dynamic_slice_in_dim(features, start, blocks.length)
        else:
            rows = lax.dynamic_slice_in_dim(index, start, blocks.length)
            rows = features.at[jnp.maximum(rows, 0)].get(mode="promise_in_bounds")
        counts = lax.dynamic_slice_in_dim(used, start, blocks.length) & fresh
        return rows - origin, counts.astype(features.dtype)

    if blocks.count == 1 and blocks.length <= features.shape[1] and axis is None:
        rows, counts = take(0, True)
        return _from_gram(rows, counts, dim, exact)[None]
    return _from_covariance(take, blocks, dim, axis)


def point_nearby(features: Array, used: Array, axis: str | None = None) -> Array:
    """A point among the features, [d], to measure from.

    Exact centering happens later; this keeps a large common offset from costing precision.
    """
    total = (lambda x: x) if axis is None else (lambda x: lax.psum(x, axis))
    counts = used[:ROWS].astype(features.dtype)
    return total(counts @ features[:ROWS]) / jnp.maximum(total(counts.sum()), 1)


def _noise_floor(values):
    """Eigenvalues below this are rounding errors."""
    return values.max() * len(values) * jnp.finfo(values.dtype).eps


def _from_gram(rows, used, dim, exact):
    """More features than rows: eigenvectors of X X' [n, n] are the basis itself."""
    n = len(rows)
    dim = min(dim, n)
    gram = rows @ rows.T
    share = used / jnp.maximum(used.sum(), 1)
    mean = (share[None] @ gram)[0]  # centering the small matrix centers the wide rows
    gram = (gram - mean - mean[:, None] + share @ mean) * used * used[:, None]
    if exact or 2 * (dim + OVERSAMPLE) > n:
        values, vectors = jnp.linalg.eigh(gram)
        vectors = vectors.T
    else:
        values, vectors = _leading_eigenvectors(gram, dim + OVERSAMPLE)
    kept = values[-dim:] > _noise_floor(values)
    return vectors[-dim:] * kept[:, None]


def _leading_eigenvectors(matrix, size):
    """Subspace iteration sharpened by Chebyshev polynomials; ascending, as `eigh`.

    A polynomial that is small on [0, bound] and grows fast above it suppresses the unwanted end
    of the spectrum at the price of one product per degree. The bound is the smallest of the
    values found so far. Cost: a few products with [size, n] instead of an n x n `eigh`.
    """
    start = np.random.default_rng(0).standard_normal((size, len(matrix)))  # a constant
    vectors = _orthonormal(jnp.asarray(start, matrix.dtype) @ matrix @ matrix)
    for _ in range(2):
        vectors = _orthonormal(_amplified(matrix, vectors, degree=4))
    values, rotation = jnp.linalg.eigh(vectors @ matrix @ vectors.T)
    return values, rotation.T @ vectors


def _orthonormal(vectors):
    return jnp.linalg.qr(vectors.T)[0].T


def _amplified(matrix, vectors, degree):
    """T_degree(2 matrix / bound - I) applied to the rows of `vectors`."""
    product = vectors @ matrix
    bound = jnp.sum(product[-1] * vectors[-1])  # the smallest Rayleigh quotient
    scale = 2 / jnp.where(bound > 0, bound, 1)
    last, current = vectors, scale * product - vectors
    for _ in range(degree - 1):
        last, current = current, 2 * (scale * (current @ matrix) - current) - last
    return current


def _from_covariance(take, blocks, dim, axis):
    """More rows than features: rotate the features by the eigenvectors of X'X [d, d].

    The rows are read block by block and never copied as a whole.
    """
    total = (lambda x: x) if axis is None else (lambda x: lax.psum(x, axis))
    where = jnp.asarray(blocks.starts), jnp.asarray(blocks.fresh)

    def moments(*where):
        rows, used = take(*where)
        rows = rows * used[:, None]
        half = rows.shape[1] // 2  # X'X is symmetric: its upper rows and its last corner do
        upper, corner = rows[:, :half].T @ rows, rows[:, half:].T @ rows[:, half:]
        return (used.sum(), used @ rows, upper, corner), None

    count, first, upper, corner = total(sum_and_stack(moments, where)[0])
    second = jnp.block([[upper], [jnp.hstack([upper[:, len(upper) :].T, corner])]])
    mean = first / jnp.maximum(count, 1)
    values, vectors = _eigh_once(second - count * jnp.outer(mean, mean), axis)
    floor = _noise_floor(values)
    values, vectors = values[-dim:], vectors[:, -dim:]
    kept = values > floor
    scale = jnp.where(kept, lax.rsqrt(jnp.where(kept, values, 1)), 0)

    def scores(*where):
        rows, used = take(*where)
        basis = (vectors * scale).T @ ((rows - mean) * used[:, None]).T
        return basis @ basis.T, basis

    # Scores along weak directions are orthonormal only roughly in single precision: finish with
    # the Cholesky factor of what is left of Q Q' = I.
    product, basis = sum_and_stack(scores, where)
    factor = jnp.linalg.cholesky(total(product) + jnp.diag(1 - kept.astype(product.dtype)))
    identity = jnp.eye(len(factor), dtype=factor.dtype)
    correction = lax.linalg.triangular_solve(factor, identity, left_side=True, lower=True)
    return lax.map(lambda basis: correction @ basis, basis)


def _eigh_once(matrix, axis):
    """`eigh` on the first device, handed to the others; CPU devices would share the cores."""
    if axis is None:
        return jnp.linalg.eigh(matrix)
    nothing = jnp.zeros_like(matrix[0]), jnp.zeros_like(matrix)
    is_first = lax.axis_index(axis) == 0
    found = lax.cond(is_first, lambda: tuple(jnp.linalg.eigh(matrix)), lambda: nothing)
    return lax.psum(found, axis)
