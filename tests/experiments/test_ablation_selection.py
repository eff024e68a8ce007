"""Rankings against slow definitions; what is measured of them is what the masks say."""

import csv
import json
import re
import sys

import numpy as np
import pytest
from conftest import make_data
from reference import pca_scores, projection
from sklearn.linear_model import LinearRegression

from experiments import ablation_selection, ablation_selection_report, ablation_selection_training
from experiments.ablation_selection import (
    cases_of_file,
    fitting,
    main,
    measure,
    time_splits,
)
from experiments.ablation_selection_report import matching
from experiments.ablation_selection_training import CELLS, cells, training_table
from experiments.harness.runs import Result, config_of
from experiments.harness.study import Found, arguments
from experiments.label_sets import read_examples
from experiments.rankings import (
    by_linear_loss,
    by_residual,
    by_studentised_residual,
    in_pieces,
    keep_share,
    orthonormal,
    share_of_right,
    solve,
    tables_of_pieces,
)
from spr_jax.solver import noise_model


@pytest.fixture
def small():
    features, given, true = make_data(n=60, d=8, num_classes=3)
    return features, given, true


def test_basis_spans_the_principal_components(small):
    features, _, _ = small
    basis = orthonormal(features, 4, intercept=True)
    expected = np.hstack([pca_scores(features, 4), np.ones((60, 1))])
    np.testing.assert_allclose(basis.T @ basis, np.eye(5), atol=1e-9)
    np.testing.assert_allclose(np.eye(60) - basis @ basis.T, projection(expected), atol=1e-9)
    assert orthonormal(np.ones((9, 3)), 2, intercept=True).shape == (9, 1)


def test_residuals_are_those_of_least_squares(small):
    features, given, _ = small
    fit = LinearRegression().fit(features, np.eye(3)[given])
    expected = np.linalg.norm(np.eye(3)[given] - fit.predict(features), axis=1)
    basis = orthonormal(features, 8, intercept=True)
    np.testing.assert_allclose(by_residual(basis, given), expected, rtol=1e-8)


def test_studentised_residuals_leave_the_example_out(small):
    """t_i = (y_i - x_i' b_-i) / (s_-i sqrt(1 + x_i' (X_-i' X_-i)^-1 x_i)), from n fits."""
    features, given, _ = small
    design, targets = np.hstack([features, np.ones((60, 1))]), np.eye(3)[given]
    expected = []
    for i in range(60):
        others, labels = np.delete(design, i, axis=0), np.delete(targets, i, axis=0)
        beta = np.linalg.lstsq(others, labels, rcond=None)[0]
        variance = np.sum((labels - others @ beta) ** 2, axis=0) / (59 - 9)
        spread = 1 + design[i] @ np.linalg.inv(others.T @ others) @ design[i]
        expected.append(
            np.linalg.norm((targets[i] - design[i] @ beta) / np.sqrt(variance * spread))
        )
    basis = orthonormal(features, 8, intercept=True)
    np.testing.assert_allclose(by_studentised_residual(basis, given), expected, rtol=1e-7)


def test_linear_loss_is_largest_for_the_label_that_does_not_fit(small):
    features, _, true = small
    given = true.copy()
    given[7] = (true[7] + 1) % 3
    loss = by_linear_loss(orthonormal(features, 8, intercept=True), given)
    assert np.argmax(loss) == 7 and loss.min() >= 0


@pytest.mark.slow
def test_pieces_are_balanced_and_the_least_suspicious_counts(data):
    features, given, _ = data
    tables = tables_of_pieces(given, 10)
    assert all(np.bincount(given[index]).tolist() == [10] * 4 for index in tables)
    sizes = np.bincount(np.concatenate(tables), minlength=len(given))
    assert sizes.min() == 1 and sizes.max() > 1  # small classes start over
    score = {}
    for index in tables:
        design = projection(pca_scores(features[index], 4))
        norms = np.linalg.norm(design @ np.eye(4)[given[index]], axis=1)
        for i, norm in zip(index, norms, strict=True):
            score[i] = min(score.get(i, np.inf), norm)
    found = in_pieces(by_residual, features, given, 10, 4)
    np.testing.assert_allclose(found, [score[i] for i in range(len(given))], rtol=1e-7)


@pytest.mark.slow
def test_the_largest_residual_of_a_piece_enters_first(data):
    """In pieces that share no example with another, so that both scores have one basis."""
    features, given, _ = data
    tables = tables_of_pieces(given, 10)
    sizes = np.bincount(np.concatenate(tables), minlength=len(given))
    found = in_pieces(by_residual, features, given, 10, 4)
    entry = solve(features, given, 10, 4).entry_penalty
    pieces = [index for index in tables if sizes[index].max() == 1]
    assert pieces
    for index in pieces:
        assert np.argmax(entry[index]) == np.argmax(found[index])


