"""Rates and levels are recorded run by run, and the report says of each goal whether it is met."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from experiments import error_control, label_sets
from experiments.error_control import LEVELS, main
from experiments.error_control_plots import PLOTS, side_by_side
from experiments.error_control_report import render
from experiments.error_control_summary import RULE_TITLES, summary_lines
from experiments.harness import provenance
from experiments.label_sets import Case, cases_of
from spr_jax.noise import symmetric
from spr_jax.solver import noise_model
from spr_jax.solver.label_noise import label_noise


@pytest.fixture
def reports(tmp_path, monkeypatch):
    for module in (provenance, error_control):
        monkeypatch.setattr(module, "REPORTS", tmp_path)
    monkeypatch.setattr(error_control, "origin", lambda *packages: "- Command: a test")
    return tmp_path


def row(kind="symmetric", labels="own", *, file="mnist_sym40", rate=0.4, auroc=0.99, **changes):
    """Two classes of 50 with 40 wrong labels in all; half of each is taken, without mistakes."""
    run = {"file": file, "data": file.split("_")[0], "labels": labels, "kind": kind, "seed": 0}
    levels = [
        {"rule": rule, "asked": level, "claims": [True, True], "taken": [25, 25]}
        | {"mistakes": [0, 0]}
        for rule in RULE_TITLES
        for level in LEVELS
    ]
    return {
        "run": run,
        "commit": "here",
        "seconds": 60,
        "examples": 100,
        "true": [0.4, 0.4, 0.4],
        "rate": [rate] * 3,
        "low": [rate - 0.05] * 3,
        "high": [rate + 0.05] * 3,
        "auroc": {"entry": auroc, "wrong": auroc, "expected": auroc},
        "f1": {"default": 0.97, "best_entry": 0.97, "best_wrong": 0.98, "half": 0.89},
        "flagged": 0.4,
        "levels": levels,
    } | changes


def changed(row, rule, asked, **changes):
    levels = [
        choice | changes if (choice["rule"], choice["asked"]) == (rule, asked) else choice
        for choice in row["levels"]
    ]
    return row | {"levels": levels}


def lines_of(*rows):
    return {line.what: line for line in summary_lines(rows)}


@pytest.mark.slow
def test_a_small_run_is_recorded_reported_and_not_repeated(reports, monkeypatch):
    monkeypatch.setattr(noise_model, "MOST_CLASSES", 2)  # the simple model alone compiles sooner,
    estimate = partial(label_noise, intervals=False)  # and without a jackknife
    monkeypatch.setattr(error_control, "label_noise", estimate)
    features, true = load_digits(return_X_y=True)
    given = symmetric(true, 0.4, num_classes=10)
    path = reports / "mnist_sym40.npz"
    np.savez(path, features=features.astype(np.float16), given=given, true=true)
    arguments = [str(path), "--small", "--rows=600", f"--out={reports / 'out'}", "--report"]
    main(arguments)

    rows = [json.loads(line) for line in (reports / "out" / "runs.jsonl").read_text().splitlines()]
    labels = ["own", "none", "symmetric 0.2", "asymmetric 0.3"]
    assert [row["run"]["labels"] for row in rows] == labels
    own = rows[0]
    assert own["examples"] == 600
    assert abs(own["true"][0] - 0.4) < 0.05 and abs(own["rate"][0] - own["true"][0]) < 0.1
    assert own["auroc"]["entry"] > 0.9 and own["auroc"]["wrong"] > 0.9
    assert own["f1"]["best_wrong"] >= own["f1"]["default"] > 0.8
    asked = [(choice["rule"], choice["asked"]) for choice in own["levels"]]
    assert asked == [(rule, level) for rule in RULE_TITLES for level in LEVELS]
    for choice in own["levels"]:
        assert len(choice["taken"]) == len(choice["claims"]) == 10
        assert any(choice["taken"]) == any(choice["claims"])
    assert rows[1]["true"][0] == 0 and rows[1]["f1"]["default"] is None
    assert rows[1]["auroc"]["entry"] is rows[1]["auroc"]["wrong"] is None

    report = (reports / "error_control.md").read_text()
    assert report.startswith("# ") and str(reports) not in report
    for name in PLOTS:
        assert name in report and (reports / name).read_bytes().startswith(b"\x89PNG")

    monkeypatch.setattr(error_control, "measure", None)  # would fail if called
    with open(reports / "out" / "runs.jsonl", "a") as file:
        file.write('{"run": ')  # cut off
    main(arguments)
    assert (reports / "error_control.md").read_text() == report


def test_every_plot_is_drawn_from_the_rows(tmp_path):
    for name, plot in PLOTS.items():
        plot([row(), row("human", labels="worse_label", rate=0.3)], tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_labels_are_redrawn_for_named_files_only():
    rates, path = {"symmetric": (0.2,), "asymmetric": (0.3,)}, Path("cifar10_sym40.npz")
    assert label_sets.is_redrawn("cifar10_sym40")
    assert not label_sets.is_redrawn("mnist_sym40_e1")
    cases = cases_of(path, "cifar10", rates, 2, redraw=True, human=True)
    seeds = [case.seed for case in cases if case.labels == "asymmetric 0.3"]
    assert seeds == [label_sets.FIRST_SEED, label_sets.FIRST_SEED + 1]
    assert sum(case.kind == "human" for case in cases) == 5
    own = cases_of(Path("mnist_asym40_e1.npz"), "mnist", rates, 2, redraw=False, human=True)
    assert own == [Case(Path("mnist_asym40_e1.npz"), "mnist", "own", "asymmetric")]


def test_human_labels_are_found_by_index(tmp_path):
    np.savez(tmp_path / "n.npz", worse_label=np.array([3, 1, 2], np.uint8))
    case = Case(Path("cifar10_sym40.npz"), "cifar10", "worse_label", "human")
    arrays = {"true": np.zeros(2), "index": np.array([2, 0])}
    assert label_sets.labels_of(case, arrays, tmp_path / "n.npz").tolist() == [2, 3]
    with pytest.raises(ValueError, match="no `index`"):
        label_sets.labels_of(case, {"true": np.zeros(2)}, tmp_path / "n.npz")


def test_rates_are_judged_where_the_ranking_is_good():
    rows = row(rate=0.42), row(rate=0.36), row(rate=0.9, auroc=0.9), row("human", rate=0.3)
    lines = lines_of(*rows)
    assert lines["Rate, symmetric, AUROC >= 0.95"].is_met is False
    assert (
        "1 of 2 (50.0%) within 0.03; largest -0.040"
        in lines["Rate, symmetric, AUROC >= 0.95"].measured
    )
    assert lines["Rate, asymmetric, AUROC >= 0.95"].is_met is None
    assert lines["Rate, symmetric, AUROC < 0.95"].measured.startswith("0 of 1 (0.0%)")
    covered = lines["Interval of the rate covers, all runs"]
    assert covered.measured == "2 of 4 (50.0%)" and not covered.is_met


def test_only_claimed_levels_count_and_every_level_must_be_kept():
    what = "Level kept, of runs that claim it: `keep_cleanest`"
    broken = changed(row(), "keep_cleanest", 0.02, mistakes=[0, 2])  # 0.04 of all
    claimless = {"claims": [False, False], "taken": [0, 0]}
    line = lines_of(row(), broken, changed(row(), "keep_cleanest", 0.02, **claimless))[what]
    assert line.measured == "13 of 14 (92.9%); least at 0.02: 1 of 2 (50.0%)" and not line.is_met
    exact = changed(row(), "keep_cleanest", 0.02, mistakes=[1, 0])  # 0.02 of all, 0.04 of a class
    assert lines_of(exact)[what].is_met
    report = render([exact, broken], "- Command: a test")
    kept = "| kept, noise model | 0.02 | 2 of 2 | 50.0% | 0.0300 | 0.0400 | 0.500 | 100% | 50.0% |"
    assert kept in report
    cells = (
        "| mnist_sym40 | own | kept, noise model | 0/2 | 1/2 (0.040, 2 of 50) | 0/2 | 0/2 | 0/2 |"
    )
    assert cells in report
    claimless = changed(exact, "keep_cleanest", 0.02, **claimless)
    half = "| kept, noise model | 0.02 | 1 of 2 | 100.0% | 0.0200 | 0.0200 | 0.250 | 50% | 50.0% |"
    assert half in render([exact, claimless], "- Command: a test")  # taken: fraction of all runs
    one = {"claims": [True, False], "taken": [50, 0], "mistakes": [1, 0]}
    three = "| kept, noise model | 0.02 | 2 of 2 | 100.0% | 0.0200 | 0.0200 | 0.500 | 75% | 66.7% |"
    assert three in render([exact, changed(row(), "keep_cleanest", 0.02, **one)], "")
    settings = lines_of(row(labels="none"), exact, broken)[
        "Settings with every level kept: `keep_cleanest`"
    ]
    assert settings.measured == "1 of 2 (50.0%); not: mnist_sym40, own"


def test_f1_is_judged_on_own_labels():
    mnist = row(), row(labels="symmetric 0.4", f1=dict(row()["f1"], default=0.9))
    line = lines_of(*mnist)["F1 of the default flags, mnist_sym40"]
    assert line.is_met
    assert line.measured == "0.970; target missed; redrawn symmetric 0.4: 0.900 to 0.900"
    assert lines_of(*mnist)["F1 of the default flags, cifar10_sym40"].is_met is None


def test_best_threshold_takes_ties_together():
    wrong = np.array([True, False, True, False])
    assert error_control.best_f1(np.array([3, 2, 1, 0]), wrong) == pytest.approx(0.8)
    assert error_control.best_f1(np.zeros(4), wrong) == pytest.approx(2 / 3)
    assert error_control.best_f1(np.zeros(4), ~np.ones(4, bool)) is None


def test_equal_rates_are_drawn_side_by_side():
    assert side_by_side([0.4, 0.1, 0.4], step=0.1) == pytest.approx([0.35, 0.1, 0.45])
