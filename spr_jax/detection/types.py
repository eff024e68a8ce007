"""The result of the detector: `Detection`, which holds `Noise` and maybe a `Promise`."""

import warnings
from typing import Any, NamedTuple

import numpy as np


def _renamed(result: NamedTuple, old: str, new: str) -> Any:
    """Read a field by an earlier name, with a warning."""
    owner = type(result).__name__
    message = f"{owner}.{old} is deprecated; read {owner}.{new}."
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return getattr(result, new)


class Noise(NamedTuple):
    """Estimated fraction of wrong labels, overall and for each given class in `classes`."""

    rate: float
    interval: tuple[float, float]
    classes: np.ndarray  # [c], sorted
    by_class: np.ndarray  # [c]
    by_class_interval: np.ndarray  # [c, 2]
    confusion: np.ndarray  # [c, c]: for each given class (row), the fraction of each true class
    explained: bool  # the features predict the labels better than chance; if not, ignore the rest
    fit_gap: float  # nats per example that one more round would gain: how well it has converged


class Promise(NamedTuple):
    """The level of mistakes that was asked for, and the classes that can keep it."""

    level: float
    kind: str  # "clean": wrong labels among the kept; "suspects": correct ones among the flagged
    attained: np.ndarray  # [c] bool; a class that cannot keep the level has none kept or flagged
    lowest: np.ndarray  # [c], the lowest level that each class supports

    @property
    def of(self) -> str:
        """Deprecated name of `kind`."""
        return _renamed(self, "of", "kind")


class Detection(NamedTuple):
    """The label errors that were found among N examples.

    `entry`, `gap` and `wrong`, the former names of `entry_penalty`, `duality_gap` and
    `error_probability`, can still be read, with a DeprecationWarning.
    """

    clean: np.ndarray  # [N] bool; all other examples are suspect
    entry_penalty: np.ndarray  # [N], where the example enters the path: larger, more suspect
    suggested: np.ndarray  # [N], the most probable label
    duality_gap: float  # largest relative duality gap on the path: how well it has converged
    error_probability: np.ndarray  # [N], probability that the label is wrong
    order: np.ndarray  # [N], indices of the examples, the most suspect first
    noise: Noise
    promise: Promise | None  # None if no level was asked for

    @property
    def entry(self) -> np.ndarray:
        """Deprecated name of `entry_penalty`."""
        return _renamed(self, "entry", "entry_penalty")

    @property
    def gap(self) -> float:
        """Deprecated name of `duality_gap`."""
        return _renamed(self, "gap", "duality_gap")

    @property
    def wrong(self) -> np.ndarray:
        """Deprecated name of `error_probability`."""
        return _renamed(self, "wrong", "error_probability")

    @property
    def rank(self) -> np.ndarray:
        """[N], the rank of each example in `order`, from 1."""
        return np.argsort(self.order) + 1

    def columns(self, labels: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Return what is known of each example, by name; with the labels [N], as cleanlab too."""
        ours = {
            "suspect": ~self.clean,
            "error_probability": self.error_probability,
            "entry_penalty": self.entry_penalty,
            "rank": self.rank,
            "suggested": self.suggested,
        }
        return ours if labels is None else {"label": labels, **ours, **self.as_cleanlab(labels)}

    def as_cleanlab(self, labels: np.ndarray) -> dict[str, np.ndarray]:
        """Return the columns of cleanlab's table of label issues."""
        return {
            "is_label_issue": ~self.clean,
            "label_quality": 1 - self.error_probability,
            "given_label": labels,
            "predicted_label": self.suggested,
        }

    def to_frame(self, labels: Any = None):
        """Return a pandas DataFrame with a row for each example, in the input order.

        Args:
          labels: [N], as they were given; then the frame has them, and cleanlab's columns
            (`is_label_issue`, `label_quality`, `given_label`, `predicted_label`).
        """
        try:
            import pandas
        except ImportError:
            raise ImportError(
                "to_frame needs pandas, which is not installed; pip install pandas."
            ) from None
        return pandas.DataFrame(self.columns(None if labels is None else np.asarray(labels)))
