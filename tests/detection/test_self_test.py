"""Labels flipped on purpose, and how many of them are found."""

import json

import numpy as np
import pytest
from conftest import make_data
from detections import made_up

from spr_jax.detect import main
from spr_jax.detection.self_test import flip_labels, judge, review

NAMES = np.array(["ant", "bee", "cat", "dog"])


def test_a_fraction_of_each_class_is_flipped_and_the_seed_decides_which():
    labels = NAMES[np.arange(400) % 4]
    flipped = flip_labels(labels, 0.1)
    changed = flipped != labels
    assert [changed[labels == name].sum() for name in NAMES] == [10] * 4
    assert set(flipped) == set(NAMES) and flipped.dtype == labels.dtype
    np.testing.assert_array_equal(flipped, flip_labels(labels, 0.1))
    assert (flip_labels(labels, 0.1, seed=1) != flipped).any()


@pytest.mark.parametrize("fraction", [0, 0.5, -0.1, float("nan"), "0.1"])
def test_a_fraction_out_of_range_is_described(fraction):
    with pytest.raises(ValueError, match="self_test is .* 0 and 0.5"):
        flip_labels(np.arange(10) % 2, fraction)


def test_labels_that_cannot_be_flipped_are_described():
    with pytest.raises(ValueError, match="0.05"):
        flip_labels(np.arange(10) % 2, 0.05)
    with pytest.raises(ValueError, match="labels are 3"):
        flip_labels(np.full(10, 3), 0.2)


def test_recall_and_precision_by_hand():
    given = np.array(["a", "a", "a", "a", "b", "b", "b", "b"])
    wrong = [0.9, 0.8, 0.7, 0.1, 0.6, 0.2, 0.1, 0.1]  # suspects: three of a, one of b
    is_flipped = np.array([1, 0, 1, 1, 0, 0, 0, 0], bool)
    judged = judge(made_up(given, given, wrong), given, is_flipped)
    assert (judged["flipped"], judged["suspect"], judged["found"]) == (3, 4, 2)
    assert judged["recall"] == pytest.approx(2 / 3) and judged["precision"] == 0.5
    first, second = judged["classes"]
    assert first["label"] == "a" and first["precision"] == pytest.approx(2 / 3)
    assert second["recall"] is None and second["precision"] == 0


def test_a_review_ends_when_most_are_found():
    hits = np.zeros(1000, bool)
    hits[[0, 3, 15, 30, 40, 45, 120]] = True
    assert review(hits) == [
        {"look_at": 10, "found": 2},
        {"look_at": 20, "found": 3},
        {"look_at": 50, "found": 6},
        {"look_at": 100, "found": 6},
        {"look_at": 200, "found": 7},
    ]
    assert review(np.array([False] * 14 + [True]))[-1] == {"look_at": 15, "found": 1}


def test_the_command_reports_the_flips_and_then_the_errors(tmp_path, monkeypatch, capsys):
    features, given, true = make_data(400, rate=0.1)

    def find(_, labels, **options):  # all errors, the flips and those from before
        return made_up(labels, NAMES[true], np.where(labels != NAMES[true], 0.9, 0.1))

    monkeypatch.setattr("spr_jax.detect.find_label_errors", find)
    np.save(tmp_path / "features.npy", features)
    np.save(tmp_path / "labels.npy", NAMES[given])
    files = [str(tmp_path / name) for name in ("features.npy", "labels.npy")]
    main([*files, f"--out={tmp_path / 'out'}", "--self_test=0.1"])
    printed = capsys.readouterr().out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    judged, flips = summary["self_test"], sum(int(0.1 * np.sum(given == k)) for k in range(4))
    assert judged["share"] == 0.1 and judged["flipped"] == flips
    assert judged["recall"] > 0.95  # a flip may correct a wrong label
    assert judged["precision"] == pytest.approx(judged["found"] / judged["suspect"])
    assert 0.3 < judged["precision"] < 0.7  # errors from before are no flips
    assert judged["review"][-1]["look_at"] == 100  # all errors come before the rest
    assert judged["wrong_share"] > summary["wrong_share"]
    assert summary["suspect"] == np.sum(given != true)
    assert f"Self-test: {flips} labels" in printed
    assert f"Top {judged['review'][-1]['look_at']} suspects" in printed
    assert printed.index("Self-test") < printed.index("Without the flips")