def test_shares_are_kept_class_by_class():
    score, labels = np.array([5.0, 1, 3, 2, 4, 0]), np.array([0, 0, 0, 0, 1, 1])
    kept = keep_share(score, labels, np.array([0.5, 0.5]))
    assert kept.tolist() == [False, True, False, True, False, True]
    right = np.array([True, True, True, False, False, True])
    assert share_of_right(right, labels).tolist() == [0.75, 0.5]


@pytest.fixture(scope="module")
def measured():
    """Labels, and all that is measured of them; few programs are compiled."""
    features, given, true = make_data(n=300, d=12, num_classes=3, separation=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_model, "MOST_CLASSES", 2)  # the simple model alone
        patch.setattr(ablation_selection, "SPLITS", (10, 500, None))
        patch.setattr(ablation_selection, "COMPONENTS", (8, 100))
        rows = measure(features, given, true, seed=0)
        clean = solve(features, given, 10, 10).clean
        rows += time_splits(features, given)
    return given == true, rows, clean


@pytest.mark.slow
def test_each_split_is_timed(measured):
    _, rows, _ = measured
    timed = {row["piece"]: row["seconds"] for row in matching(rows, question="time")}
    assert list(timed) == ["10 per class", "whole data"] and min(timed.values()) > 0


@pytest.mark.slow
def test_larger_pieces_are_better(measured):
    _, rows, _ = measured
    whole, split = (
        of_one(rows, question="split", keep="half of each class", piece=piece)
        for piece in ("whole data", "10 per class")
    )
    assert whole["label_precision"] > split["label_precision"]
    assert whole["label_auroc"] > split["label_auroc"]
    assert not matching(rows, piece="500 per class")  # more than there are


def of_one(rows, **wanted):
    (row,) = matching(rows, **wanted)
    return row


@pytest.mark.slow
def test_the_index_defect_leaves_the_base_rate(measured):
    right, rows, clean = measured
    defect = {"question": "defect", "piece": "10 per class"}
    mapped = of_one(rows, **defect, keep="mapped back")["label_precision"]
    used = of_one(rows, **defect, keep="index defect")["label_precision"]
    visited = np.random.default_rng(0).permutation(len(right))
    assert mapped == pytest.approx(right[clean].mean())
    assert used == pytest.approx(right[clean[visited]].mean())
    assert abs(used - right.mean()) < 0.1 < mapped - right.mean()
    assert {row["base"] for row in rows if "base" in row} == {right.mean()}


@pytest.mark.slow
def test_rankings_are_compared_at_equal_shares(measured):
    right, rows, _ = measured
    ranked = matching(rows, question="ranking", piece="whole data")
    assert [row["ranking"] for row in ranked[::2]] == list(ablation_selection_report.RANKINGS)
    for keep, share in (("right share of each class", right.mean()), ("half of each class", 0.5)):
        kept = {row["kept"] for row in matching(ranked, keep=keep)}
        assert len(kept) == 1 and abs(kept.pop() - share) < 0.01
    assert min(row["label_auroc"] for row in ranked) > 0.9
    in_piece = [row["ranking"] for row in matching(rows, question="ranking", piece="10 per class")]
    assert in_piece[::2] == ["entry", "residual", "studentised"]


@pytest.mark.slow
def test_components_are_as_many_as_there_are(measured):
    _, rows, _ = measured
    found = [(row["piece"], row["components"]) for row in matching(rows, question="components")]
    assert found == [("10 per class", 8), ("whole data", 8)]


def test_splits_that_split_nothing_are_left_out():
    labels = np.repeat([0, 1], [50, 60])
    assert fitting((10, 50, 60, 500, None), labels) == [10, 50, None]


def test_a_file_is_measured_with_its_own_and_with_drawn_labels(tmp_path):
    cases = cases_of_file(tmp_path / "mnist_none_e1.npz", 2)
    names = ["symmetric 0.4", "symmetric 0.8", "asymmetric 0.4"]
    assert [case.labels for case in cases] == ["own", *(name for name in names for _ in "12")]
    unknown = cases_of_file(tmp_path / "mine.npz", 1)
    assert [case.labels for case in unknown] == ["own", *names[:2]]


@pytest.fixture
def reports(tmp_path, monkeypatch):
    """No training is started."""
    monkeypatch.setattr(ablation_selection, "origin", lambda *packages: "- Command: a test")
    nothing = lambda cells, options: {  # noqa: E731
        title: Found(cell, [Result("missing", tmp_path)] * len(cell))
        for title, cell in cells(options).items()
    }
    monkeypatch.setattr(ablation_selection, "conduct", nothing)
    return tmp_path


def made_up(features, given, true, seed):
    """A row of each question, as `measure` makes them."""
    numbers = {"base": 0.6, "kept": 0.5, "label_precision": 0.9, "label_recall": 0.75}
    common = numbers | {"label_auroc": 0.95, "components": 10, "ranking": "entry"}
    half = common | {"piece": "10 per class", "keep": "half of each class"}
    whole = half | {"piece": "whole data"}
    rows = [half | {"question": "split"}, half | {"question": "components"}]
    for keep in ("half of each class", "right share of each class"):
        rows += [
            whole | {"question": "ranking", "ranking": ranking, "keep": keep}
            for ranking in ablation_selection_report.RANKINGS
        ]
    defect = half | {"question": "defect"}
    return rows + [defect | {"keep": "mapped back"}, defect | {"keep": "index defect"}]


