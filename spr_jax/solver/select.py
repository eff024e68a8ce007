"""From entry penalties to the clean set: the examples of each class that enter last.

A rule ranks the examples of a class by the penalty at which they left zero and keeps the lower
part of the ranking, a share of the class. Ties keep the order of the rows.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from spr_jax.solver.pieces import Pieces


def keep_lowest(entry: Array, slot: Array, index: Array, share: Array) -> tuple[Array, Array]:
    """Within each class keep the rows of lowest entry: (index, kept), in sorted order.

    Arrays [rows], but share [slots]. Rows with index -1 are not used. Of m rows a class keeps
    floor(share * m), and at least one.
    """
    num_slots = len(share)
    slot = jnp.where(index >= 0, slot, num_slots)  # last, and in no class
    size = jnp.bincount(slot, length=num_slots + 1)
    quota = jnp.maximum(jnp.floor(share * size[:-1] + 1e-3), 1)  # 0.7 * 10 is not quite 7
    quota = jnp.append(quota, 0)
    slot, _, index = lax.sort((slot, entry, index), num_keys=2)
    rank = jnp.arange(len(slot)) - (jnp.cumsum(size) - size)[slot]
    return index, rank < quota[slot]


def clean_by_piece(entry: Array, pieces: Pieces, classes: Array, keep: Array) -> Array:
    """A share of each class in each piece; an example is clean if any piece says so.

    The released rule. Classes that are over-sampled end with more than their share.
    """
    index, kept = jax.vmap(keep_lowest)(entry, pieces.slot, pieces.index, keep[classes])
    return jnp.zeros(len(pieces.first), bool).at[index].max(kept)  # kept is false where -1


def clean_by_class(entry: Array, labels: Array, keep: Array) -> Array:
    """A share of each class over the whole data, [N] entries."""
    index, kept = keep_lowest(entry, labels, jnp.arange(len(labels)), keep)
    return jnp.zeros(len(labels), bool).at[index].set(kept)
