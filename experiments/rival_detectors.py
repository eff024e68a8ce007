"""Detectors of label errors that ours is compared with, on the same features and predictions.

A detector gives each example a suspicion and says whether it is a suspect. Detectors that need
predictions get those of a linear softmax model that has not seen the example (`out_of_fold`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments.rankings import orthonormal, residuals
from spr_jax.detection.find import components_for, find_label_errors

FOLDS = 5
NEIGHBOURS = 10


class Evidence(NamedTuple):
    """The input of a detector, without the true labels."""

    features: np.ndarray  # [N, d]
    given: np.ndarray  # [N], all of 0 .. c - 1 occur
    predicted: np.ndarray  # [N, c], out of fold


class Verdict(NamedTuple):
    suspicion: np.ndarray  # [N], larger is more suspect
    suspect: np.ndarray  # [N] bool


class Detector(NamedTuple):
    title: str
    judge: Callable[[Evidence], Verdict]
    needs_predictions: bool


def out_of_fold(features: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Class probabilities [N, c] from models trained on the four other folds of the data."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    return cross_val_predict(model, features, given, cv=folds, method="predict_proba")


def ours(evidence: Evidence) -> Verdict:
    """Our detector with its default options."""
    found = find_label_errors(evidence.features, evidence.given)
    return Verdict(found.error_probability, ~found.clean)


def spr(evidence: Evidence) -> Verdict:
    """SPR's own rule: the half of each class that enters the path first is suspect."""
    found = find_label_errors(evidence.features, evidence.given, keep=0.5)
    return Verdict(found.entry_penalty, ~found.clean)


def cleanlab(evidence: Evidence, **how) -> Verdict:
    """Confident learning (Northcutt, Jiang and Chuang, 2021), as released on PyPI."""
    from cleanlab.filter import find_label_issues  # installed only if it is asked for
    from cleanlab.rank import get_label_quality_scores

    given, predicted = evidence.given, evidence.predicted
    quality = get_label_quality_scores(given, predicted)
    return Verdict(1 - quality, find_label_issues(given, predicted, n_jobs=1, **how))


def cleanlab_off_diagonal(evidence: Evidence) -> Verdict:
    """Confident learning's off-diagonal counts, without pruning by noise rate."""
    return cleanlab(evidence, filter_by="confident_learning")


def self_confidence(evidence: Evidence) -> Verdict:
    """Ranking by the loss of the given label. Suspect where another class is predicted."""
    given, predicted = evidence.given, evidence.predicted
    own = predicted[np.arange(len(given)), given]
    return Verdict(1 - own, predicted.argmax(axis=1) != given)


def neighbours(evidence: Evidence) -> Verdict:
    """Fraction of the nearest by angle that disagree. Suspect where another class has more."""
    features = evidence.features - evidence.features.mean(axis=0)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    search = NearestNeighbors(n_neighbors=NEIGHBOURS, algorithm="brute").fit(features)
    labels = evidence.given[search.kneighbors(return_distance=False)]  # without the example itself
    votes = np.stack([np.sum(labels == k, axis=1) for k in range(evidence.given.max() + 1)], axis=1)
    own = votes[np.arange(len(votes)), evidence.given]
    return Verdict(1 - own / NEIGHBOURS, votes.max(axis=1) > own)


def residual(evidence: Evidence) -> Verdict:
    """||Y - H Y|| of a least-squares fit to all examples. Suspect where another class fits best."""
    features, given = evidence.features, evidence.given
    dim = components_for(len(given), num_classes=int(given.max()) + 1)
    left = residuals(orthonormal(features, dim, intercept=True), given)
    fitted = np.eye(left.shape[1])[given] - left
    return Verdict(np.linalg.norm(left, axis=1), fitted.argmax(axis=1) != given)


DETECTORS = {
    "spr_jax": Detector("spr_jax", ours, False),
    "spr": Detector("SPR's path, half kept", spr, False),
    "cleanlab": Detector("cleanlab, default", cleanlab, True),
    "cleanlab_off_diagonal": Detector("cleanlab, off-diagonal", cleanlab_off_diagonal, True),
    "self_confidence": Detector("self-confidence", self_confidence, True),
    "neighbours": Detector(f"vote of {NEIGHBOURS} neighbours", neighbours, False),
    "residual": Detector("OLS residual", residual, False),
}
