"""Mean-shift path: which examples leave zero as the penalty shrinks.

Solves, for a decreasing grid of penalties (lambda below is n times scikit-learn's alpha),

    min_{beta, gamma}  1/2 ||Y - X beta - gamma||^2  +  lambda sum_i ||gamma_i||,

by turning to one block at a time: beta has a least-squares solution and each row of gamma a
closed-form shrinkage. An example whose row leaves zero early has a label that its features do
not explain. Shapes: n examples, c classes, p features, orthonormal (`basis.py`), and arrays
with the long axis last: Q [p, n], Y [c, n], beta [c, p].

With gamma eliminated this is Huber regression in the small matrix beta: the residual
R = Y - beta Q enters through U = R - gamma, each of whose columns is R's, cut to length lambda.
One pass over the examples gives the step and the proof of its quality:

    beta + U Q'      both blocks in turn: the least-squares beta for Y - gamma,
    U - (U Q') Q     after shrinking by s <= 1 a feasible point of the dual problem
                     max <U, Y> - 1/2 ||U||^2  subject to  U Q' = 0, ||U_i|| <= lambda.

The step is accelerated (Nesterov's momentum, dropped when it points uphill), each penalty
starts where the path so far points to, ends when its duality gap is small, and the path ends
when every example has entered.
"""

import functools
import operator
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from spr_jax.solver.basis import BLOCK


class Path(NamedTuple):
    entry: Array  # [n], penalty at which an example left zero, between grid points
    grid_entry: Array  # [n], first penalty of the grid at which it was not zero
    beta: Array  # [c, p], the fit when half of the examples had entered
    gap: Array  # [], largest duality gap over the path, relative to ||Y - (Y Q') Q||^2
    rounds: Array  # [], passes over the examples
    betas: Array | None = None  # [num_penalties, c, p], the whole path if asked for


def group_norm(rows: Array) -> Array:
    """Euclidean norm of each example's c entries, [c, n] -> [n].

    Added up row by row: XLA's CPU backend reduces a leading axis element by element.
    """
    return jnp.sqrt(functools.reduce(operator.add, (row * row for row in rows)))


def element_norm(rows: Array) -> Array:
    """Largest absolute entry of each example: its first entry to leave zero under L1."""
    return functools.reduce(jnp.maximum, (jnp.abs(row) for row in rows))


def cut_groups(rows: Array, norms: Array, length: Array) -> Array:
    """Shorten each example's residual to at most `length`; what is cut off is gamma."""
    return rows * jnp.minimum(1, length / jnp.maximum(norms, jnp.finfo(norms.dtype).tiny))


def cut_elements(rows: Array, norms: Array, length: Array) -> Array:
    return jnp.clip(rows, -length, length)


PENALTIES = {"l21": (group_norm, cut_groups), "l1": (element_norm, cut_elements)}


