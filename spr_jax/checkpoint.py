"""Checkpoints: all that an exact resume needs, through orbax; there whole or not at all."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp


class Checkpoints:
    """Trees of arrays with a small dict beside them, numbered by the steps taken."""

    def __init__(self, folder: Path, keep: int = 1):
        newest = ocp.checkpoint_managers.LatestN(keep)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=newest,
            cleanup_tmp_directories=True,  # of a write that was broken off
        )
        self.manager = ocp.CheckpointManager(folder.absolute(), options=options)

    def save(self, step: int, tree: Any, meta: dict[str, Any]) -> None:
        """Returns when the arrays are copied; they are written while training goes on."""
        saved = {
            "tree": ocp.args.StandardSave(_by_path(tree)),
            "meta": ocp.args.JsonSave(meta),
        }
        self.manager.save(step, args=ocp.args.Composite(**saved), force=True)

    def latest(self) -> dict[str, Any] | None:
        """What was saved beside the newest tree; None if there is none."""
        step = self.manager.latest_step()
        if step is None:
            return None
        wanted = ocp.args.Composite(meta=ocp.args.JsonRestore())
        return self.manager.restore(step, args=wanted).meta

    def restore(self, like: Any) -> Any:
        """The newest tree, as NumPy arrays; `like` has its structure, shapes and types."""
        empty = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), like)
        wanted = ocp.args.Composite(tree=ocp.args.StandardRestore(_by_path(empty)))
        stored = self.manager.restore(self.manager.latest_step(), args=wanted).tree
        paths = jax.tree.leaves(_paths(like))
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
