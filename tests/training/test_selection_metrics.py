"""Selection quality by hand, the ranking against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from spr_jax.training.selection_metrics import auroc, describe_selection, selection_quality
from spr_jax.types import Split


@pytest.mark.parametrize("digits", [8, 1, 0])  # the fewer, the more ties
def test_auroc_matches_sklearn(digits):
    generator = np.random.default_rng(0)
    positive = generator.random(200) < 0.3
    scores = np.round(generator.standard_normal(200) + positive, digits)
    np.testing.assert_allclose(auroc(scores, positive), roc_auc_score(positive, scores))


def test_quality_by_hand():
    clean = np.array([1, 1, 1, 0, 0, 0], bool)
    right = np.array([1, 1, 0, 1, 1, 0], bool)
    quality = selection_quality(clean, right, suspicion=np.array([1, 2, 6, 3, 4, 5]))
    assert quality == pytest.approx(
        {"label_precision": 2 / 3, "label_recall": 1 / 2, "label_f1": 4 / 7, "label_auroc": 1.0}
    )


def test_a_selection_of_nothing_has_quality_zero():
    nothing, right = np.zeros(4, bool), np.array([1, 1, 0, 0], bool)
    quality = selection_quality(nothing, right)
    assert quality == {"label_precision": 0.0, "label_recall": 0.0, "label_f1": 0.0}


def test_without_wrong_labels_there_is_no_ranking():
    everything = np.ones(4, bool)
    quality = selection_quality(everything, everything, suspicion=np.arange(4.0))
    assert quality == {"label_precision": 1.0, "label_recall": 1.0, "label_f1": 1.0}


def test_a_selection_is_described_by_what_is_known():
    labels = np.array([0, 1, 1, 0])
    memory = {
        "clean": np.array([1, 1, 1, 0], bool),
        "selection": {"estimated_noise": np.float32(0.5)},
    }
    size = {"clean_share": 0.75, "estimated_noise": 0.5}
    assert describe_selection(Split(None, labels), memory) == size
    found = describe_selection(Split(None, labels, np.array([0, 1, 0, 0])), memory)
    assert found == pytest.approx(
        size | {"label_precision": 2 / 3, "label_recall": 2 / 3, "label_f1": 2 / 3}
    )
    ranked = memory | {"suspicion": np.array([0.1, 0.2, 0.9, 0.3])}
    found = describe_selection(Split(None, labels, np.array([0, 1, 0, 0])), ranked)
    assert found["label_auroc"] == 1
    assert describe_selection(Split(None, labels), {}) == {}