def mean_shift_path(
    basis: Array,  # [p, n]
    targets: Array,  # [c, n], a column of zeros where the row is not used
    *,
    kind: str = "l21",
    num_penalties: int = 100,
    penalty_ratio: float = 1e-3,
    tolerance: float = 1e-3,
    max_rounds: int = 1000,
    keep_betas: bool = False,
    report: Callable[[Array], None] | None = None,
    axis: str | None = None,
) -> Path:
    """Solve one piece for every penalty of a logarithmic grid.

    `max_rounds` bounds the rounds of one penalty; `report` is called with the share of examples
    that have entered; with `axis` the examples are spread over that mesh axis.
    """
    norm, cut = PENALTIES[kind]
    total = (lambda x: x) if axis is None else (lambda x: lax.psum(x, axis))
    largest = jnp.max if axis is None else (lambda x: lax.pmax(jnp.max(x), axis))
    n = basis.shape[1]
    tiny = jnp.finfo(basis.dtype).tiny
    used = targets.any(axis=0)
    num_used = total(used.sum())
    blocks = _into_blocks(basis), _into_blocks(targets)

    def examine(beta, penalty):
        """One pass over the examples: U Q', <U, R>, ||U||^2, and the residual norms [n]."""

        def examine_block(basis, targets):
            residual = targets - beta @ basis
            norms = norm(residual)
            within = cut(residual, norms, penalty)
            return (
                within @ basis.T,
                jnp.sum(functools.reduce(operator.add, within * residual)),
                jnp.sum(functools.reduce(operator.add, within * within)),
            ), norms

        if len(blocks[0]) == 1:
            sums, norms = examine_block(blocks[0][0], blocks[1][0])
        else:
            zeros = jnp.zeros_like(beta), jnp.zeros((), beta.dtype), jnp.zeros((), beta.dtype)
            sums, norms = lax.scan(
                lambda sums, block: _add_first(sums, examine_block(*block)), zeros, blocks
            )
        return *total(sums), norms.reshape(-1)[:n]

    ols = total(targets @ basis.T)  # beta when gamma = 0
    _, _, energy, norms = examine(ols, jnp.finfo(basis.dtype).max)  # nothing is cut
    energy = jnp.maximum(energy, tiny)
    leverage = jnp.sqrt(largest(jnp.sum(basis * basis, axis=0)))
    start = largest(norms)
    is_fitted = start < 100 * jnp.finfo(basis.dtype).eps  # no residual but rounding: no path
    ratio = penalty_ratio ** (1 / (num_penalties - 1))

    def relative_gap(beta, step, inner, square, penalty):
        """Primal minus dual, arranged so that no large sums cancel.

        With P = <U, R> - 1/2 ||U||^2, and s = 1 feasible up to the length that projecting can
        add to a row, at most leverage * ||U Q'||.
        """
        step_square = jnp.sum(step * step)
        ahead = jnp.sum(step * (ols - beta))
        shrink = penalty / jnp.maximum(penalty + leverage * jnp.sqrt(step_square), tiny)
        slack = (inner - ahead) - (1 + shrink) / 2 * (square - step_square)
        return (ahead - step_square / 2 + (1 - shrink) * slack) / energy

    def solve(beta, guess, penalty):
        """Rounds from `guess` until the gap is small; beta is where the path was before."""

        def unfinished(carry):
            return (carry[-1] > tolerance) & (carry[-2] < max_rounds)

        def one_round(carry):
            last, point, momentum, _, rounds, _ = carry
            step, inner, square, norms = examine(point, penalty)
            gap = relative_gap(point, step, inner, square, penalty)
            beta = point + step
            uphill = jnp.sum(step * (beta - last)) < 0
            momentum = jnp.where(uphill, 1.0, momentum)
            grown = (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2
            point = beta + (momentum - 1) / grown * (beta - last)
            return beta, point, grown, norms, rounds + 1, gap

        one, zero = jnp.ones((), beta.dtype), jnp.zeros((), jnp.int32)
        start = guess, guess, one, norms, zero, jnp.asarray(jnp.inf, beta.dtype)
        beta, _, _, sizes, rounds, gap = lax.while_loop(unfinished, one_round, start)
        return beta, sizes, rounds, gap

    def more_to_enter(carry):
        return (carry.step < num_penalties) & (carry.entered < num_used) & ~is_fitted

    def next_penalty(c):
        penalty = c.penalty * ratio
        beta, norms, rounds, gap = solve(c.beta, c.beta + ratio * c.change, penalty)
        # Zero is left where norm - lambda crosses zero: between two grid points, a line.
        before, after = c.norms - c.penalty, norms - penalty
        enters = jnp.isinf(c.entry) & (after > 0)
        rise = jnp.where(enters, after - before, 1)
        crossing = penalty + (c.penalty - penalty) * after / rise
        entry = jnp.where(enters, crossing, c.entry)
        grid_entry = jnp.where(enters, penalty, c.grid_entry)
        entered = total(jnp.sum(jnp.isfinite(entry) & used))
        if report is not None:
            jax.debug.callback(report, entered / jnp.maximum(num_used, 1))
        return _Walk(
            step=c.step + 1,
            penalty=penalty,
            beta=beta,
            change=beta - c.beta,
            norms=norms,
            entry=entry,
            grid_entry=grid_entry,
            entered=entered,
            half=jnp.where(2 * c.entered < num_used, beta, c.half),
            gap=jnp.maximum(c.gap, gap),
            rounds=c.rounds + rounds,
            betas=c.betas.at[c.step].set(beta) if keep_betas else None,
        )

    walk = _Walk(
        step=jnp.ones((), jnp.int32),
        penalty=start,
        beta=ols,
        change=jnp.zeros_like(ols),
        norms=norms,
        entry=jnp.full(n, jnp.inf, basis.dtype),
        grid_entry=jnp.zeros(n, basis.dtype),
        entered=total(jnp.zeros((), used.sum().dtype)),
        half=ols,
        gap=jnp.zeros((), basis.dtype),
        rounds=jnp.zeros((), jnp.int32),
        betas=jnp.tile(ols, (num_penalties, 1, 1)) if keep_betas else None,
    )
    walk = lax.while_loop(more_to_enter, next_penalty, walk)
    # What is still zero at the end is ranked by the residual, which lies below the last penalty.
    entry = jnp.where(jnp.isinf(walk.entry), jnp.minimum(walk.norms, walk.penalty), walk.entry)
    return Path(entry, walk.grid_entry, walk.half, walk.gap, walk.rounds, walk.betas)


class _Walk(NamedTuple):
    """Where the path stands after a penalty."""

    step: Array
    penalty: Array
    beta: Array  # [c, p]
    change: Array  # [c, p], over the last penalty
    norms: Array  # [n], of the residuals
    entry: Array  # [n], infinite until known
    grid_entry: Array  # [n]
    entered: Array  # number of examples
    half: Array  # [c, p], beta when half had entered
    gap: Array
    rounds: Array
    betas: Array | None


def _into_blocks(rows):
    """[k, n] -> [blocks, k, m], filled up with columns of zeros, which change nothing."""
    k, n = rows.shape
    count = -(-n // BLOCK)
    length = -(-n // count)
    rows = jnp.pad(rows, ((0, 0), (0, count * length - n)))
    return jnp.swapaxes(rows.reshape(k, count, length), 0, 1)


def _add_first(sums, result):
    added, norms = result
    return jax.tree.map(jnp.add, sums, added), norms
