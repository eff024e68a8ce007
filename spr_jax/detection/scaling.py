"""Columns of one scale, where that helps: the units of a table say nothing about its classes.

The components of a network's features are another matter: there the scale tells signal from noise.
So the labels decide: of the features as given and of those on one scale, the detector takes those
that predict the given labels better, each label from a ridge regression without it.
"""

import numpy as np

from spr_jax.detection.ridge import left_out

TRIAL_ROWS = 1000
FARTHEST = 8.0  # deviations from the median; a cell of -99999 must not decide anything
BETTER = 0.98  # fraction of the error below which scaled features are taken
PENALTIES = 10.0 ** np.arange(-4, 4)  # of the mean eigenvalue of X'X


def scale_if_better(
    features: np.ndarray,  # [N, d]
    labels: np.ndarray,  # [N], numbers of classes
) -> np.ndarray:
    """Return the features, with columns on one scale if that predicts the labels better."""
    rows = np.random.default_rng(0).permutation(len(labels))[:TRIAL_ROWS]
    sample, targets = features[rows], np.eye(labels.max() + 1)[labels[rows]]
    as_given, scaled = (
        left_out_error(each, targets) for each in (sample, one_scale(sample, sample))
    )
    return one_scale(features, sample) if scaled < BETTER * as_given else features


def one_scale(features: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """Median zero and spread one in every column, nothing far away; robust to wild cells."""
    low, median, high = np.percentile(sample, [25, 50, 75], axis=0).astype(np.float32)
    spread = (high - low) / 1.349  # the standard deviation of a normal column
    # Most of a column may be one value: a rare event, or a unit of a network that is mostly off.
    deviation = np.sqrt(np.mean((sample - median) ** 2, axis=0, dtype=np.float64))
    spread = np.where(spread > 0.05 * deviation, spread, deviation)
    scaled = (features - median) / np.where(spread > 0, spread, 1).astype(np.float32)
    return np.clip(scaled, -FARTHEST, FARTHEST, out=scaled)


def left_out_error(
    features: np.ndarray,  # [n, d]
    targets: np.ndarray,  # [n, c]
) -> float:
    """Mean squared error of a ridge regression for examples left out, at the best penalty."""
    predictions = left_out(features, targets, PENALTIES)
    return min(np.mean(np.sum((targets - each) ** 2, axis=1)).item() for each in predictions)
