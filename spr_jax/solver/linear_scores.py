"""Scores of SPR's own regression, each example's from a fit without it.

Residuals beyond CUT count as CUT: the mean shift at that penalty. An example must not explain its
own label.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from spr_jax.solver.blocks import blocks_of, sum_and_stack
from spr_jax.solver.kernel_scores import normalized

CUT = 0.5  # longest residual; a label that the fit is certain is wrong has one of about 1.4
ROUNDS, RELAXATION = 12, 1.5  # as in `mean_shift.py`, over-relaxed: a few digits are enough
LEAST_SLOPE = 0.2
TINY = 1e-30


def linear_scores(
    basis: Array,  # [blocks, dim, m], from `basis.py`
    labels: Array,  # [N]
    num_classes: int,
) -> Array:
    """Fit each example from all others, [c, N], of unit mean square.

    With U the residual cut to CUT, h_i = ||q_i||^2 and v the mean slope of the cut, leaving
    example i out changes its fit, to first order, by  -h_i / (v (1 - h_i)) U_i.
    For least squares (v = 1) this is exact.
    """
    n = len(labels)
    blocks = blocks_of(n)
    intercept = blocks.fresh.astype(basis.dtype) * n**-0.5
    basis = jnp.concatenate([basis, intercept[:, None]], axis=1)
    targets = blocks.cut(labels)[:, None] == jnp.arange(num_classes)[:, None]
    targets = (targets & blocks.fresh[:, None]).astype(basis.dtype)

    def over_blocks(f):
        return sum_and_stack(lambda *block: (f(*block), None), (basis, targets))[0]

    beta = lax.fori_loop(
        0,
        ROUNDS,
        lambda _, beta: beta + RELAXATION * over_blocks(lambda q, y: cut(y - beta @ q)[0] @ q.T),
        over_blocks(lambda q, y: y @ q.T),
    )
    over = basis, targets, jnp.asarray(blocks.fresh)
    slope, (fitted, own) = sum_and_stack(lambda *block: leave_out(beta, *block), over)
    scores = fitted - own / jnp.maximum(slope / n, LEAST_SLOPE)
    return normalized(jax.vmap(blocks.join, in_axes=1)(scores))


def cut(residual: Array) -> tuple[Array, Array]:
    """Residuals [c, n] cut to CUT, and the factor [n] by which each is shortened."""
    norms = jnp.sqrt(jnp.sum(residual**2, axis=0))
    shrink = jnp.minimum(1, CUT / jnp.maximum(norms, TINY))
    return residual * shrink, shrink


def leave_out(
    beta: Array,  # [c, p]
    basis: Array,  # [p, n]
    targets: Array,  # [c, n]
    counts: Array,  # [n] bool
) -> tuple[Array, tuple[Array, Array]]:
    """Sum of the slopes v; the fit of each example, and -h_i / (1 - h_i) U_i with a minus."""
    within, shrink = cut(targets - beta @ basis)
    slope = slope_of(shrink, len(targets), counts)
    leverage = jnp.sum(basis**2, axis=0)
    return slope, (beta @ basis, leverage / jnp.maximum(1 - leverage, 0.1) * within)


def slope_of(shrink: Array, num_classes: int, counts: Array) -> Array:
    """Sum of the slopes of the cut, of the rows that count."""
    across = (num_classes - 2) / (num_classes - 1)  # along a cut residual the slope is zero
    return jnp.sum(jnp.where(shrink < 1, across * shrink, 1), where=counts)
