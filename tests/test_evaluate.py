"""Selection quality by hand, the ranking against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from spr_jax.evaluate import auroc, selection_quality


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
