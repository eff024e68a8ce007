"""Quality of a selection where the true labels are known."""

import numpy as np

from spr_jax.methods.method import Memory
from spr_jax.types import Split


def describe_selection(train: Split, memory: Memory) -> dict[str, float]:
    """Size, numbers and, if the truth is known, quality of the clean set in a method's memory."""
    if "clean" not in memory:
        return {}
    clean = np.asarray(memory["clean"])
    row = {"clean_share": float(clean.mean())}
    row |= {name: float(value) for name, value in memory.get("selection", {}).items()}
    if train.true_labels is not None:
        right = np.asarray(train.labels) == train.true_labels
        row |= selection_quality(clean, right, memory.get("suspicion"))
    return row


def selection_quality(
    clean: np.ndarray,  # [N] bool
    right: np.ndarray,  # [N] bool, where the given label is the true one
    suspicion: np.ndarray | None = None,  # [N], larger is more suspect
) -> dict[str, float]:
    """Label precision and recall of the clean set, their F1, and AUROC of the ranking.

    Precision is the fraction of correct labels among those called clean, recall the fraction of the
    correct labels that are called clean; AUROC the probability that a wrong label is ranked above a
    correct one.
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
    """Compute Mann and Whitney's statistic, ties counted half."""
    # Ranks from 1, without scipy.stats, which takes a second to import.
    _, place, ties = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]
    count = int(positive.sum())
    above = ranks[positive].sum() - count * (count + 1) / 2
    return float(above / (count * (len(scores) - count)))
