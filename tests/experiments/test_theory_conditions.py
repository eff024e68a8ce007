"""The conditions and the simulation of Theorem 1, against slow solutions and known limits."""

import csv
import re
import sys

import numpy as np
import pytest
from conftest import make_data
from sklearn.linear_model import Lasso

from experiments import theory_conditions, theory_conditions_report, theory_simulation
from experiments.rankings import by_residual, orthonormal
from experiments.theory import conditions
from experiments.theory_conditions import examine, main, measure, noise_of_fit, separated
from experiments.theory_simulation import (
    draw_targets,
    keeps_within,
    lasso,
    make_model,
    recovering_penalties,
    simulate,
    try_out,
)
from spr_jax.solver import CleanSet


@pytest.fixture
def model():
    return make_model(0.25, per_class=8, classes=3)


def signs_by_sklearn(model, target, penalty):
    """Signs of gamma [n, c], column by column over the dense design."""
    n = len(model.basis)
    design = np.eye(n) - model.basis @ model.basis.T
    solver = Lasso(alpha=penalty / n, fit_intercept=False, tol=1e-10, max_iter=100_000)
    return np.sign([solver.fit(design, design @ column).coef_ for column in target.T]).T


def test_lasso_solves_its_problem(model):
    """The conditions of optimality, and scikit-learn's answer."""
    target, penalty = draw_targets(model, 1.0, 1, 0.2, 0)[0], 0.3
    gamma = lasso(model.basis, target, penalty)
    rest = target - gamma
    gradient = rest - model.basis @ (model.basis.T @ rest)
    assert np.abs(gradient).max() <= penalty + 1e-6
    np.testing.assert_allclose(
        gradient[gamma != 0], penalty * np.sign(gamma[gamma != 0]), atol=1e-6
    )
    np.testing.assert_array_equal(np.sign(gamma), signs_by_sklearn(model, target, penalty))


def test_penalties_that_recover_are_those_of_the_lasso(model):
    targets = draw_targets(model, 1.0, 6, 0.1, 0)
    low, high = recovering_penalties(model, targets)
    assert 0 < np.mean(low < high) and np.isfinite(high).all()
    seen = set()
    for penalty in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8):
        for target, lowest, highest in zip(targets, low, high, strict=True):
            right = bool((signs_by_sklearn(model, target, penalty) == model.shift).all())
            assert right == (lowest < penalty < highest)
            seen.add(right)
    assert seen == {True, False}


def test_right_labels_that_are_called_wrong_are_noticed(model):
    targets = draw_targets(model, 1.0, 5, 0.1, 0)
    assert keeps_within(model, targets, 0.5).all()
    is_right = ~model.shift.any(axis=1)
    spoilt = targets.copy()
    spoilt[2, np.flatnonzero(is_right)[0], 1] += 5
    assert keeps_within(model, spoilt, 0.5).tolist() == [True, True, False, True, True]
    assert not keeps_within(model, targets, 1e-3).any()


def test_large_shifts_are_recovered_and_small_ones_are_not(model):
    sigma = 0.1
    asked = model.conditions.least_shift(model.conditions.least_penalty(sigma))
    large, tiny = (try_out(model, size, sigma, 40, 0) for size in (2 * asked, 0.01 * asked))
    assert large["exactly"] == large["within"] == large["somewhere"] == 1
    assert tiny["exactly"] == tiny["somewhere"] == 0 and tiny["within"] == 1
    assert large["asked"] == tiny["asked"] == asked


def test_where_most_of_a_class_is_wrong_nothing_is_recovered():
    row = try_out(make_model(0.75, per_class=8, classes=3), 1.0, 0.01, 20, 0)
    assert row["eta"] < 0 and row["penalty"] == np.inf
    assert row["somewhere"] == 0 and "within" not in row and "exactly" not in row


def test_eta_of_features_that_tell_the_class_is_a_matter_of_the_rate():
    """A share r of each class wrong: 1 - r / (1 - r), so that C2 is a majority of right labels."""
    for rate in (0.125, 0.25, 0.375):
        found = make_model(rate, per_class=8, classes=3, blur=1e-6).conditions
        assert found.eta == pytest.approx(1 - rate / (1 - rate), abs=1e-3)
        assert found.c_min == pytest.approx(1 - rate, abs=1e-3)


def test_a_model_has_as_many_wrong_labels_as_asked_for():
    shift = make_model(0.25, per_class=8, classes=3).shift
    assert shift.any(axis=1).reshape(3, 8).sum(axis=1).tolist() == [2, 2, 2]
    assert (shift.sum(axis=1) == 0).all()


def test_what_varies_is_the_shift_or_eta():
    rows = simulate(3, rates=(0.1, 0.2))
    by = {kind: [row for row in rows if row["varied"] == kind] for kind in ("eta", "shift")}
    assert {row["size"] for row in by["eta"]} == {1.0}
    assert [row["sigma"] for row in by["eta"]] == [*theory_simulation.SIGMAS] * 2
    ratios = [row["size"] / row["asked"] for row in by["shift"]]
    np.testing.assert_allclose(ratios, theory_simulation.SIZES)


