"""Cores and devices: how many there are, and how work is spread over them.

JAX is imported inside the functions that need it, so that data sets, and the processes that decode
images, load without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jax.sharding import Mesh

PROGRAM_CACHE = "~/.cache/spr_jax/xla"  # compiled programs, for all runs
AXIS = "devices"  # name of the device axis, in training (pmap) and in the solver (shard_map)


def num_cores() -> int:
    """Number of CPU cores available to this process (may be fewer than the machine has)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def device_mesh(devices=None) -> Mesh:
    """Arrange all local devices in a row; pieces, or the rows of whole data, are spread over it."""
    import jax

    devices = devices or jax.local_devices()
    return jax.make_mesh((len(devices),), (AXIS,), (jax.sharding.AxisType.Auto,), devices=devices)


def spread(tree):
    """Put row i of every array, [devices, ...], on local device i.

    Arrays that are laid out as pmap lays out its results: a program that gets its own results back
    is not compiled a second time.
    """
    import jax

    rows = jax.sharding.NamedSharding(device_mesh(), jax.sharding.PartitionSpec(AXIS))
    return jax.tree.map(lambda leaf: jax.device_put(leaf, rows), tree)


def replicate(tree):
    """Copy a tree of arrays to every local device, [devices, ...] each; laid out as by `spread`."""
    import jax
    import numpy as np

    def copies(leaf):
        leaf = np.asarray(leaf)
        return np.broadcast_to(leaf, (jax.local_device_count(), *leaf.shape))

    return spread(jax.tree.map(copies, tree))


def one_device_per_core(limit: int = 8, batch_size: int = 0) -> None:
    """Use all cores of a machine without accelerators; call before JAX is first used.

    XLA runs the small steps of a path, and many convolutions, on one core per device. With
    `batch_size`, the number of devices divides it. Accelerators are not affected. If JAX is
    already in use, as in a notebook, its devices stay as they are.
    """
    import jax

    most = min(num_cores(), limit)
    devices = next(number for number in range(most, 0, -1) if batch_size % number == 0)
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", devices)


@contextlib.contextmanager
def first_process_first(what: str) -> Iterator[None]:
    """Let the other processes of a run wait until the first one has left this block.

    Locks of files do not reach other hosts on every file system that hosts share.
    """
    import jax
    from jax.experimental import multihost_utils

    is_first = jax.process_index() == 0
    if jax.process_count() == 1:
        yield
        return
    if not is_first:
        multihost_utils.sync_global_devices(what)
    try:
        yield
    finally:
        if is_first:  # also if it failed: the others then find out for themselves
            multihost_utils.sync_global_devices(what)


def keep_freed_memory() -> None:
    """Let the C library reuse freed memory rather than return it to the system.

    XLA allocates the buffers of every call anew, and when they come fresh from the system each of
    their pages costs a fault: up to half of a training step on the CPU. Only glibc can do this. It
    returns memory of all arenas but the main one, whatever it is told, so there is only that.
    """
    trim_threshold, mmap_max, arena_max = -1, -4, -8  # constants of malloc.h
    mallopt = sys.platform == "linux" and getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(arena_max, 1)
        mallopt(mmap_max, 0)
        mallopt(trim_threshold, 2**31 - 1)


def return_freed_memory() -> None:
    """Let the C library return to the system what has been freed; nothing where it is not glibc."""
    trim = sys.platform == "linux" and getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


def cache_programs(folder: str) -> None:
    """Let JAX keep compiled programs in a folder, for all runs of this process; "" for none."""
    import jax

    if folder:
        jax.config.update("jax_compilation_cache_dir", os.path.expanduser(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
