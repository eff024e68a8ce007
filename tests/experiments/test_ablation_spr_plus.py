"""The ablation of SPR+: every row is one option away from the whole, and the table shows it."""

import argparse

import pytest
from conftest import PROGRAMS
from finished_runs import leave

from experiments import ablation_spr_plus
from experiments.ablation_spr_plus import PARTS, REFERENCES, WHOLE, cells, value_of
from experiments.harness import runs, study
from experiments.harness.runs import config_of
from spr_jax.methods import METHODS
from spr_jax.registry import build
from spr_jax.training.config import check

pytestmark = pytest.mark.usefixtures("as_command")

KINDS = {"full": {}, "small": {"small": True}, "features": {"features": True}}


def options_for(kind):
    usual = {"small": False, "features": False, "seeds": 2, "data_dir": "DIR"}
    return argparse.Namespace(**usual | KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_a_run_that_differs_from_the_whole_in_one_part(kind):
    found = {row: config_of(cell[0]) for (row,), cell in cells(options_for(kind)).items()}
    whole = found.pop(WHOLE)
    assert whole.method.name == "spr_plus" and whole.noise.rate == 0.4 and whole.ema > 0
    for row, method in REFERENCES.items():
        assert found.pop(row).method.name == method
    assert {row.split(" ", 1)[1] for row in found} >= {*PARTS} - {"mirrored tests"}
    for row, config in found.items():
        check(config)
        build(METHODS, config.method)
        how, name = row.split(" ", 1)
        others = [part.field for part in PARTS.values() if part != PARTS[name]]
        assert [value_of(config, field) for field in others] == [
            value_of(whole, field) for field in others
        ]
        with_part, without = (whole, config) if how == "without" else (config, whole)
        assert value_of(without, PARTS[name].field) == PARTS[name].off
        assert value_of(with_part, PARTS[name].field) != PARTS[name].off


def test_photographs_have_all_parts_and_nothing_is_mirrored_that_has_a_side():
    rows = {kind: [row for (row,) in cells(options_for(kind))] for kind in KINDS}
    assert [row for row in rows["full"] if row.startswith("with")] == [
        f"without {p}" for p in PARTS
    ]
    assert "with strong views" in rows["small"]
    assert "with agreement of views" in rows["features"]
    assert not any("mirrored" in row for row in rows["small"] + rows["features"])


def test_the_table_has_the_distance_to_the_whole(table, tmp_path):
    options = options_for("small")
    options.seeds = 1
    for (row,), accuracy in zip(cells(options), (0.95, 0.9), strict=False):
        summary = {"last": {"test_top1": accuracy}, "best_on_test": {"test_top1": {}}}
        summary["best_on_test"]["test_top1"] = {"test_top1": 0.96}
        leave(cells(options)[(row,)][0], tmp_path / "runs", summary)
    status, text, rows = table(ablation_spr_plus, "--small", "--read")
    assert status == study.SAVED
    assert "| SPR+ | - | 95.00 | 96.00 | - |" in text
    assert "| without selection | -5.00 | 90.00 | 96.00 | - |" in text
    assert "| without MixUp | - | - | - | - |" in text
    assert len(rows) == len(cells(options))


def test_nothing_is_started_to_read(table, monkeypatch):
    monkeypatch.setattr(runs, "_start", lambda *_: pytest.fail("started a run"))
    _, text, _ = table(ablation_spr_plus, "--features", "--read")
    assert (
        "--config=configs/cifar10_features.py:spr_plus" in text and "dataset.data_dir" not in text
    )


@pytest.mark.slow
def test_a_small_table_is_made_from_nothing(table, monkeypatch):
    """Two runs that are as short as they get, in processes of their own."""
    brief = {"epochs": 2, "validation_share": 0.9, "compilation_cache": str(PROGRAMS)}
    file, common, own = ablation_spr_plus.SMALL
    monkeypatch.setattr(ablation_spr_plus, "SMALL", (file, common | brief, own))
    monkeypatch.setattr(ablation_spr_plus, "PARTS", {"MixUp": PARTS["MixUp"]})
    monkeypatch.setattr(ablation_spr_plus, "REFERENCES", {})
    status, text, rows = table(ablation_spr_plus, "--small")
    assert status == 0 and set(rows) == {(WHOLE,), ("without MixUp",)}
    assert "- Runs: 2 of 2 finished" in text
