"""Arrays that are computed once, then memory-mapped; guarded by a lock."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from absl import logging


def cached(folder: Path, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Map the arrays in `folder`, one .npy file each; `make` them if the folder is missing.

    If they cannot be stored they are returned from memory, with a warning.
    """
    arrays = None
    if not folder.is_dir():
        try:
            with alone(folder.parent):
                if not folder.is_dir():  # another process may have made it while this one waited
                    arrays = make()
                    store(folder, arrays)
        except OSError as error:
            logging.warning("Cannot store decoded images in %s: %s.", folder, error)
            return make() if arrays is None else arrays
    return {
        path.stem: np.load(path, mmap_mode="r", allow_pickle=False)
        for path in sorted(folder.glob("*.npy"))
    }


def store(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write all arrays next to `folder`, then rename: it is complete or does not exist."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
    partial.mkdir()
    try:
        for name, array in arrays.items():
            np.save(partial / f"{name}.npy", array, allow_pickle=False)
        os.rename(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one process at a time work in `folder`; others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
