"""How well errors are found in one's own data: flip some labels on purpose, and look for them.

    flipped = flip_labels(labels, 0.05)
    found = find_label_errors(features, flipped)
    judged = judge(found, flipped, flipped != labels)

Labels that were wrong before are suspects, too, and count as false alarms here: so the precision is
a lower bound. Flips go to any other class alike; errors that people make are between similar ones,
and harder to find. By class is by the label that an example has after the flips, as in a review.
"""

import itertools
import numbers
from typing import Any

import numpy as np

from spr_jax.files import shown
from spr_jax.findings import print_columns
from spr_jax.label_errors import Detection
from spr_jax.noise import symmetric

ENOUGH = 0.95  # of the flips, where the review budget ends


def check_share(share: float) -> None:
    if not isinstance(share, numbers.Real) or not 0 < share < 0.5:
        raise ValueError(
            f"The self-test is to flip a share of {share!r}; expected one between 0 and 0.5, such "
            "as 0.05."
        )


def flip_labels(labels: np.ndarray, share: float, *, seed: int = 0) -> np.ndarray:
    """A share of each class gets a random other label."""
    check_share(share)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"All labels are {shown(classes[0])}; expected at least two classes.")
    flipped = classes[symmetric(codes, share, num_classes=len(classes), seed=seed)]
    if (flipped == labels).all():
        raise ValueError(
            f"A share of {share:g} of each class flips no label at all; raise it, or do without "
            "the self-test."
        )
    return flipped


def judge(found: Detection, labels: np.ndarray, is_flipped: np.ndarray) -> dict[str, Any]:
    """Recall and precision of the flips, over all and by class, and what a review finds.

    Recall is the share of the flips that are suspect, precision that of the suspects that were
    flipped; None where there are none.
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
    """How many errors one meets by looking at so many of the most suspect, until most are met."""
    met, rows = np.cumsum(hits), []
    for budget in _round_numbers():
        looked = min(budget, len(hits))
        rows.append({"look_at": looked, "found": int(met[looked - 1])})
        if looked == len(hits) or met[looked - 1] >= ENOUGH * met[-1]:
            return rows


def _round_numbers():
    """10, 20, 50, 100, 200 ..."""
    return (step * 10**power for power in itertools.count(1) for step in (1, 2, 5))


def print_judged(judged: dict[str, Any]) -> None:
    print(
        f"Self-test: of {judged['flipped']:,} labels that were flipped, {_share(judged['recall'])} "
        f"are among the {judged['suspect']:,} suspects; {_share(judged['precision'])} of the "
        "suspects were flipped (errors that were there before count against this, so it is at "
        "least that)."
    )
    head = ("class", "flipped", "suspect", "recall", "precision")
    print_columns(
        head,
        [
            (
                shown(row["label"]),
                f"{row['flipped']:,}",
                f"{row['suspect']:,}",
                _share(row["recall"]),
                _share(row["precision"]),
            )
            for row in judged["classes"]
        ],
    )
    print()
    for row in judged["review"]:
        print(f"Look at the {row['look_at']:,} most suspect: {row['found']:,} flips found.")


def _share(value):
    return "-" if value is None else f"{100 * value:.1f} %"
