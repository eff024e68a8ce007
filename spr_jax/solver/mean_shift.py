"""Mean-shift path: the order in which examples enter as the penalty shrinks.

Solves, for a decreasing grid of penalties (lambda below is n times scikit-learn's alpha),

    min_{beta, gamma}  1/2 ||Y - X beta - gamma||^2  +  lambda sum_i ||gamma_i||,

by turning to one block at a time: beta has a least-squares solution and each row of gamma a
closed-form shrinkage. An example enters the path at the penalty where its row of gamma becomes
nonzero; one that enters early has a label that its features do not explain. Shapes: n examples,
c classes, p features, orthonormal (`basis.py`), and arrays with the long axis last: Q [p, n],
Y [c, n], beta [c, p]. The examples come in blocks (`blocks.py`): a leading axis on every array
that has one value per example.

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
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from spr_jax.solver.blocks import sum_and_stack


class Path(NamedTuple):
    entry: Array  # [blocks, m], penalty at which an example enters, between grid points
    grid_entry: Array  # [blocks, m], first penalty of the grid at which it is nonzero
    duality_gap: Array  # [], largest over the path, relative to ||Y - (Y Q') Q||^2
    rounds: Array  # [], passes over the examples


class Cut(NamedTuple):
    """A residual R [c, n] cut to the penalty: U = R - gamma."""

    within: Array  # [c, n], U
    norms: Array  # [n], of R: an example is zero while its norm is at most the penalty
    inner: Array  # [n], <U, R> of each example
    square: Array  # [n], ||U||^2 of each example


def cut_groups(residual: Array, penalty: Array) -> Cut:
    """Row-group penalty (L2,1): each example is shortened to the penalty as a whole."""
    norms = jnp.sqrt(_sum_rows(residual * residual))
    scale = jnp.minimum(1, penalty / jnp.maximum(norms, jnp.finfo(norms.dtype).tiny))
    return Cut(residual * scale, norms, scale * norms**2, (scale * norms) ** 2)


def cut_elements(residual: Array, penalty: Array) -> Cut:
    """Element-wise penalty (L1): each element on its own; the largest enters first."""
    within = jnp.clip(residual, -penalty, penalty)
    norms = functools.reduce(jnp.maximum, jnp.abs(residual))
    return Cut(within, norms, _sum_rows(within * residual), _sum_rows(within * within))


def _sum_rows(rows):
    """[c, n] -> [n]. XLA's CPU backend would sum a leading axis element by element."""
    return functools.reduce(operator.add, rows)


CUTS = {"l21": cut_groups, "l1": cut_elements}


def duality_gap(
    step: Array,  # [c, p], U Q'
    to_ols: Array,  # [c, p], Y Q' - beta
    inner: Array,  # <U, R>
    square: Array,  # ||U||^2
    penalty: Array,
    leverage: Array,  # largest norm of a column of Q
) -> Array:
    """Primal minus dual value at beta, arranged so that no large sums cancel.

    The primal value is P = <U, R> - 1/2 ||U||^2. The dual point is s (U - (U Q') Q): projecting
    adds at most leverage * ||U Q'|| to the length of a column, so it is feasible for

        s = penalty / (penalty + leverage * ||U Q'||).
    """
    step_square = jnp.sum(step * step)
    ahead = jnp.sum(step * to_ols)
    added = leverage * jnp.sqrt(step_square)
    shrink = penalty / jnp.maximum(penalty + added, jnp.finfo(step.dtype).tiny)
    slack = (inner - ahead) - (1 + shrink) / 2 * (square - step_square)
    return ahead - step_square / 2 + (1 - shrink) * slack


class Walk(NamedTuple):
    """State of the path after a round."""

    step: Array  # which penalty is being solved
    tries: Array  # rounds spent on it
    rounds: Array  # in all
    penalty: Array
    point: Array  # [c, p], where the next round looks
    beta: Array  # [c, p], after the last round, for the momentum
    momentum: Array  # kept from penalty to penalty
    last_penalty: Array  # the last one that was solved,
    solution: Array  # [c, p], its beta
    norms: Array  # [blocks, m], and its residuals
    entry: Array  # [blocks, m], infinite until known
    grid_entry: Array  # [blocks, m]
    entered: Array  # number of examples
    duality_gap: Array


class Piece(NamedTuple):
    """One regression, seen through passes over its examples."""

    examine: Callable  # (beta, penalty) -> U Q', <U, R>, ||U||^2, residual norms [blocks, m]
    count: Callable  # [blocks, m] bool -> how many of the examples that count
    num_used: Array
    ols: Array  # [c, p], the least-squares fit
    norms: Array  # [blocks, m], its residuals
    largest: Array  # the largest of them, which is the first penalty
    energy: Array  # the sum of their squares
    leverage: Array  # largest norm of a column of Q


def mean_shift_path(
    basis: Array,  # [blocks, p, m]
    targets: Array,  # [blocks, c, m], zeros where a row does not count
    *,
    kind: str = "l21",
    num_penalties: int = 100,
    penalty_ratio: float = 1e-3,
    tolerance: float = 1e-3,
    max_rounds: int = 1000,
    report: Callable[[Array], None] | None = None,
    axis: str | None = None,
) -> Path:
    """Solve one piece for every penalty of a logarithmic grid.

    Args:
        basis: Q, orthonormal rows.
        targets: Y, one-hot columns.
        kind: penalty on gamma, "l21" per example or "l1" per element.
        num_penalties: length of the grid.
        penalty_ratio: last penalty over first.
        tolerance: on the relative duality gap of each penalty.
        max_rounds: bound on the rounds of one penalty.
        report: called with the fraction of examples that have entered.
        axis: mesh axis over which the examples are spread, if any.
    """
    piece = look_at(basis, targets, kind, axis)
    ratio = penalty_ratio ** (1 / (num_penalties - 1))
    unfinished = partial(is_unfinished, piece, num_penalties=num_penalties)

    def advance(walk):
        walk = one_round(piece, walk, ratio=ratio, tolerance=tolerance, max_rounds=max_rounds)
        if report is not None:
            jax.debug.callback(report, walk.entered / piece.num_used)
        return walk

    walk = lax.while_loop(unfinished, advance, start_walk(piece, ratio))
    # What is still zero at the end is ranked by the residual, which lies below the last penalty.
    entry = jnp.where(jnp.isinf(walk.entry), jnp.minimum(walk.norms, walk.last_penalty), walk.entry)
    return Path(entry, walk.grid_entry, walk.duality_gap, walk.rounds)


