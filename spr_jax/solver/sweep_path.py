"""The mean-shift path of examples that are read block by block.

The rounds are those of `mean_shift.py`, one pass over the files for each: about as many as there
are penalties until every example has entered, forty to sixty. Memory holds a few numbers for each
example, so the entries are the same as in memory up to rounding.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spr_jax.solver import Options
from spr_jax.solver.mean_shift import (
    CUTS,
    Piece,
    Walk,
    is_unfinished,
    one_round,
    start_walk,
)
from spr_jax.solver.sweep import Stream, over_parts, places_in, sweep, total
from spr_jax.solver.sweep_basis import Map, Moments, least_squares, map_from

CUT = CUTS["l21"]


class SweptPath(NamedTuple):
    entry: np.ndarray  # [N], as `mean_shift.Path`
    duality_gap: float  # largest of any group
    rounds: int  # most of any group


class Group(NamedTuple):
    """The regression of the examples of some classes."""

    rows: np.ndarray | slice  # [n], in the data set
    place: Map
    piece: Piece  # without `examine`, which is a pass over all groups
    walk: Walk


def sweep_path(
    stream: Stream, groups: np.ndarray, moments: list[Moments], options: Options
) -> SweptPath:
    """Solve the path of each group of classes [groups, at most k], with an intercept."""
    blocks = partial(stream.blocks_by_group, groups=groups)
    ratio = options.penalty_ratio ** (1 / (options.num_penalties - 1))
    advance = partial(
        one_round, ratio=ratio, tolerance=options.tolerance, max_rounds=options.max_rounds
    )
    unfinished = partial(is_unfinished, num_penalties=options.num_penalties)
    norms = np.empty(len(stream.labels), np.float32)
    maps = [map_from(each, options.pca_dim) for each in moments]
    fits = [least_squares(*each).astype(np.float32) for each in zip(moments, maps, strict=True)]
    solving = _start(blocks, stream.labels, groups, maps, fits, ratio, norms)
    rounds = 0
    while True:
        left = [number for number, each in solving.items() if unfinished(each.piece, each.walk)]
        if not left:
            break
        rounds += 1
        states = {number: _state(solving[number]) for number in left}
        seen = _examine(blocks(f"Path, pass {rounds}"), states, norms)
        for number in left:
            group = solving[number]
            sums = *map(jnp.float32, seen[number]), jnp.asarray(norms[group.rows])[None]
            piece = group.piece._replace(examine=lambda *_, sums=sums: sums)
            solving[number] = group._replace(walk=advance(piece, group.walk))
    for group in solving.values():
        walk = group.walk
        at_end = jnp.minimum(walk.norms, walk.last_penalty)  # as `mean_shift_path`
        norms[group.rows] = jnp.where(jnp.isinf(walk.entry), at_end, walk.entry)[0]
    gap = max(float(group.walk.duality_gap) for group in solving.values())
    return SweptPath(norms, gap, rounds)


def _state(group):
    return group.place, np.asarray(group.walk.point), np.float32(group.walk.penalty)


def _start(blocks, labels, groups, maps, fits, ratio, norms):
    """Make the first passes: the residuals of the least-squares fit of each group, leverages."""
    unlimited = np.finfo(np.float32).max
    states = {
        number: (*each, unlimited) for number, each in enumerate(zip(maps, fits, strict=True))
    }
    energies = _examine(blocks("Residuals"), states, norms)
    leverages = _leverages(blocks("Leverages"), maps)
    group_of = places_in(groups)[0][labels] if len(groups) > 1 else None
    solving = {}
    for number, (place, fit) in enumerate(zip(maps, fits, strict=True)):
        rows = slice(None) if group_of is None else np.flatnonzero(group_of == number)
        mine = jnp.asarray(norms[rows])[None]
        piece = Piece(
            examine=lambda *_: None,
            count=lambda rows: jnp.sum(rows, dtype=jnp.int32),
            num_used=jnp.int32(mine.size),
            ols=jnp.asarray(fit),
            norms=mine,
            largest=mine.max(),
            energy=jnp.maximum(jnp.float32(energies[number][2]), np.finfo(np.float32).tiny),
            leverage=jnp.float32(leverages[number]),
        )
        solving[number] = Group(rows, place, piece, start_walk(piece, ratio))
    return solving


def _examine(blocks, states, norms):
    """Make a pass: U Q', <U, R>, ||U||^2 for each group of the states; fill in residual norms."""

    def kept():
        for block, (sums, found) in sweep(_examine_block, blocks, states):
            norms[block.index] = found[: len(block.index)]
            yield block, sums

    return total(kept())


@jax.jit
def _examine_block(state, features, labels):
    place, beta, penalty = state

    def examine(features, labels):
        fit, back = place.regression(beta, features, labels >= 0)
        targets = (labels == jnp.arange(len(beta))[:, None]).astype(fit.dtype)
        part = CUT(targets - fit, penalty)
        return (back(part.within), part.inner.sum(), part.square.sum()), part.norms

    return over_parts(examine, features, labels)


def _leverages(blocks, maps):
    """The largest norm of a row of the basis, of each group."""
    largest = np.zeros(len(maps))
    for block, leverage in sweep(_leverage_of_block, blocks, dict(enumerate(maps))):
        largest[block.group] = max(largest[block.group], leverage)
    return np.sqrt(largest)


@jax.jit
def _leverage_of_block(place, features, labels):
    def leverage(features, labels):
        return None, jnp.sum(place.with_intercept(features, labels >= 0) ** 2, axis=0)

    return over_parts(leverage, features, labels)[1].max()
