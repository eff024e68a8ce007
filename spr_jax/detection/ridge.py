"""Ridge regression in which every example is predicted from all others.

    residual without i = (y_i - f_i) / (1 - h_i),    f = H Y,    H = X (X'X + penalty I)^-1 X',

with h the diagonal of H, and the intercept among the columns of X, not penalized.
"""

from collections.abc import Iterable, Iterator

import numpy as np


def left_out(
    features: np.ndarray,  # [n, d]
    targets: np.ndarray,  # [n, c]
    penalties: Iterable[float],  # in units of the mean eigenvalue of X'X
) -> Iterator[np.ndarray]:
    """Yield the predictions [n, c] of each example by a fit without it, for every penalty."""
    centred = features.astype(np.float64) - features.mean(axis=0, dtype=np.float64)
    left, values = _left_singular(centred)
    mean = targets.mean(axis=0)
    rest = targets - mean
    for penalty in np.asarray(penalties) * values.sum() / max(len(values), 1):
        shrunk = left * (values / (values + penalty))
        leverage = (left * shrunk).sum(axis=1) + 1 / len(targets)
        residual = rest - shrunk @ (left.T @ rest)
        yield targets - residual / np.maximum(1 - leverage, 1e-9)[:, None]


def _left_singular(matrix):
    """Left singular vectors [n, r] and squared singular values [r], without those that are zero."""
    n, d = matrix.shape
    wide = n <= d
    values, vectors = np.linalg.eigh(matrix @ matrix.T if wide else matrix.T @ matrix)
    kept = values > max(values[-1], 1e-300) * 1e-10
    values, vectors = values[kept], vectors[:, kept]
    return (vectors if wide else matrix @ vectors / np.sqrt(values)), values