def look_at(basis: Array, targets: Array, kind: str, axis: str | None = None) -> Piece:
    """Prepare the passes over a piece and make the first one, at gamma = 0."""
    cut = CUTS[kind]
    total = (lambda x: x) if axis is None else (lambda x: lax.psum(x, axis))
    largest = jnp.max if axis is None else (lambda x: lax.pmax(jnp.max(x), axis))
    used = targets.any(axis=1)

    def examine(beta, penalty):
        def examine_block(basis, targets):
            part = cut(targets - beta @ basis, penalty)
            return (part.within @ basis.T, part.inner.sum(), part.square.sum()), part.norms

        sums, norms = sum_and_stack(examine_block, (basis, targets))
        return *total(sums), norms

    # With gamma = 0, beta is the least-squares fit, and its residual is not cut.
    blocks = basis, targets
    ols = total(sum_and_stack(lambda basis, targets: (targets @ basis.T, None), blocks)[0])
    _, _, energy, norms = examine(ols, jnp.finfo(basis.dtype).max)
    return Piece(
        examine=examine,
        count=lambda rows: total(jnp.sum(rows & used, dtype=jnp.int32)),
        num_used=total(used.sum()),
        ols=ols,
        norms=norms,
        largest=largest(norms),
        energy=jnp.maximum(energy, jnp.finfo(basis.dtype).tiny),
        leverage=jnp.sqrt(largest(jnp.sum(basis**2, axis=1))),
    )


def is_unfinished(piece: Piece, walk: Walk, *, num_penalties: int) -> Array:
    """Until every example has entered; without a residual there is nothing to walk for."""
    is_fitted = piece.largest < 100 * jnp.finfo(piece.ols.dtype).eps  # only rounding is left
    return (walk.step < num_penalties) & (walk.entered < piece.num_used) & ~is_fitted


def start_walk(piece: Piece, ratio: float) -> Walk:
    """At the largest penalty: gamma = 0, beta is the least-squares fit."""
    zero, nothing = jnp.zeros((), jnp.int32), jnp.zeros((), piece.ols.dtype)
    return Walk(
        step=zero + 1,
        tries=zero,
        rounds=zero,
        penalty=piece.largest * ratio,
        point=piece.ols,
        beta=piece.ols,
        momentum=nothing + 1,
        last_penalty=piece.largest,
        solution=piece.ols,
        norms=piece.norms,
        entry=jnp.full_like(piece.norms, jnp.inf),
        grid_entry=jnp.zeros_like(piece.norms),
        entered=zero,
        duality_gap=nothing,
    )


def one_round(piece: Piece, walk: Walk, *, ratio: float, tolerance: float, max_rounds: int) -> Walk:
    """One pass at the current penalty, and on to the next if its gap is small."""
    step, inner, square, norms = piece.examine(walk.point, walk.penalty)
    to_ols = piece.ols - walk.point
    gap = duality_gap(step, to_ols, inner, square, walk.penalty, piece.leverage) / piece.energy
    solved = (gap <= tolerance) | (walk.tries + 1 >= max_rounds)
    beta = walk.point + step

    # If not: both blocks in turn, with momentum.
    uphill = jnp.sum(step * (beta - walk.beta)) < 0
    momentum = jnp.where(uphill, 1, walk.momentum)
    grown = (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2
    closer = beta + (momentum - 1) / grown * (beta - walk.beta)

    # If so: start the next penalty where the path points to.
    change = beta - walk.solution
    guess = beta + ratio * change
    entry, enters = _enter(walk, norms, solved)

    def pick(if_solved, if_not):
        return jnp.where(solved, if_solved, if_not)

    return Walk(
        step=walk.step + solved,
        tries=pick(0, walk.tries + 1),
        rounds=walk.rounds + 1,
        penalty=pick(walk.penalty * ratio, walk.penalty),
        point=pick(guess, closer),
        beta=pick(guess, beta),
        momentum=grown,
        last_penalty=pick(walk.penalty, walk.last_penalty),
        solution=pick(beta, walk.solution),
        norms=pick(norms, walk.norms),
        entry=entry,
        grid_entry=jnp.where(enters, walk.penalty, walk.grid_entry),
        entered=walk.entered + piece.count(enters),
        duality_gap=pick(jnp.maximum(gap, walk.duality_gap), walk.duality_gap),
    )


def _enter(walk, norms, solved):
    """Entries after a penalty is solved, and a mask of the examples that enter now.

    An example enters where norm - penalty crosses zero: between two penalties, a line.
    """
    before, after = walk.norms - walk.last_penalty, norms - walk.penalty
    enters = solved & jnp.isinf(walk.entry) & (after > 0)
    rise = jnp.where(enters, after - before, 1)
    crossing = walk.penalty + (walk.last_penalty - walk.penalty) * after / rise
    return jnp.where(enters, crossing, walk.entry), enters
