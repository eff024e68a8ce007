"""How good a selection is, where the true labels are known."""

import numpy as np
from scipy.stats import rankdata


def selection_quality(
    clean: np.ndarray,  # [N] bool
    right: np.ndarray,  # [N] bool, whether the given label is the true one
    suspicion: np.ndarray | None = None,  # [N], larger is more suspect
) -> dict[str, float]:
    """Label precision and recall of the clean set, their F1, and AUROC of the ranking.

    Precision is the share of right labels among those called clean, recall the share of the right
    labels that are called clean; AUROC the chance that a wrong label is ranked above a right one.
    """
    found = float(np.sum(clean & right))
    precision = found / max(int(np.sum(clean)), 1)
    recall = found / max(int(np.sum(right)), 1)
    quality = {
        "label_precision": precision,
        "label_recall": recall,
        "label_f1": 2 * precision * recall / max(precision + recall, 1e-12),
    }
    if suspicion is not None and 0 < right.sum() < len(right):
        quality["label_auroc"] = auroc(suspicion, ~right)
    return quality


def auroc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Mann and Whitney's statistic, ties counted half."""
    ranks, count = rankdata(scores), int(positive.sum())
    above = ranks[positive].sum() - count * (count + 1) / 2
    return float(above / (count * (len(scores) - count)))
