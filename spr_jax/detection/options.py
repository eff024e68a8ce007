"""Options of the detector, and the checks of everything a user gives it."""

import numbers
from typing import NamedTuple

import numpy as np

from spr_jax.detection.inputs import SPARSE_COMPONENTS, feature_array, label_array
from spr_jax.io.text import shown


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


def check_features(features, components: int = SPARSE_COMPONENTS) -> np.ndarray:
    """Return the features as float32 [N, d], scaled to stay within single precision."""
    features = feature_array(features, components)
    if features.dtype.kind not in "fiub":
        raise ValueError(f"Features have the type {features.dtype}; expected numbers.")
    if features.ndim != 2:
        raise ValueError(
            f"Features have the shape {features.shape}; expected [examples, features], one row "
            "for each example."
        )
    if features.size == 0:
        raise ValueError(f"Features are empty, of shape {features.shape}; expected some rows.")
    # One number per row is enough to see what is not finite, without copying everything.
    extreme = np.maximum(features.max(axis=1), -features.min(axis=1).astype(np.float64))
    wrong = np.flatnonzero(~(extreme < np.finfo(np.float32).max))
    if len(wrong):
        raise ValueError(
            f"{len(wrong)} rows of the features hold NaN or infinite values, the first at index "
            f"{wrong[0]}; expected finite numbers (of at most 3e38): repair or drop these rows."
        )
    smallest = np.finfo(np.float64 if features.dtype == np.float64 else np.float32).tiny
    scale = max(float(extreme.max()), float(smallest))  # zeros stay zeros
    if features.dtype == np.float64:  # a common offset would not survive single precision
        features = features / scale
        features -= features.mean(axis=0)
    elif not 1e-6 < scale < 1e6:  # squares must stay within single precision
        features = features / np.float32(scale)
    return features.astype(np.float32, copy=False)


def check_labels(labels, num_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes [c], sorted, and the label of each example as its index in them [N]."""
    labels = label_array(labels)
    if labels.ndim != 1:
        raise ValueError(f"Labels have the shape {labels.shape}; expected [examples].")
    if len(labels) != num_features:
        raise ValueError(
            f"Got {num_features} rows of features but {len(labels)} labels; they must match "
            "(in a file, a line of column names must name one of them 'label')."
        )
    if labels.dtype.kind not in "iubfU":
        raise ValueError(f"Labels have the type {labels.dtype}; expected integers or class names.")
    if labels.dtype.kind == "f":
        labels = _whole_numbers(labels)
    if labels.dtype.kind == "i" and labels.min() < 0:
        first = np.flatnonzero(labels < 0)[0]
        raise ValueError(
            f"{(labels < 0).sum()} labels are negative, the first is {labels[first]} at index "
            f"{first}; expected integers from 0 or class names."
        )
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"All labels are {shown(classes[0])}; expected at least two classes.")
    return classes, codes.astype(np.int32)


def _whole_numbers(labels):
    wrong = np.flatnonzero(~((np.abs(labels) < 2**53) & (labels == np.round(labels))))
    if len(wrong):
        raise ValueError(
            f"{len(wrong)} labels are not integers, the first is {labels[wrong[0]]} at index "
            f"{wrong[0]}; expected integers from 0 or class names."
        )
    return labels.astype(np.int64)
