"""From entry penalties to the clean set: the examples of each class that enter last.

A rule ranks the examples of a class by the penalty at which they enter the path and keeps the
lower part of the ranking, a share of the class. Ties keep the order of the rows.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from spr_jax.solver.pieces import Pieces


def keep_lowest(entry: Array, slot: Array, used: Array, share: Array) -> Array:
    """Mark the rows of lowest entry in each class, [rows].

    Of m used rows a class keeps floor(share * m), and at least one; share is [slots]. Entries
    must not be negative.

    A radix selection: digit by digit of the entry, then of the row number, count the rows of
    each class at each digit; those below the digit where the room runs out are kept, those at
    it continue with the next. A few counts, where ranking would sort.
    """
    num_rows, num_slots = len(entry), len(share)
    size = jnp.zeros(num_slots, int).at[slot].add(used)
    room = jnp.floor(share * size + 1e-3).astype(int)  # 0.7 * 90 < 63 in floating point
    room = jnp.maximum(room, 1)
    kept, undecided = jnp.zeros(num_rows, bool), used
    radix = 256 if num_rows > 4096 else 16
    for digit in _digits(entry, radix):
        count = jnp.zeros((num_slots, radix), int).at[slot, digit].add(undecided)
        up_to = jnp.cumsum(count, axis=1)
        pivot = jnp.sum(up_to < room[:, None], axis=1)  # the digit where the room runs out
        kept |= undecided & (digit < pivot[slot])
        undecided &= digit == pivot[slot]
        below = jnp.where(jnp.arange(radix) < pivot[:, None], count, 0)
        room -= below.sum(axis=1)
    return kept | (undecided & (room > 0)[slot])


def _digits(entry, radix):
    """Digits of (entry, row number), most significant first, each [rows].

    The bits of floats that are not negative are in the order of the floats.
    """
    bits = jnp.finfo(entry.dtype).bits
    width = radix.bit_length() - 1
    for number, length in (
        (lax.bitcast_convert_type(entry, f"uint{bits}"), bits),
        (jnp.arange(len(entry)), (len(entry) - 1).bit_length()),
    ):
        for shift in reversed(range(0, length, width)):
            yield (number >> shift) % radix


def lowest_examination(values: Array, pieces: Pieces, num_examples: int) -> Array:
    """The least suspicious of an example's examinations, [pieces, rows] -> [N]."""
    index = jnp.where(pieces.index >= 0, pieces.index, num_examples)  # which is dropped
    return jnp.full(num_examples, jnp.inf, values.dtype).at[index].min(values, mode="drop")


def clean_by_piece(
    entry: Array,  # [pieces, rows]
    pieces: Pieces,
    groups: Array,  # [groups, classes_per_group]
    labels: Array,  # [N]
    keep: Array,  # [num_classes], share of each class
) -> Array:  # [N] bool
    """Keep a share of each class in each piece; an example is clean if any piece says so.

    The released rule. Over-sampled classes end up with more than their share.
    """
    share = keep[groups[pieces.group]]
    kept = jax.vmap(keep_lowest)(entry, pieces.slot, pieces.index >= 0, share)
    return jnp.zeros(len(labels), bool).at[pieces.index].max(kept)  # never at -1


def clean_by_class(
    entry: Array, pieces: Pieces, groups: Array, labels: Array, keep: Array
) -> Array:
    """Keep a share of each class over the whole data, whichever pieces its examples were in."""
    used = jnp.ones(len(labels), bool)
    return keep_lowest(lowest_examination(entry, pieces, len(labels)), labels, used, keep)


SELECTORS = {"piece": clean_by_piece, "class": clean_by_class}
