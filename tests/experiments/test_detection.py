"""Detectors are judged alike, on what they say; what is measured is not measured again."""

import csv
import json
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from conftest import make_data
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from experiments import detection, rival_detectors
from experiments.detection import best_rival, comparison, main, measure, quality, times
from experiments.rival_detectors import DETECTORS, NEIGHBOURS, Evidence, Verdict
from spr_jax.noise import symmetric

WITHOUT_CLEANLAB = [name for name in DETECTORS if "cleanlab" not in name]
OTHERS = [name for name in WITHOUT_CLEANLAB if name not in ("spr_jax", "spr")]


@pytest.fixture(scope="module")
def evidence():
    features, given, true = make_data(n=240, rate=0.2)
    predicted = rival_detectors.out_of_fold(features, given)
    return Evidence(features, given, predicted), given != true


def test_suspects_are_counted():
    wrong = np.array([True, True, False, False, False])
    suspect = np.array([True, False, True, False, False])
    found = quality(Verdict(np.array([5.0, 1.0, 4.0, 2.0, 0.0]), suspect), wrong)
    assert found == {
        "suspects": 2,
        "precision": 0.5,
        "recall": 0.5,
        "f1": 0.5,
        "auroc": pytest.approx(4 / 6),
    }


def test_no_suspects_are_no_hits():
    found = quality(Verdict(np.arange(3.0), np.zeros(3, bool)), np.array([True, False, False]))
    assert (found["precision"], found["recall"], found["f1"]) == (0, 0, 0)


@pytest.mark.parametrize("name", OTHERS)
def test_detectors_find_most_errors(evidence, name):
    known, wrong = evidence
    verdict = DETECTORS[name].judge(known)
    assert verdict.suspicion.shape == verdict.suspect.shape == wrong.shape
    found = quality(verdict, wrong)
    assert found["auroc"] > 0.85 and found["f1"] > 0.6


def test_predictions_are_of_models_that_have_not_seen_the_example(evidence):
    known, _ = evidence
    predicted = known.predicted
    np.testing.assert_allclose(predicted.sum(axis=1), 1, rtol=1e-6)
    inside = LogisticRegression(max_iter=1000).fit(known.features, known.given)
    own = predicted[np.arange(len(predicted)), known.given]
    seen = inside.predict_proba(known.features)[np.arange(len(predicted)), known.given]
    assert own.mean() < seen.mean()


def test_neighbours_do_not_count_the_example_itself():
    """Ten of one class in one direction and one of another among them."""
    given = np.array([0] * NEIGHBOURS + [1] + [1] * (NEIGHBOURS + 1))
    features = np.zeros((len(given), 2))
    features[: NEIGHBOURS + 1] = [1, 0]
    features[NEIGHBOURS + 1 :] = [0, 1]
    features += 1e-3 * np.random.default_rng(0).normal(size=features.shape)
    verdict = DETECTORS["neighbours"].judge(Evidence(features, given, None))
    assert verdict.suspicion[NEIGHBOURS] == 1
    np.testing.assert_array_equal(np.flatnonzero(verdict.suspect), [NEIGHBOURS])
    np.testing.assert_allclose(verdict.suspicion[:NEIGHBOURS], 1 / NEIGHBOURS)


@pytest.mark.skipif(not find_spec("cleanlab"), reason="needs cleanlab: pip install .[benchmark]")
@pytest.mark.parametrize("name", ["cleanlab", "cleanlab_off_diagonal"])
def test_cleanlab_is_used_as_it_comes(evidence, name):
    from cleanlab.filter import find_label_issues

    known, wrong = evidence
    verdict = DETECTORS[name].judge(known)
    how = {} if name == "cleanlab" else {"filter_by": "confident_learning"}
    expected = find_label_issues(known.given, known.predicted, **how)
    np.testing.assert_array_equal(verdict.suspect, expected)
    assert quality(verdict, wrong)["auroc"] > 0.85


