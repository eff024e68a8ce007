"""Results in words and in files."""

import csv
import json

import numpy as np
import pytest
from detections import pets, promised

from spr_jax.detection.results import print_summary, summarize, write_results


def printed(capsys, found, given, top=0):
    print_summary(found, given, summarize(found, given, 1.0), top)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "mistakes"), [("clean", "wrong labels"), ("suspects", "correct labels")]
)
def test_classes_that_cannot_keep_a_level_are_named(capsys, kind, mistakes):
    _, given, found, _ = pets()
    found = promised(found, 0.05, kind)
    said = printed(capsys, found, given)
    assert f"At most 5 % {mistakes}" in said and "every class" in said
    attained, lowest = np.array([True, False, False]), np.array([0.01, 0.123, np.inf])
    missed = found._replace(promise=found.promise._replace(attained=attained, lowest=lowest))
    said = printed(capsys, missed, given)
    assert "2 of 3 classes" in said and "cow (not below 12.3 %), dog (none)" in said
    summary = summarize(missed, given, 1.0)
    assert summary["asked"] == {"level": 0.05, "kind": kind}
    assert [row["lowest_level"] for row in summary["classes"]] == [0.01, 0.123, None]


def test_features_that_explain_nothing_are_reported(capsys):
    _, given, found, _ = pets()
    assert "chance" not in printed(capsys, found, given)
    found = found._replace(noise=found.noise._replace(explained=False))
    assert "barely better than chance" in printed(capsys, found, given)


def test_the_most_suspect_are_printed(capsys):
    _, given, found, _ = pets()
    *_, first, second = printed(capsys, found, given, top=2).splitlines()
    assert first.split() == ["0", "cow", "cat", "0.990", "1.980"] and second.split()[0] == "1"


def test_files_hold_every_example(tmp_path):
    _, given, found, _ = pets()
    names = np.array([f"{number}.png" for number in range(60)])
    write_results(found, given, names, summarize(found, given, 2.0), tmp_path)
    with open(tmp_path / "labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == names.tolist()
    assert float(rows[0].pop("label_quality")) == pytest.approx(0.01, rel=1e-5)
    assert rows[0] == {
        "index": "0",
        "file": "0.png",
        "label": "cow",
        "suspect": "1",
        "error_probability": "0.99",
        "entry_penalty": "1.98",
        "rank": "1",
        "suggested": "cat",
        "is_label_issue": "True",
        "given_label": "cow",
        "predicted_label": "cat",
    }
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["examples"], summary["suspect"], summary["duality_gap"]) == (60, 20, 0.0)
