"""Columns of unlike units on one scale."""

from typing import NamedTuple

import numpy as np

FARTHEST = 8.0  # deviations from the median; a cell of -99999 must not decide anything


class Scale(NamedTuple):
    """Where each column is, and how wide."""

    center: np.ndarray  # [k], the median
    spread: np.ndarray  # [k], the standard deviation without extreme values

    def apply(self, features: np.ndarray) -> np.ndarray:
        """Median zero and spread one in every column, nothing far away."""
        scaled = (features - self.center) / self.spread
        return np.clip(scaled, -FARTHEST, FARTHEST, out=scaled)


def scale_of(sample: np.ndarray) -> Scale:
    """Measure the columns [n, k], robust to wild cells."""
    low, median, high = np.percentile(sample, [25, 50, 75], axis=0).astype(np.float32)
    spread = (high - low) / 1.349  # the standard deviation of a normal column
    # Most of a column may be one value: a rare event, or a unit of a network that is mostly off.
    deviation = np.sqrt(np.mean((sample - median) ** 2, axis=0, dtype=np.float64))
    spread = np.where(spread > 0.05 * deviation, spread, deviation)
    return Scale(median, np.where(spread > 0, spread, 1).astype(np.float32))
