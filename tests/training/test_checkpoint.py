"""Checkpoints come back whole."""

import errno
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from orbax.checkpoint.options import AtomicityMode

from spr_jax.training.checkpoint import Checkpoints, how_to_commit


@struct.dataclass
class State:
    params: dict
    step: jax.Array


def make_tree(scale):
    weights = {"kernel": scale * jnp.arange(6.0).reshape(2, 3), "half": jnp.bfloat16([scale, 1.5])}
    memory = {"clean": np.array([True, False]), "epoch": np.int32(scale)}
    return {"state": (State(weights, jnp.int32(7)),), "memory": memory}


@pytest.fixture
def checkpoints(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    yield checkpoints
    checkpoints.close()


def test_there_is_none_at_first(checkpoints):
    assert checkpoints.latest() is None


def test_the_newest_comes_back_as_it_was(checkpoints, tmp_path):
    for step in (3, 10):
        checkpoints.save(step, make_tree(step), {"epoch": step, "best": {"x": 0.1 + step}})
    checkpoints.manager.wait_until_finished()
    again = Checkpoints(tmp_path / "checkpoints")
    assert again.latest() == {"epoch": 10, "best": {"x": 10.1}}
    tree = again.restore(jax.eval_shape(lambda: make_tree(0)))
    again.close()
    assert jax.tree.structure(tree) == jax.tree.structure(make_tree(10))
    for found, saved in zip(jax.tree.leaves(tree), jax.tree.leaves(make_tree(10)), strict=True):
        assert found.dtype == saved.dtype
        np.testing.assert_array_equal(found, saved)


def test_a_part_comes_back_without_the_rest(checkpoints):
    checkpoints.save(1, make_tree(3), {})
    wanted = {"memory": {"clean": np.zeros(2, bool)}, "state": make_tree(0)["state"]}
    found = checkpoints.restore(jax.eval_shape(lambda: wanted))
    assert found["memory"].keys() == {"clean"}
    np.testing.assert_array_equal(found["memory"]["clean"], [True, False])
    kernel = make_tree(3)["state"][0].params["kernel"]
    np.testing.assert_array_equal(found["state"][0].params["kernel"], kernel)


@pytest.mark.parametrize(
    ("wanted", "has"),
    [
        ({"memory": {"other": np.zeros(2)}}, "nothing at .*other"),
        ({"memory": {"clean": np.zeros(3, bool)}}, r"bool \(2,\) at .*clean.*bool \(3,\)"),
        ({"memory": {"clean": np.zeros(2)}}, r"bool \(2,\) at .*clean.*float64 \(2,\)"),
    ],
)
def test_a_part_that_is_not_there_is_named(checkpoints, tmp_path, wanted, has):
    checkpoints.save(1, make_tree(3), {})
    with pytest.raises(ValueError, match=f"{tmp_path}.* has {has}"):
        checkpoints.restore(wanted)


def test_only_as_many_are_kept_as_asked_for(checkpoints, tmp_path):
    several = Checkpoints(tmp_path / "several", keep=2)
    for step in (1, 2, 3):
        several.save(step, make_tree(step), {})
        checkpoints.save(step, make_tree(step), {})
    several.close()
    checkpoints.manager.wait_until_finished()
    assert {path.name for path in (tmp_path / "several").iterdir()} == {"2", "3"}
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"3"}


def test_what_is_saved_does_not_change_with_its_source(checkpoints):
    """Arrays are copied before `save` returns; training continues in their memory."""
    source = np.zeros(2**20, np.float32)
    checkpoints.save(1, {"weights": source}, {})
    source[:] = 1
    checkpoints.manager.wait_until_finished()
    assert not checkpoints.restore({"weights": source})["weights"].any()


def test_a_write_that_was_interrupted_is_cleared_away(checkpoints, tmp_path):
    checkpoints.save(1, make_tree(1), {"epoch": 1})
    checkpoints.close()
    left = tmp_path / "checkpoints" / "9.orbax-checkpoint-tmp"
    (left / "tree.orbax-checkpoint-tmp").mkdir(parents=True)
    (left / "_CHECKPOINT_METADATA").write_text("{")
    again = Checkpoints(tmp_path / "checkpoints")
    assert again.latest() == {"epoch": 1}
    again.save(2, make_tree(2), {"epoch": 2})
    assert again.latest() == {"epoch": 2}
    again.close()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["2"]


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A folder in which files can be renamed, and folders cannot, as in a mounted bucket."""
    usual = {name: getattr(os, name) for name in ("rename", "replace")}

    def only_files(name):
        def rename(source, target, **how):
            if Path(source).is_dir():
                raise OSError(errno.ENOTSUP, "Operation not supported")
            return usual[name](source, target, **how)

        return rename

    for name in usual:
        monkeypatch.setattr(os, name, only_files(name))
    return tmp_path / "run" / "checkpoints"


def test_checkpoints_do_without_renaming_folders(bucket):
    tree = {"weights": np.arange(3.0)}
    for step in (1, 2):
        checkpoints = Checkpoints(bucket)
        checkpoints.save(step, tree, {"epoch": step})
        checkpoints.close()
    checkpoints = Checkpoints(bucket)
    assert checkpoints.latest() == {"epoch": 2}
    np.testing.assert_array_equal(checkpoints.restore(tree)["weights"], tree["weights"])
    checkpoints.close()
    assert [path.name for path in bucket.parent.iterdir()] == ["checkpoints"]
    (bucket / "2" / "commit_success.txt").unlink()  # as if the write had been interrupted
    checkpoints = Checkpoints(bucket)
    assert checkpoints.latest() is None
    checkpoints.close()


def test_checkpoints_are_renamed_where_that_works(tmp_path):
    assert how_to_commit(tmp_path / "run" / "checkpoints") == AtomicityMode.ATOMIC_RENAME
