"""Checkpoints through orbax: all that an exact resume needs, whole or not at all."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.options import AtomicityMode, AtomicityOptions


class Checkpoints:
    """Trees of arrays, each with a small dict, numbered by the steps taken."""

    def __init__(self, folder: Path, keep: int = 1):
        newest = ocp.checkpoint_managers.LatestN(keep)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=newest,
            cleanup_tmp_directories=True,  # of an interrupted write
            atomicity_options=AtomicityOptions(how_to_commit(folder)),
        )
        self.manager = ocp.CheckpointManager(folder.absolute(), options=options)

    def save(self, step: int, tree: Any, meta: dict[str, Any]) -> None:
        """Return when the arrays are copied; they are written while training continues."""
        saved = {
            "tree": ocp.args.StandardSave(_by_path(tree)),
            "meta": ocp.args.JsonSave(meta),
        }
        self.manager.save(step, args=ocp.args.Composite(**saved), force=True)

    def latest(self) -> dict[str, Any] | None:
        """Read the dict of the newest checkpoint; None if there is none."""
        step = self.manager.latest_step()
        if step is None:
            return None
        wanted = ocp.args.Composite(meta=ocp.args.JsonRestore())
        return self.manager.restore(step, args=wanted).meta

    def restore(self, like: Any) -> Any:
        """Read the newest tree, or a part of it, as NumPy arrays.

        Args:
          like: the wanted part, with its structure, shapes and types.

        Raises:
          ValueError: if the checkpoint lacks something of it, as one of an earlier version may.
        """
        wanted = ocp.args.Composite(tree=ocp.args.StandardRestore())
        stored = self.manager.restore(self.manager.latest_step(), args=wanted).tree
        paths, leaves = jax.tree.leaves(_paths(like)), jax.tree.leaves(like)
        for path, leaf in zip(paths, leaves, strict=True):
            found = stored.get(path)
            if found is None or (found.shape, found.dtype) != (leaf.shape, leaf.dtype):
                what = "nothing" if found is None else f"{found.dtype} {found.shape}"
                raise ValueError(
                    f"The checkpoint in {self.manager.directory} has {what} at {path}, expected "
                    f"{leaf.dtype} {leaf.shape}; an earlier version wrote it: start anew."
                )
        return jax.tree.unflatten(jax.tree.structure(like), [stored[path] for path in paths])

    def close(self) -> None:
        """Wait until everything is on disk."""
        self.manager.wait_until_finished()
        self.manager.close()


def _paths(tree):
    return jax.tree_util.tree_map_with_path(lambda path, _: jax.tree_util.keystr(path), tree)


def _by_path(tree):
    """{".networks[0].params['head']['bias']": array}: readable, and no class is stored."""
    leaves = zip(jax.tree.leaves(_paths(tree)), jax.tree.leaves(tree), strict=True)
    return {path: np.asarray(leaf) for path, leaf in leaves}


def how_to_commit(folder: Path) -> AtomicityMode:
    """Rename complete checkpoints; where folders cannot be renamed, mark them by a last file.

    A bucket that gcsfuse mounts looks like a local folder, and renames only files.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    trial = Path(tempfile.mkdtemp(prefix=".rename", dir=folder.parent))
    try:
        (trial / "before").mkdir()
        (trial / "before" / "file").touch()  # an empty folder is easy to rename
        os.rename(trial / "before", trial / "after")
        return AtomicityMode.ATOMIC_RENAME
    except OSError:
        return AtomicityMode.COMMIT_FILE
    finally:
        shutil.rmtree(trial, ignore_errors=True)
