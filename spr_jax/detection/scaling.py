"""Columns of one scale, where that helps: the units of a table say nothing about its classes.

The components of a network's features are another matter: there the scale tells signal from noise.
So the labels decide: of the features as given and of those on one scale, the detector takes those
that predict the given labels better, each label from a ridge regression without it.
"""

import numpy as np

from spr_jax.detection.ridge import left_out
from spr_jax.io.columns import scale_of

TRIAL_ROWS = 1000
BETTER = 0.98  # fraction of the error below which scaled features are taken
PENALTIES = 10.0 ** np.arange(-4, 4)  # of the mean eigenvalue of X'X


def scale_if_better(
    features: np.ndarray,  # [N, d]
    labels: np.ndarray,  # [N], numbers of classes
) -> np.ndarray:
    """Return the features, with columns on one scale if that predicts the labels better."""
    rows = np.random.default_rng(0).permutation(len(labels))[:TRIAL_ROWS]
    sample, targets = features[rows], np.eye(labels.max() + 1)[labels[rows]]
    scale = scale_of(sample)
    as_given, scaled = (left_out_error(each, targets) for each in (sample, scale.apply(sample)))
    return scale.apply(features) if scaled < BETTER * as_given else features


def left_out_error(
    features: np.ndarray,  # [n, d]
    targets: np.ndarray,  # [n, c]
) -> float:
    """Mean squared error of a ridge regression for examples left out, at the best penalty."""
    predictions = left_out(features, targets, PENALTIES)
    return min(np.mean(np.sum((targets - each) ** 2, axis=1)).item() for each in predictions)
