"""A self-test on the user's own data: flip some labels on purpose, and see how many are found.

    flipped = flip_labels(labels, 0.05)
    found = find_label_errors(features, flipped)
    result = judge(found, flipped, flipped != labels)

Labels that were wrong before are suspect, too, and count as false alarms here: so the precision is
a lower bound. A flip goes to any other class with the same probability; people confuse similar
classes, and those errors are harder to find. Classes are those after the flips, as in a review.
"""

import itertools
import numbers
from typing import Any

import numpy as np

from spr_jax.detection.types import Detection
from spr_jax.io.text import print_columns, shown
from spr_jax.noise import symmetric

ENOUGH = 0.95  # fraction of the flips at which the review budgets end


def check_fraction(self_test: float) -> None:
    if not isinstance(self_test, numbers.Real) or not 0 < self_test < 0.5:
        raise ValueError(
            f"self_test is {self_test!r}; expected a fraction between 0 and 0.5, such as 0.05."
        )


def flip_labels(labels: np.ndarray, fraction: float, *, seed: int = 0) -> np.ndarray:
    """Give a fraction of each class a random other label."""
    check_fraction(fraction)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"All labels are {shown(classes[0])}; expected at least two classes.")
    flipped = classes[symmetric(codes, fraction, num_classes=len(classes), seed=seed)]
    if (flipped == labels).all():
        raise ValueError(
            f"self_test is {fraction:g}, which flips no label at all; raise it, or drop it."
        )
    return flipped


def judge(found: Detection, labels: np.ndarray, is_flipped: np.ndarray) -> dict[str, Any]:
    """Compute recall and precision of the flips, overall and by class, and by review budget.

    Recall is the fraction of the flips that are suspect, precision the fraction of the suspects
    that were flipped; None where there are none.
    """
    suspect = ~found.clean

    def counts(chosen):
        hits = int(np.sum(chosen & suspect & is_flipped))
        flips, suspects = (int(np.sum(chosen & column)) for column in (is_flipped, suspect))
        return {
            "flipped": flips,
            "suspect": suspects,
            "found": hits,
            "recall": hits / flips if flips else None,
            "precision": hits / suspects if suspects else None,
        }

    classes = found.noise.classes
    return {
        **counts(np.ones(len(labels), bool)),
        "wrong_share": found.noise.rate,
        "classes": [{"label": label.item(), **counts(labels == label)} for label in classes],
        "review": review(is_flipped[found.order]),
    }


def review(hits: np.ndarray) -> list[dict[str, int]]:
    """Count the flips in the top 10, 20, 50, ... suspects, until 95 % are found."""
    met, rows = np.cumsum(hits), []
    for budget in _round_numbers():
        looked = min(budget, len(hits))
        rows.append({"look_at": looked, "found": int(met[looked - 1])})
        if looked == len(hits) or met[looked - 1] >= ENOUGH * met[-1]:
            break
    return rows


def _round_numbers():
    """10, 20, 50, 100, 200 ..."""
    return (step * 10**power for power in itertools.count(1) for step in (1, 2, 5))


def print_judged(judged: dict[str, Any]) -> None:
    print(
        f"Self-test: {judged['flipped']:,} labels were flipped, and {_percent(judged['recall'])} "
        f"of them are among the {judged['suspect']:,} suspects. At least "
        f"{_percent(judged['precision'])} of the suspects are errors: this many were flipped, and "
        "errors that were there before are not counted."
    )
    head = ("class", "flipped", "suspects", "recall", "precision")
    print_columns(
        head,
        [
            (
                shown(row["label"]),
                f"{row['flipped']:,}",
                f"{row['suspect']:,}",
                _percent(row["recall"]),
                _percent(row["precision"]),
            )
            for row in judged["classes"]
        ],
    )
    print()
    for row in judged["review"]:
        print(f"Top {row['look_at']:,} suspects: {row['found']:,} flips found.")


def _percent(value):
    return "-" if value is None else f"{100 * value:.1f} %"
