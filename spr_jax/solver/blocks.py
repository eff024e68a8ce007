"""Long arrays in blocks of rows that stay in the cache.

A pass over n rows goes block by block. All blocks are equally long, so the last one starts early
enough to be full; the rows it shares with the one before it are not `fresh` and must not count.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

ROWS = 2048


class Blocks(NamedTuple):
    """The blocks of n rows."""

    n: int
    count: int  # type: ignore[assignment]
    length: int

    @property
    def starts(self) -> np.ndarray:
        """First row of each block, [count]."""
        return np.minimum(np.arange(self.count) * self.length, self.n - self.length)

    @property
    def fresh(self) -> np.ndarray:
        """Mask of the rows that belong to no earlier block, [count, length]."""
        row = self.starts[:, None] + np.arange(self.length)
        return row >= np.arange(self.count)[:, None] * self.length

    def cut(self, rows: Array) -> Array:
        """[n] -> [count, length]."""
        split = (self.count - 1) * self.length
        last = rows[self.n - self.length :]
        return jnp.concatenate([rows[:split].reshape(-1, self.length), last[None]])

    def join(self, blocks: Array) -> Array:
        """[count, length] -> [n]."""
        rest = self.n - (self.count - 1) * self.length
        return jnp.concatenate([blocks[:-1].ravel(), blocks[-1, self.length - rest :]])


def blocks_of(n: int) -> Blocks:
    count = -(-n // ROWS)
    return Blocks(n, count, -(-n // count))


def sum_and_stack(f, arrays):
    """Call f, which gives (sums, rows), on each block: add up the sums, stack the rows."""
    if len(jax.tree.leaves(arrays)[0]) == 1:
        sums, rows = f(*jax.tree.map(lambda array: array[0], arrays))
        return sums, jax.tree.map(lambda array: array[None], rows)
    shapes = jax.eval_shape(f, *jax.tree.map(lambda array: array[0], arrays))[0]
    zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

    def add(sums, block):
        added, rows = f(*block)
        return jax.tree.map(jnp.add, sums, added), rows

    return lax.scan(add, zeros, arrays)


def each(f, *arrays):
    """Call f on every piece: at once on accelerators, one after the other on the CPU.

    XLA's CPU backend hands batched factorizations to its thread pool and waits for it, which
    is slower than a loop and deadlocks when several virtual devices do it at once.
    """
    return lax.platform_dependent(
        *arrays, cpu=lambda *arrays: lax.map(lambda a: f(*a), arrays), default=jax.vmap(f)
    )
