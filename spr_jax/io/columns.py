"""Columns of unlike units on one scale, and fewer of them."""

from typing import NamedTuple

import numpy as np

ROWS = 10_000  # that measure the columns of more
FARTHEST = 8.0  # deviations from the median; a cell of -99999 must not decide anything


class Scale(NamedTuple):
    """Where each column is, and how wide."""

    center: np.ndarray  # [k], the median
    spread: np.ndarray  # [k], the standard deviation without extreme values
    directions: np.ndarray | None = None  # [k, p], orthonormal: leading principal components

    def apply(self, features: np.ndarray) -> np.ndarray:
        """Median zero and spread one in every column, nothing far away; then the components."""
        scaled = (features - self.center) / self.spread
        np.clip(scaled, -FARTHEST, FARTHEST, out=scaled)
        return scaled if self.directions is None else scaled @ self.directions


def scale_of(sample: np.ndarray, components: int = 0) -> Scale:
    """Measure the columns [n, k], robust to wild cells.

    With `components`, only that many principal components are kept; 0, or no fewer than there are
    columns or rows: the columns as they are.
    """
    if len(sample) > ROWS:
        sample = sample[np.random.default_rng(0).permutation(len(sample))[:ROWS]]
    scale = _spread_of(sample)
    if not 0 < components < min(sample.shape):
        return scale
    scaled = scale.apply(sample)
    scaled -= scaled.mean(axis=0)
    directions = np.linalg.eigh(scaled.T @ scaled)[1][:, : -components - 1 : -1]
    return scale._replace(directions=np.ascontiguousarray(directions, np.float32))


def _spread_of(sample):
    low, median, high = np.percentile(sample, [25, 50, 75], axis=0).astype(np.float32)
    spread = (high - low) / 1.349  # the standard deviation of a normal column
    # Most of a column may be one value: a rare event, or a unit of a network that is mostly off.
    deviation = np.sqrt(np.mean((sample - median) ** 2, axis=0, dtype=np.float64))
    spread = np.where(spread > 0.05 * deviation, spread, deviation)
    return Scale(median, np.where(spread > 0, spread, 1).astype(np.float32))
