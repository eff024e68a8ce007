"""Detectors of label errors that ours is compared with, on the same features and predictions.

A detector gives each example a suspicion and says whether it is a suspect, by its own rule and with
its default settings. What several detectors start from is computed once: class probabilities out
of fold (`predictions.py`), the nearest examples, and the entries of SPR's path.
"""

import time
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from sklearn.neighbors import NearestNeighbors

from experiments.predictions import out_of_fold, standardized
from experiments.rankings import keep_share, orthonormal, residuals
from experiments.simifeat import similar, similarity_rank, similarity_vote
from spr_jax.detection.find import (
    Fitted,
    components_for,
    decide,
    find_label_errors,
    fit_detector,
)
from spr_jax.detection.options import DetectorOptions
from spr_jax.detection.types import Detection

NEIGHBOURS = 10


class Nearest(NamedTuple):
    features: np.ndarray  # [N, d], on the scale that they were found on
    index: np.ndarray  # [N, NEIGHBOURS], without the example itself


def _nearest(features):
    search = NearestNeighbors(n_neighbors=NEIGHBOURS, algorithm="brute").fit(features)
    return Nearest(features, search.kneighbors(return_distance=False))


class Evidence:
    """The input of a detector, without the true labels, and what is computed from it once."""

    def __init__(self, features: np.ndarray, given: np.ndarray, rate: float | None = None):
        self.features = features  # [N, d]
        self.given = np.unique(given, return_inverse=True)[1]  # [N], all of 0 .. c - 1 occur
        self.rate = rate  # fraction of wrong labels, for a detector that is told
        self.num_classes = int(self.given.max()) + 1

    @cached_property
    def predicted(self) -> np.ndarray:
        """Class probabilities [N, c], out of fold."""
        return out_of_fold(self.features, self.given)

    @cached_property
    def nearest(self) -> Nearest:
        """Neighbours on the features as given or standardized: where their labels agree more."""
        scales = (self.features, standardized(self.features))
        choices = [_nearest(features.astype(np.float32)) for features in scales]
        agreement = [np.mean(self.given[found.index] == self.given[:, None]) for found in choices]
        return choices[int(np.argmax(agreement))]

    @cached_property
    def votes(self) -> np.ndarray:
        """Fraction of the nearest examples with each label, [N, c], without the example itself."""
        labels = self.given[self.nearest.index]
        return np.stack([np.mean(labels == k, axis=1) for k in range(self.num_classes)], axis=1)

    @cached_property
    def similar(self) -> tuple[np.ndarray, np.ndarray]:
        """The most similar examples by angle and their similarities, for SimiFeat."""
        return similar(self.nearest.features)

    @cached_property
    def fitted(self) -> Fitted:
        """Our detector, before a criterion decides which labels are suspect."""
        return fit_detector(self.features, self.given, DetectorOptions())

    @cached_property
    def found(self) -> Detection:
        """The answer of our detector with its default options."""
        return decide(self.fitted, DetectorOptions())

    @cached_property
    def entry(self) -> np.ndarray:
        """Where each example enters SPR's path, [N]; larger is more suspect."""
        return find_label_errors(self.features, self.given, keep=0.5).entry_penalty

    def own(self, probability: np.ndarray) -> np.ndarray:
        """The probability [N] of each example's given label."""
        return probability[np.arange(len(self.given)), self.given]


class Verdict(NamedTuple):
    suspicion: np.ndarray  # [N], larger is more suspect
    suspect: np.ndarray  # [N] bool


class Detector(NamedTuple):
    title: str
    judge: Callable[[Evidence], Verdict]
    needs: tuple[str, ...] = ()  # parts of the evidence
    told: bool = False  # it is told the true rate, as no user could


def ours(evidence: Evidence) -> Verdict:
    """Our detector with its default options."""
    return Verdict(-evidence.found.rank, ~evidence.found.clean)


def spr(evidence: Evidence) -> Verdict:
    """SPR's own rule: the half of each class that enters the path first is suspect."""
    return _early(evidence, 0.5)


def spr_told(evidence: Evidence) -> Verdict:
    """SPR's path, with the true fraction of wrong labels flagged in each class."""
    return _early(evidence, evidence.rate)


def _early(evidence, fraction):
    share = np.full(evidence.num_classes, 1 - fraction)
    return Verdict(evidence.entry, ~keep_share(evidence.entry, evidence.given, share))


