"""Tensors of a file that `torch.save` wrote in its legacy format, read without torch.

The file is five pickles in a row (a magic number, the version of the format, facts about the
machine, the tensors by name, and the keys of their storages), then for each key an int64 count of
elements and the elements themselves. A tensor is a view of a storage: offset, shape and strides.
"""

import hashlib
import io
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spr_jax.io.pickles import RefusedName, RestrictedUnpickler

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001


class _Storage(NamedTuple):
    key: str
    dtype: Any


class _View(NamedTuple):
    """A tensor whose elements are not read yet; in units of elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _rebuild_tensor(storage, offset, shape, strides, *gradient_and_hooks):
    return _View(storage, offset, shape, strides)


class _TensorUnpickler(RestrictedUnpickler):
    allowed = {
        ("collections", "OrderedDict"): OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
        ("torch", "FloatStorage"): np.dtype("<f4"),
        ("torch", "LongStorage"): np.dtype("<i8"),
    }

    def persistent_load(self, pid):
        _, dtype, key, *_ = pid
        return _Storage(key, dtype)


def read_tensors(path: Path, *, sha256: str | None = None) -> dict[str, np.ndarray]:
    """Read the tensors of a file by name.

    Args:
      path: a file that `torch.save` wrote in its legacy format.
      sha256: the checksum that the file must have; None: any.

    Returns:
      Arrays of the shapes that torch shows.

    Raises:
      ValueError: in one sentence, why the file cannot be used.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"Cannot read {path}: {error.strerror or error}.") from None
    found = hashlib.sha256(content).hexdigest()
    if sha256 is not None and found != sha256:
        raise ValueError(
            f"{path} is not the file expected: its sha256 is {found[:16]}..., expected "
            f"{sha256[:16]}...; install its package again."
        )
    try:
        return _parse(content)
    except RefusedName as error:
        raise ValueError(f"Cannot read {path}: {error}, but may hold tensors only.") from None
    except (pickle.UnpicklingError, EOFError, LookupError, TypeError, ValueError, AttributeError):
        raise ValueError(
            f"Cannot read {path}: it is cut off or not in torch's legacy format."
        ) from None


def _parse(content: bytes) -> dict[str, np.ndarray]:
    file = io.BytesIO(content)
    magic, version, _, views, keys = (_TensorUnpickler(file).load() for _ in range(5))
    if (magic, version) != (MAGIC, VERSION):
        raise ValueError("another format")
    dtypes = {view.storage.key: view.storage.dtype for view in views.values()}
    storages, start = {}, file.tell()
    for key in keys:
        (count,) = np.frombuffer(content, "<i8", 1, start)
        storages[key] = np.frombuffer(content, dtypes[key], count, start + 8)
        start += 8 + storages[key].nbytes
    if start != len(content):
        raise ValueError("more bytes than storages")
    return {name: _take(view, storages) for name, view in views.items()}


def _take(view, storages):
    """Lay the view over its storage; NumPy refuses one that reaches beyond it."""
    storage = storages[view.storage.key]
    width = storage.itemsize
    strides = [width * stride for stride in view.strides]
    return np.ndarray(view.shape, storage.dtype, storage, width * view.offset, strides)