def test_a_small_run_is_reported_and_not_measured_again(reports, monkeypatch):
    features, given, true = make_data(n=300, d=12, num_classes=10)
    path = reports / "mnist_sym40.npz"
    np.savez(path, features=features, given=given, true=true)
    monkeypatch.setattr(ablation_selection, "RATES", {"symmetric": (0.4,)})
    monkeypatch.setattr(ablation_selection, "measure", made_up)
    timed = {"question": "time", "piece": "10 per class", "components": 10, "seconds": 0.5}
    monkeypatch.setattr(ablation_selection, "time_splits", lambda *arrays: [timed])
    arguments = [str(path), "--small", f"--out={reports / 'out'}", f"--reports={reports}"]
    assert main([*arguments, "--report"]) == 75  # runs are missing
    report = (reports / "ablation_selection.md").read_text()
    assert report.startswith("# ") and str(path) not in report
    assert "| mnist_sym40 | own | 10 per class | 0.9000 | 0.7500 | 0.9500 | - | 0.50 |" in report
    assert "Cells are precision of the kept half / AUROC." in report
    for name in ablation_selection_report.PLOTS:
        assert name in report and (reports / name).read_bytes().startswith(b"\x89PNG")
    with open(reports / "ablation_selection.csv") as file:
        rows = list(csv.DictReader(file))
    assert {(row["features"], row["labels"]) for row in rows} == {
        ("mnist_sym40", "own"),
        ("mnist_sym40", "symmetric 0.4"),
    }
    stored = (reports / "out" / "rankings.jsonl").read_text().splitlines()
    assert len(stored) == len(rows)
    assert json.loads(stored[0])["label_precision"] == pytest.approx(
        float(rows[0]["label_precision"]), abs=1e-4
    )
    monkeypatch.setattr(ablation_selection, "measure", None)  # would fail if called
    main([*arguments, "--report"])
    assert (reports / "ablation_selection.md").read_text() == report


MISTAKES = {
    "no such file": ("missing.npz", "Cannot read .*missing.npz: No such file"),
    "no given labels": ("half.npz", "half.npz has no given, true; expected an .npz file of feat"),
    "one array": ("one.npy", "one.npy has no features, given, true; expected an .npz file"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_bad_files_are_reported_in_a_sentence(name, tmp_path, capsys, monkeypatch):
    file, sentence = MISTAKES[name]
    np.savez(tmp_path / "half.npz", features=np.zeros((2, 2)))
    np.save(tmp_path / "one.npy", np.zeros((2, 2)))
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ablation_selection.__spec__)
    with pytest.raises(SystemExit) as stop:
        main([str(tmp_path / file)])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1
    assert re.search(sentence, said)


def test_a_choice_of_rows_is_always_the_same(tmp_path):
    features, given, true = make_data(n=50)
    np.savez(tmp_path / "a.npz", features=features, given=given, true=true)
    first, again = (read_examples.__wrapped__(tmp_path / "a.npz", 20) for _ in range(2))
    assert len(first["given"]) == 20
    np.testing.assert_array_equal(first["features"], again["features"])
    rows = [
        np.flatnonzero((features.astype(np.float32) == row).all(1)) for row in first["features"]
    ]
    np.testing.assert_array_equal(given[np.concatenate(rows)], first["given"])


def test_cells_differ_in_the_clean_set_alone():
    runs = cells(arguments("A study.", "study").parse_args(["--seeds=2"]))
    assert list(runs) == list(CELLS) and all(len(cell) == 2 for cell in runs.values())
    chosen = {title: config_of(cell[0]) for title, cell in runs.items()}
    methods = {title: config.method.to_dict() for title, config in chosen.items()}
    for config in chosen.values():
        config.method = {}
    assert len({config.to_json() for config in chosen.values()}) == 1
    steps = [name for name in methods["the correct labels (oracle)"] if name != "name"]
    assert len({tuple(method[name] for name in steps) for method in methods.values()}) == 1
    defects = [title for title, method in methods.items() if method.get("visit_order_defect")]
    assert len(defects) == 2 and all("defect" in title for title in defects)


def test_training_is_tabulated():
    last = {"test_top1": 0.9, "clean_share": 0.5, "label_precision": 0.97}
    summary = {"last": last, "best_on_test": {"test_top1": {"epoch": 3, "test_top1": 0.95}}}
    results = [Result("finished", None, summary), Result("missing", None)]
    text = training_table({"a": Found([], results), "b": Found([], results[1:])})
    assert "| a | 1 | 90.00 | 95.00 | 50.00 | 97.00 |" in text
    assert f"| b | 0 |{' - |' * len(ablation_selection_training.HEAD)}" in text