def cleanlab(evidence: Evidence, filter_by: str, **how) -> Verdict:
    """Confident learning (Northcutt, Jiang and Chuang, 2021), as released on PyPI."""
    from cleanlab.filter import find_label_issues  # installed only if it is asked for
    from cleanlab.rank import get_label_quality_scores

    given, predicted = evidence.given, evidence.predicted
    found = find_label_issues(given, predicted, filter_by=filter_by, n_jobs=1)
    return Verdict(1 - get_label_quality_scores(given, predicted, **how), found)


def _filtered(title, filter_by, **how):
    return Detector(title, lambda evidence: cleanlab(evidence, filter_by, **how), ("predicted",))


def cleanlab_neighbours(evidence: Evidence) -> Verdict:
    """Confident learning on the votes of ten neighbours, as Datalab does with features alone."""
    from cleanlab.classification import CleanLearning

    learning = CleanLearning(find_label_issues_kwargs={"n_jobs": 1})
    found = learning.find_label_issues(labels=evidence.given, pred_probs=evidence.votes)
    return Verdict(1 - found["label_quality"].to_numpy(), found["is_label_issue"].to_numpy())


def predicted_other(evidence: Evidence) -> Verdict:
    """Ranking by the loss of the given label. Suspect where another class is predicted."""
    predicted = evidence.predicted
    return Verdict(1 - evidence.own(predicted), predicted.argmax(axis=1) != evidence.given)


def neighbours(evidence: Evidence) -> Verdict:
    """Fraction of the nearest that disagree. Suspect where another class has more votes."""
    own = evidence.own(evidence.votes)
    return Verdict(1 - own, evidence.votes.max(axis=1) > own)


def simifeat_vote(evidence: Evidence) -> Verdict:
    return Verdict(*similarity_vote(*evidence.similar, evidence.given))


def simifeat_rank(evidence: Evidence) -> Verdict:
    return Verdict(*similarity_rank(*evidence.similar, evidence.given))


def residual(evidence: Evidence) -> Verdict:
    """||Y - H Y|| of a least-squares fit to all examples. Suspect where another class fits best."""
    dim = components_for(len(evidence.given), num_classes=evidence.num_classes)
    left = residuals(orthonormal(evidence.features, dim, intercept=True), evidence.given)
    fitted = np.eye(left.shape[1])[evidence.given] - left
    return Verdict(np.linalg.norm(left, axis=1), fitted.argmax(axis=1) != evidence.given)


OURS = "spr_jax"
MARGIN = {"method": "normalized_margin"}
DETECTORS = {
    OURS: Detector("spr_jax", ours, ("found",)),
    "spr": Detector("SPR's path, half kept", spr, ("entry",)),
    "spr_told": Detector("SPR's path, told the rate", spr_told, ("entry",), told=True),
    "cleanlab": _filtered("cleanlab, default", "prune_by_noise_rate"),
    "cleanlab_both": _filtered("cleanlab, both filters", "both"),
    "cleanlab_off_diagonal": _filtered("cleanlab, off-diagonal", "confident_learning"),
    "cleanlab_neighbours": Detector(
        "cleanlab, neighbours", cleanlab_neighbours, ("nearest", "votes")
    ),
    "self_confidence": _filtered("self-confidence", "low_self_confidence"),
    "margin": _filtered("normalized margin", "low_normalized_margin", **MARGIN),
    "predicted": Detector("predicted != given", predicted_other, ("predicted",)),
    "neighbours": Detector(f"vote of {NEIGHBOURS} neighbours", neighbours, ("nearest", "votes")),
    "simifeat_vote": Detector("SimiFeat, vote", simifeat_vote, ("nearest", "similar")),
    "simifeat_rank": Detector("SimiFeat, rank", simifeat_rank, ("nearest", "similar")),
    "residual": Detector("OLS residual", residual),
}
RIVALS = tuple(name for name in DETECTORS if name != OURS)


def judge(name: str, evidence: Evidence, seconds: dict[str, float]) -> tuple[Verdict, float]:
    """The verdict of a detector, and its seconds with those of the parts that it needs.

    `seconds` keeps the time of each part, which is computed for the first detector that needs it.
    """
    detector = DETECTORS[name]
    for part in detector.needs:
        if part not in seconds:
            start = time.perf_counter()
            getattr(evidence, part)
            seconds[part] = time.perf_counter() - start
    start = time.perf_counter()
    verdict = detector.judge(evidence)
    took = time.perf_counter() - start
    return verdict, took + sum(seconds[part] for part in detector.needs)