def test_a_piece_is_examined_with_its_own_basis():
    features, given, true = make_data(n=60, d=12, num_classes=3)
    found = examine(features, given, true)
    centred = features - features.mean(axis=0)
    scores = np.hstack([np.linalg.svd(centred)[0][:, :10], np.ones((60, 1))])
    basis = np.linalg.qr(scores)[0]
    expected = conditions(basis, given, true)
    np.testing.assert_allclose([found["c_min"], found["eta"], found["mu"]], expected[:3], rtol=1e-6)
    rest = (np.eye(60) - basis @ basis.T) @ np.eye(3)[true]
    sigma = np.sqrt((rest**2).sum() / (60 - 11) / 3)
    assert noise_of_fit(basis, true) == pytest.approx(sigma) == pytest.approx(found["sigma"])
    assert found["asked"] == expected.least_shift(expected.least_penalty(sigma))


def test_a_piece_is_separated_if_a_threshold_does_it():
    wrong = np.array([True, False, False])
    assert separated(np.array([3.0, 1, 2]), wrong) and not separated(np.array([2.0, 1, 2]), wrong)
    assert separated(np.array([1.0, 1, 1]), ~wrong & wrong)


@pytest.fixture
def reports(tmp_path, monkeypatch):
    monkeypatch.setattr(theory_conditions, "origin", lambda *packages: "- Command: a test")
    monkeypatch.setattr(theory_conditions, "SPLITS", (10, None))
    monkeypatch.setattr(theory_conditions, "FEW_RATES", (0.1,))
    return tmp_path


def make_file(path, **changes):
    features, given, true = make_data(n=300, d=12, num_classes=3, separation=3)
    np.savez(path, **{"features": features, "given": given, "true": true} | changes)
    return str(path)


def ranked_by_residual(features, given, per_class, dim):
    """A stand-in for `solve` that compiles nothing."""
    score = by_residual(orthonormal(features, dim, intercept=True), given)
    return CleanSet(score < np.median(score), score, None, None)


@pytest.mark.parametrize("solver", ["residual", pytest.param("path", marks=pytest.mark.slow)])
def test_a_small_run_is_reported_and_read_again(solver, reports, capsys, monkeypatch):
    if solver == "residual":
        monkeypatch.setattr(theory_conditions, "solve", ranked_by_residual)
    noisy = make_file(reports / "noisy_e1.npz")
    with np.load(noisy) as file:
        clean = make_file(reports / "clean_e1.npz", given=file["true"])
    arguments = ["--small", "--draws=3", f"--out={reports / 'out'}", f"--reports={reports}"]
    main([*arguments, "--report", "--features", noisy, clean])
    report = (reports / "theory_conditions.md").read_text()
    assert report.startswith("# ") and str(reports) not in report
    for name in theory_conditions_report.PLOTS:
        assert name in report and (reports / name).read_bytes().startswith(b"\x89PNG")
    with open(reports / "theory_conditions.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["features"]]
    assert [(row["features"], row["piece"]) for row in rows] == [
        ("noisy_e1", "10 per class"),
        ("noisy_e1", "whole data"),
        ("clean_e1, redrawn", "10 per class"),
        ("clean_e1, redrawn", "whole data"),
    ]
    of_whole = [float(row["label_auroc"]) for row in rows if row["piece"] == "whole data"]
    assert min(of_whole) > 0.99
    capsys.readouterr()
    main([*arguments, "--read"])
    assert capsys.readouterr().out.strip() == report.strip()


def test_pieces_without_wrong_labels_are_left_out(reports, monkeypatch):
    found = CleanSet(np.ones(300, bool), np.arange(300.0), None, None)
    monkeypatch.setattr(theory_conditions, "solve", lambda *arguments: found)
    features, given, true = make_data(n=300, d=12, num_classes=3, separation=3)
    given = true.copy()
    given[0] = (true[0] + 1) % 3
    rows = measure("x", {"features": features, "given": given.astype(np.int32), "true": true})
    assert [row["pieces"] for row in rows] == [1, 1]


MISTAKES = {
    "no such file": ("missing.npz", "Cannot read .*missing.npz: No such file"),
    "no true labels": ("half.npz", "half.npz has no true; expected an .npz file of features"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_bad_files_are_reported_in_a_sentence(name, tmp_path, capsys, monkeypatch):
    file, sentence = MISTAKES[name]
    np.savez(tmp_path / "half.npz", features=np.zeros((2, 2)), given=np.zeros(2))
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", theory_conditions.__spec__)
    with pytest.raises(SystemExit) as stop:
        main(["--features", str(tmp_path / file)])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1
    assert re.search(sentence, said)
