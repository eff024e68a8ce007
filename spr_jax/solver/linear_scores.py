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

    def cut(beta, basis, targets):
        residual = targets - beta @ basis
        norms = jnp.sqrt(jnp.sum(residual**2, axis=0))
        shrink = jnp.minimum(1, CUT / jnp.maximum(norms, TINY))
        return residual * shrink, shrink

    def over_blocks(f):
        return sum_and_stack(lambda *block: (f(*block), None), (basis, targets))[0]

    # As in `mean_shift.py`, over-relaxed: a few digits are enough.
    beta = lax.fori_loop(
        0,
        12,
        lambda _, beta: beta + 1.5 * over_blocks(lambda q, y: cut(beta, q, y)[0] @ q.T),
        over_blocks(lambda q, y: y @ q.T),
    )
    across = (num_classes - 2) / (num_classes - 1)  # along a cut residual the slope is zero

    def leave_out(basis, targets, fresh):
        within, shrink = cut(beta, basis, targets)
        slope = jnp.sum(jnp.where(shrink < 1, across * shrink, 1), where=fresh)
        leverage = jnp.sum(basis**2, axis=0)
        return slope, (beta @ basis, leverage / jnp.maximum(1 - leverage, 0.1) * within)

    slope, (fitted, own) = sum_and_stack(leave_out, (basis, targets, jnp.asarray(blocks.fresh)))
    scores = jax.vmap(blocks.join, in_axes=1)(fitted - own / jnp.maximum(slope / n, 0.2))
    return normalized(scores)
