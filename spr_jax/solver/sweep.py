"""Passes over examples that are read block by block, on all devices in turn.

A program sees one block at a time and gives back sums, or one value for each of its rows; sums of
blocks are added up in double precision, in the order of the blocks. So memory does not grow with
the number of features of all examples, and the number of devices does not change the answer.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tqdm import tqdm

from spr_jax.io.rows import Rows
from spr_jax.solver.blocks import blocks_of, sum_and_stack

BLOCK_BYTES = 2**23  # of a block of features in single precision
LEAST_ROWS = 256  # of a block, where classes are solved in many groups
UNUSED = -1  # label of the rows that fill up a block


class Block(NamedTuple):
    """Some rows; arrays are filled up to one length, so that a program is compiled once."""

    index: np.ndarray  # type: ignore[assignment]  # [m], in the data set
    features: np.ndarray  # [size, d], float32
    labels: np.ndarray  # [size]; UNUSED after the first m
    group: int = 0


class Stream(NamedTuple):
    """Features that are read, prepared and labeled block by block."""

    rows: Rows
    labels: np.ndarray  # [N], numbers of classes
    prepare: Callable[[np.ndarray], np.ndarray]  # rows as given to rows in single precision
    size: int  # rows of a block
    progress: bool = False

    def take(self, index: np.ndarray) -> np.ndarray:
        """Return these rows."""
        return self.prepare(self.rows.take(index))

    def blocks(self, what: str) -> Iterator[Block]:
        """Yield all rows in their order; `what` names the pass."""
        for start, features in self._read(what):
            index = np.arange(start, start + len(features))
            yield filled(index, self.prepare(features), self.labels[index], self.size)

    def blocks_by_group(self, what: str, groups: np.ndarray) -> Iterator[Block]:
        """Yield the rows of each group of classes [groups, at most k], labeled by their slot."""
        if len(groups) == 1:
            yield from self.blocks(what)
            return
        group_of, slot_of = places_in(groups)
        size = max(self.size // len(groups), min(LEAST_ROWS, self.size))
        waiting: list[list] = [[] for _ in groups]
        for start, features in self._read(what):
            labels = self.labels[start : start + len(features)]
            features = self.prepare(features)
            mine = group_of[labels]
            for group in range(len(groups)):
                here = np.flatnonzero(mine == group)
                waiting[group].append((start + here, features[here], slot_of[labels[here]]))
                while sum(len(part[0]) for part in waiting[group]) >= size:
                    joined = _joined(waiting[group])
                    waiting[group] = [tuple(part[size:] for part in joined)]
                    first = (part[:size] for part in joined)
                    yield _filled_up(first, size, group)
        for group, parts in enumerate(waiting):
            last = _joined(parts)
            if len(last[0]):
                yield _filled_up(last, size, group)

    def _read(self, what):
        with tqdm(
            total=len(self.rows), desc=what, unit=" rows", disable=not self.progress, leave=False
        ) as bar:
            for start, features in self.rows.blocks(self.size):
                yield start, features
                bar.update(len(features))


def places_in(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The group of each class and its slot there, [c] both."""
    group, slot = np.nonzero(groups >= 0)
    order = np.argsort(groups[group, slot])
    return group[order], slot[order]


def block_size(width: int, bound: int = BLOCK_BYTES) -> int:
    """Number of rows of this width in a block."""
    return max(bound // (4 * width), LEAST_ROWS)


def filled(index, features, labels, size, group=0) -> Block:
    """Fill a block up to its size."""
    short = size - len(index)
    if short:
        features = np.pad(features, ((0, short), (0, 0)))
        labels = np.pad(labels, (0, short), constant_values=UNUSED)
    return Block(index, np.ascontiguousarray(features), labels.astype(np.int32), group)


def _joined(parts):
    """Join the arrays of the parts, one after the other."""
    return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]


def _filled_up(arrays, size, group):
    index, features, labels = arrays
    return filled(index, features, labels, size, group)


def sweep(
    program: Callable,
    blocks: Iterator[Block],
    states: Mapping[int, Any],
    extra: Callable[[Block], tuple] = lambda block: (),
) -> Iterator[tuple[Block, Any]]:
    """Yield each block with program(state of its group, features, labels, *extra(block)).

    Blocks of groups without a state are skipped. Results are NumPy arrays. Devices take turns, so
    that they work at the same time.
    """
    devices = jax.local_devices()
    placed: dict = {}
    pending: deque = deque()
    wanted = (block for block in blocks if block.group in states)
    for turn, block in enumerate(wanted):
        device = devices[turn % len(devices)]
        key = device, block.group
        if key not in placed:
            placed[key] = jax.device_put(states[block.group], device)
        arrays = jax.device_put((block.features, block.labels, *extra(block)), device)
        with jax.default_matmul_precision("highest"):
            pending.append((block, program(placed[key], *arrays)))
        if len(pending) > len(devices):
            done, result = pending.popleft()
            yield done, jax.device_get(result)
    for done, result in pending:
        yield done, jax.device_get(result)


def total(results: Iterator[tuple[Block, Any]]) -> dict[int, Any]:
    """Add up the results of the blocks of each group, in double precision."""
    sums: dict[int, Any] = {}
    for block, result in results:
        result = jax.tree.map(lambda part: np.asarray(part, np.float64), result)
        if block.group in sums:
            result = jax.tree.map(np.add, sums[block.group], result)
        sums[block.group] = result
    return sums


def over_parts(f: Callable, *arrays: Array) -> tuple[Any, Any]:
    """Call f, which gives (sums, rows), on parts of a block that stay in the cache.

    Rows, [..., m] each, are joined along their last axis and are as many as were given.
    """
    size = len(arrays[0])
    parts = blocks_of(size)
    short = parts.count * parts.length - size

    def split(array):
        fill = UNUSED if jnp.issubdtype(array.dtype, jnp.integer) else 0
        padding = [(0, short)] + [(0, 0)] * (array.ndim - 1)
        padded = jnp.pad(array, padding, constant_values=fill) if short else array
        return padded.reshape(parts.count, parts.length, *array.shape[1:])

    sums, rows = sum_and_stack(f, tuple(map(split, arrays)))

    def join(stacked):
        joined = jnp.moveaxis(stacked, 0, -2)
        return joined.reshape(*joined.shape[:-2], -1)[..., :size]

    return sums, jax.tree.map(join, rows)
