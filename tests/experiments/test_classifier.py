"""The comparison of classifiers: its labels and its table."""

import numpy as np
import pytest

pytest.importorskip("cleanlab")
from experiments import classifier


def test_the_asked_fraction_is_flipped_to_other_classes():
    true = np.arange(50) % 5
    given = classifier.flipped(true, 0.3, seed=1)
    assert np.sum(given != true) == 15 and set(given) <= set(range(5))
    assert (classifier.flipped(true, 0.3, seed=2) != given).any()


def test_the_table_marks_the_best(monkeypatch, capsys):
    def accuracies(name, rate, seed):
        return [90.0, 80.0, 95.0 if name == "iris" else 85.0]

    monkeypatch.setattr(classifier, "accuracies", accuracies)
    monkeypatch.setattr(classifier, "origin", lambda *_: "- here")
    classifier.main(["--seeds=2"])
    said = capsys.readouterr().out
    assert "ahead of both\nin 2 of 8 rows" in said
    assert "| iris | 20% | 90.0 ± 0.0 | 80.0 ± 0.0 | **95.0 ± 0.0** |" in said
    assert "| wine | 40% | **90.0 ± 0.0** | 80.0 ± 0.0 | 85.0 ± 0.0 |" in said
