"""Features in .npy files that need not fit in memory, read some rows at a time.

    rows = open_rows("features.npy")    # or a folder of .npy files, or a list of them
    rows.read(0, 1000), rows.take([5, 17])

The headers of all files are checked before anything is read. Memory-mapped pages belong to the
system's cache: they are dropped when memory is needed.
"""

import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

AHEAD = 2  # blocks that are read while one is worked on


class Rows:
    """Rows of memory-mapped arrays of one width and type, one array after the other."""

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self.parts = list(parts)
        self.starts = np.cumsum([0, *map(len, self.parts)])
        self.dtype = self.parts[0].dtype

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.parts[0].shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of all rows in single precision."""
        return 4 * len(self) * self.shape[1]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Copy the rows from start to stop."""
        pieces = [
            part[max(start - first, 0) : max(stop - first, 0)]
            for part, first in zip(self.parts, self.starts, strict=False)
            if first < stop and start < first + len(part)
        ]
        return np.concatenate(pieces)

    def take(self, index: np.ndarray) -> np.ndarray:
        """Copy the rows of this index, in its order."""
        index = np.asarray(index)
        found = np.empty((len(index), self.shape[1]), self.dtype)
        part_of = np.searchsorted(self.starts, index, side="right") - 1
        for number, part in enumerate(self.parts):
            here = np.flatnonzero(part_of == number)
            here = here[np.argsort(index[here])]  # a disk prefers to go forwards
            found[here] = part[index[here] - self.starts[number]]
        return found

    def blocks(self, size: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (start, rows) for blocks of this size, the next ones being read meanwhile."""
        coming: deque = deque()
        with ThreadPoolExecutor(1) as thread:
            for start in range(0, len(self), size):
                stop = min(start + size, len(self))
                coming.append((start, thread.submit(self.read, start, stop)))
                if len(coming) > AHEAD:
                    first, rows = coming.popleft()
                    yield first, rows.result()
            for first, rows in coming:
                yield first, rows.result()


def open_rows(source: Any) -> Rows | None:
    """Open a .npy file, a folder or a list of them, or a memory-mapped array; None for others.

    The files of a folder are taken in the order of their names, in which numbers count as numbers.
    """
    if isinstance(source, Rows):
        return source
    if isinstance(source, np.memmap) and source.ndim == 2 and source.dtype.kind in "fiub":
        return _checked([source], ["the array"])
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.is_dir():
            files = sorted(path.glob("*.npy"), key=_by_number)
            if not files:
                raise ValueError(
                    f"The folder {path} holds no .npy files; expected the rows of the features."
                )
            return _open(files)
        return _open([path])
    if isinstance(source, list | tuple) and len(source):
        if all(isinstance(each, str | os.PathLike) for each in source) and any(
            Path(each).suffix.lower() == ".npy" for each in source
        ):
            return _open([Path(each) for each in source])
        if all(isinstance(each, np.memmap) and each.ndim == 2 for each in source):
            return _checked(list(source), [f"array {number}" for number in range(len(source))])
    return None


def _by_number(path):
    """Sort key: `part_2.npy` comes before `part_10.npy`."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _open(files):
    return _checked([_memory_map(file) for file in files], files)


def _memory_map(path):
    if path.suffix.lower() != ".npy":
        raise ValueError(f"Cannot read {path} in blocks: expected a file that ends in .npy.")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise ValueError(f"Cannot read {path}: {error.strerror or error}.") from None
    except (EOFError, ValueError, SyntaxError):
        raise ValueError(
            f"Cannot read {path}: it is cut off, or not an array of numbers that NumPy stored; "
            "write it again."
        ) from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        kind = getattr(array, "dtype", "an archive")
        raise ValueError(f"{path} has the type {kind}; expected numbers.")
    if array.ndim != 2:
        raise ValueError(
            f"{path} has the shape {array.shape}; expected [examples, features], one row for each "
            "example."
        )
    return array


def _checked(parts, names):
    """Refuse parts that differ in width or type; parts without rows are left out."""
    first = parts[0]
    for part, name in zip(parts, names, strict=True):
        if part.shape[1] != first.shape[1]:
            raise ValueError(
                f"{name} has {part.shape[1]} columns and {names[0]} has {first.shape[1]}; all "
                "parts must be equally wide."
            )
        if part.dtype != first.dtype:
            raise ValueError(
                f"{name} has the type {part.dtype} and {names[0]} has {first.dtype}; convert them "
                "to one type."
            )
    parts = [part for part in parts if part.size]
    if not parts:
        raise ValueError(f"Features are empty, of shape {first.shape}; expected some rows.")
    return Rows(parts)
