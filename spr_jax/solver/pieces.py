"""Pieces, the sets of examples that share a regression: index tables of fixed shapes.

A piece holds the examples of one class group. With `per_class=m` a group is cut into pieces of
m examples of each of its classes, taken in a random visiting order; a class that is smaller
than the largest of its group wraps around (it is over-sampled) until the largest is exhausted,
so every example is examined at least once. With `per_class=None` a group is one piece and holds
each of its examples once.

The groups follow the prototypes and change from epoch to epoch, the shapes do not: `Plan` is
made once from the class sizes, for the worst possible grouping, and rows that a grouping
does not use hold -1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Plan(NamedTuple):
    """Shapes of the tables; hashable, a static argument of the jitted functions."""

    num_classes: int
    classes_per_group: int
    per_class: int | None  # None: the whole group in one piece
    num_pieces: int
    rows: int  # of a piece

    @property
    def num_groups(self) -> int:
        return -(-self.num_classes // self.classes_per_group)

    @property
    def is_whole(self) -> bool:
        """The one piece is the data set itself, in its own order."""
        return self.per_class is None and self.num_groups == 1


class Pieces(NamedTuple):
    index: Array  # type: ignore[assignment]  # [pieces, rows], in the data set; -1: not used
    slot: Array  # [pieces, rows], position of the row's class in its group
    group: Array  # [pieces]


def plan_pieces(
    labels: np.ndarray,
    *,
    num_classes: int | None = None,
    per_class: int | None = None,
    classes_per_group: int | None = None,
    multiple_of: int = 1,
) -> Plan:
    """Find, once and on the host, the smallest shapes that every grouping fits in.

    Args:
        labels: class of each example, [N].
        num_classes: number of classes; default: the largest label plus one.
        per_class: examples of each class in a piece; default: a whole group is one piece.
        classes_per_group: most classes of a group, three if one would be left alone; default: all.
        multiple_of: number of devices. The pieces, or else their rows, are rounded up to it.

    Returns:
        The plan, to be passed to `clean_set` or `knockoff_set`.
    """
    sizes = np.bincount(np.asarray(labels), minlength=num_classes or 0)
    largest = np.sort(sizes)[::-1]
    num_classes = len(sizes)
    num_groups = -(-num_classes // (classes_per_group or num_classes))
    num_groups = max(1, min(num_groups, num_classes // 2))  # no class is alone
    per_class = per_class and min(per_class, int(largest[0]))
    classes_per_group = -(-num_classes // num_groups)
    if per_class is None:
        rows = int(largest[:classes_per_group].sum())
        rows += -rows % multiple_of if num_groups > 1 else 0
        return Plan(num_classes, classes_per_group, None, num_groups, rows)
    # Each group lasts as long as its largest class, and no two groups share that class.
    num_pieces = int(np.ceil(largest[:num_groups] / per_class).sum())
    num_pieces += -num_pieces % multiple_of
    return Plan(
        num_classes, classes_per_group, per_class, num_pieces, classes_per_group * per_class
    )


def cut_pieces(labels: Array, groups: Array, key: Array, plan: Plan) -> Pieces:
    """Fill the tables for this grouping, visiting the examples in an order drawn from `key`."""
    if plan.is_whole:
        slot = jnp.zeros(plan.num_classes, int).at[groups[0]].set(jnp.arange(plan.num_classes))
        return Pieces(jnp.arange(len(labels))[None], slot[labels][None], jnp.zeros(1, int))

    order = _shuffled_by_class(labels, key, plan.num_classes)
    size = jnp.bincount(labels, length=plan.num_classes)
    start = jnp.cumsum(size) - size
    member_size = jnp.where(groups >= 0, size[groups], 0)  # [groups, classes_per_group]
    cut = _whole_groups if plan.per_class is None else _balanced_pieces
    table = cut(groups, member_size, start, plan)
    return table._replace(index=jnp.where(table.index >= 0, order[table.index], -1))


def _shuffled_by_class(labels, key, num_classes):
    """Indices class by class, each class in random order, by one sort of one word per row."""
    label_bits = max(1, (num_classes - 1).bit_length())
    random_bits = jax.random.bits(key, labels.shape, "uint32") >> label_bits
    return jnp.argsort((labels.astype("uint32") << (32 - label_bits)) | random_bits)


def _balanced_pieces(groups, member_size, start, plan):
    """m rows of each class: row r of a class of size s in turn t is its (t m + r) mod s-th."""
    m = plan.per_class
    turns = -(-member_size.max(axis=1) // m)  # pieces of each group
    ends = jnp.cumsum(turns)
    piece = jnp.arange(plan.num_pieces)
    group = jnp.searchsorted(ends, piece, side="right")  # == num_groups for surplus pieces
    used = group < plan.num_groups
    group = jnp.minimum(group, plan.num_groups - 1)
    turn = piece - (ends - turns)[group]

    sizes = member_size[group][:, :, None]  # [pieces, classes_per_group, 1]
    nth_row = (turn[:, None, None] * m + jnp.arange(m)) % jnp.maximum(sizes, 1)
    index = start[groups[group]][:, :, None] + nth_row
    index = jnp.where((sizes > 0) & used[:, None, None], index, -1)
    slot = jnp.repeat(jnp.arange(plan.classes_per_group), m)

    shape = plan.num_pieces, plan.rows
    return Pieces(index.reshape(shape), jnp.broadcast_to(slot, shape), group)


def _whole_groups(groups, member_size, start, plan):
    """Every example of a group once, class after class; groups are filled up with -1."""
    ends = jnp.cumsum(member_size, axis=1)
    row = jnp.arange(plan.rows)
    slot = jax.vmap(lambda ends: jnp.searchsorted(ends, row, side="right"))(ends)
    used = slot < plan.classes_per_group
    slot = jnp.minimum(slot, plan.classes_per_group - 1)
    offset = row - jnp.take_along_axis(ends - member_size, slot, axis=1)
    index = jnp.take_along_axis(start[groups], slot, axis=1) + offset
    return Pieces(jnp.where(used, index, -1), slot, jnp.arange(plan.num_groups))