def test_predictions_count_for_those_that_need_them(evidence, monkeypatch):
    known, wrong = evidence
    monkeypatch.setattr(detection, "out_of_fold", lambda *arrays: known.predicted)
    clock = iter(range(100))
    monkeypatch.setattr(detection.time, "perf_counter", lambda: next(clock))
    true = np.where(wrong, (known.given + 1) % 4, known.given)
    row = measure(["self_confidence", "residual"], known.features, known.given, true, 0)
    assert row["wrong_share"] == wrong.mean()
    seconds = {name: found["seconds"] for name, found in row["detectors"].items()}
    assert seconds == {"self_confidence": 2, "residual": 1}


def made_up(mine, theirs, examples=10, first=9.0):
    """A row with ours and one rival."""
    numbers = {"f1": mine, "auroc": mine, "seconds": 0.5, "seconds_first": first}
    rivals = {"residual": {"f1": theirs, "auroc": theirs}, "neighbours": {"f1": 0.1, "auroc": 0.1}}
    return {"detectors": {"spr_jax": numbers} | rivals, "examples": examples}


@pytest.mark.parametrize(
    "mine, theirs, verdict", [(0.9, 0.8, "ahead"), (0.8, 0.9, "behind"), (0.8, 0.801, "even")]
)
def test_ours_stands_against_the_best_of_the_others(mine, theirs, verdict):
    row = made_up(mine, theirs)
    assert best_rival(row, "f1") == ("residual", theirs)
    assert comparison(row, "f1") == (
        f"{mine:.3f} against {theirs:.3f} (OLS residual): **{verdict}**"
    )


def test_time_is_that_of_the_largest_set():
    rows = [made_up(0.9, 0.8, 10, 1.0), made_up(0.9, 0.8, 20, 7.0), made_up(0.9, 0.8, 20, 0.6)]
    assert "20 examples take spr_jax 0.50 s" in times(rows) and "7.0 s" in times(rows)


def by_distance(features, given):
    """Class probabilities from the distances to class means: quick to compute."""
    means = np.stack([features[given == k].mean(axis=0) for k in range(given.max() + 1)])
    distances = np.linalg.norm(features[:, None] - means, axis=2)
    weights = np.exp(distances.min(axis=1, keepdims=True) - distances)
    return weights / weights.sum(axis=1, keepdims=True)


def test_a_small_run_is_reported_and_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(detection, "out_of_fold", by_distance)
    monkeypatch.setattr(detection, "origin", lambda *packages: "- Command: a test")
    features, true = load_digits(return_X_y=True)
    given = symmetric(true, 0.4, num_classes=10)
    path = tmp_path / "mnist_sym40.npz"
    np.savez(path, features=features.astype(np.float16), given=given, true=true)
    folders = [f"--out={tmp_path / 'out'}", f"--reports={tmp_path}"]
    arguments = [str(path), "--small", "--rows=400", *folders, "--report", "--detectors", *OTHERS]
    main(arguments)
    report = (tmp_path / "detection.md").read_text()
    assert "### mnist_sym40, its own, symmetric" in report
    assert "### mnist_sym40, asymmetric 0.4" in report and str(tmp_path) not in report
    assert (tmp_path / "detection.png").read_bytes().startswith(b"\x89PNG")
    with open(tmp_path / "detection.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    stored = (tmp_path / "out" / "detection.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in stored]
    assert len(lines) == len(rows) * len(OTHERS) == 3 * len(OTHERS)  # no labels without errors
    assert float(lines[0]["f1"]) == pytest.approx(rows[0]["detectors"][OTHERS[0]]["f1"], abs=1e-4)
    monkeypatch.setattr(detection, "out_of_fold", None)  # would fail if called
    main(arguments)
    main([*arguments, "--read"])
    assert (tmp_path / "detection.md").read_text() == report


MISTAKES = {
    "an unknown detector": (["--detectors", "residuals"], "Unknown detector 'residuals'; did you"),
    "no such file": (["--detectors", "residual"], "Cannot read missing.npz: No such file"),
    "no cleanlab": (["--detectors", "cleanlab"], "cleanlab is not installed; pip install"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_reported_in_a_sentence(name, capsys, monkeypatch):
    given, sentence = MISTAKES[name]
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", detection.__spec__)
    monkeypatch.setattr(detection, "find_spec", lambda package: None)
    with pytest.raises(SystemExit) as stop:
        main(["missing.npz", *given])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1 and sentence in said
