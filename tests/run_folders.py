"""The contents of run folders, and comparisons of two of them."""

import json

import numpy as np
import orbax.checkpoint as ocp
import pytest

from spr_jax.training.checkpoint import Checkpoints
from spr_jax.training.log import read_rows

CLOSE = {"rtol": 1e-3, "atol": 1e-5}  # sums over devices round differently


def found_in(workdir):
    """Everything that a run leaves: arrays by name, and its numbers without times."""
    checkpoints = Checkpoints(workdir / "checkpoints")
    wanted = ocp.args.Composite(tree=ocp.args.StandardRestore())
    tree = checkpoints.manager.restore(checkpoints.manager.latest_step(), args=wanted).tree
    meta = checkpoints.latest()
    checkpoints.close()
    arrays = dict(tree)
    if (workdir / "clean.npz").exists():
        with np.load(workdir / "clean.npz") as stored:
            arrays |= stored
    summary = json.loads((workdir / "summary.json").read_text())
    rows = read_rows(workdir / "metrics.jsonl")
    return arrays, without_times({"rows": rows, "summary": summary, "meta": meta})


def without_times(content):
    if isinstance(content, list):
        return [without_times(value) for value in content]
    if isinstance(content, dict):
        timed = ("seconds", "images_per_second")
        return {k: without_times(v) for k, v in content.items() if not k.startswith(timed)}
    return content


def assert_identical(found, expected):
    arrays, expected_arrays = found[0], expected[0]
    assert arrays.keys() == expected_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected_arrays[name], err_msg=name)
    assert found[1] == expected[1]


def assert_close(found, expected):
    arrays, expected_arrays = found[0], expected[0]
    assert arrays.keys() == expected_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_allclose(array, expected_arrays[name], err_msg=name, **CLOSE)
    for row, expected_row in zip(found[1]["rows"], expected[1]["rows"], strict=True):
        assert row == pytest.approx(expected_row, rel=1e-4)
