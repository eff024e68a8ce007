"""Options of the detector, and their checks."""

import math
import numbers
from typing import NamedTuple

MAX_PCA_DIM = 64
MAX_CLASSES_PER_GROUP = 100


class DetectorOptions(NamedTuple):
    """Keyword arguments of `find_label_errors`, which documents them."""

    max_noise_in_clean: float | None = None
    max_false_alarms: float | None = None
    keep: float | None = None
    per_class: int | None = None
    pca_dim: int | None = None
    classes_per_group: int | None = None
    seed: int = 0
    progress: bool = False

    def check(self) -> None:
        """Raise a ValueError that names the first option out of range."""
        criteria = ("max_noise_in_clean", "max_false_alarms", "keep")
        given = {name: getattr(self, name) for name in criteria if getattr(self, name) is not None}
        for name, value in given.items():
            if not isinstance(value, numbers.Real) or not 0 < float(value) < 1:
                raise ValueError(
                    f"{name} is {value!r}; expected a fraction between 0 and 1, such as 0.1."
                )
        if len(given) > 1:
            both = " and ".join(f"{name}={value!r}" for name, value in given.items())
            raise ValueError(f"Got {both}; give one of them, as each alone decides what is clean.")
        for name, lowest in (("per_class", 1), ("pca_dim", 1), ("classes_per_group", 2)):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, numbers.Integral) or value < lowest:
                raise ValueError(f"{name} is {value!r}; expected {lowest} or more, or None.")
        if not isinstance(self.seed, numbers.Integral) or not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is {self.seed!r}; expected an integer from 0 to 4294967295.")


DEFAULTS = DetectorOptions()


def components_for(rows: int, *, num_classes: int) -> int:
    """Number of principal components for this many rows.

    sqrt(rows) / 2, at most MAX_PCA_DIM, but at least one per class.
    """
    return max(num_classes, min(math.isqrt(rows // 4), MAX_PCA_DIM))
