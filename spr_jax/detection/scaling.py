"""Columns of one scale, where that helps: the units of a table say nothing about its classes.

The components of a network's features are another matter: there the scale tells signal from noise.
So the labels decide: of the features as given and of those on one scale, the detector takes those
that predict the given labels better, each label from two ridge regressions without it, a linear one
and one with a Gaussian kernel. (The kernel is asked because units hardly matter to a linear
regression, while distances are made of them.)
"""

import numpy as np

from spr_jax.detection.ridge import left_out
from spr_jax.io.columns import Scale, scale_of
from spr_jax.solver.kernel_scores import LEAST_WIDTH

TRIAL_ROWS = 1000
KERNEL_ROWS = 500  # the cost grows with their cube
NEIGHBOR, WIDTH = 10, 3.0  # squared width: this many times the usual one to this neighbor
BETTER = 0.98  # fraction of the error below which scaled features are taken
PENALTIES = 10.0 ** np.arange(-4, 4)  # of the mean eigenvalue of X'X


def scale_if_better(
    features: np.ndarray,  # [N, d]
    labels: np.ndarray,  # [N], numbers of classes
) -> np.ndarray:
    """Return the features, with columns on one scale if that predicts the labels better."""
    rows = trial_rows(len(labels))
    scale = better_scale(features[rows], np.eye(labels.max() + 1)[labels[rows]])
    return features if scale is None else scale.apply(features)


def trial_rows(count: int) -> np.ndarray:
    """The rows that are asked, in random order."""
    return np.random.default_rng(0).permutation(count)[:TRIAL_ROWS]


def better_scale(
    sample: np.ndarray,  # [n, d]
    targets: np.ndarray,  # [n, c], one-hot
) -> Scale | None:
    """Return the one scale of the columns, or None where it does not predict the labels better."""
    scale, few = scale_of(sample), slice(KERNEL_ROWS)
    as_given, scaled = (
        left_out_error(each, targets) + left_out_error(lifted(each[few]), targets[few])
        for each in (sample, scale.apply(sample))
    )
    return scale if scaled < BETTER * as_given else None


def lifted(features: np.ndarray) -> np.ndarray:
    """Coordinates [n, n] whose inner products are a Gaussian kernel of the rows."""
    rows = features.astype(np.float64) - features.mean(axis=0, dtype=np.float64)
    lengths = np.sum(rows**2, axis=1)
    squared = np.maximum(lengths[:, None] + lengths - 2 * rows @ rows.T, 0)
    nearby = np.sort(squared, axis=1)[:, min(NEIGHBOR, len(rows) - 1)]
    # Where most examples have twins, the nearest say nothing of how far apart classes are.
    width = WIDTH * max(np.median(nearby), LEAST_WIDTH * squared.mean()) or 1.0
    values, vectors = np.linalg.eigh(np.exp(-squared / (2 * width)))
    return vectors * np.sqrt(np.maximum(values, 0))


def left_out_error(
    features: np.ndarray,  # [n, d]
    targets: np.ndarray,  # [n, c]
) -> float:
    """Mean squared error of a ridge regression for examples left out, at the best penalty."""
    predictions = left_out(features, targets, PENALTIES)
    return min(np.mean(np.sum((targets - each) ** 2, axis=1)).item() for each in predictions)
