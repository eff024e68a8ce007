"""Selections that several experiments run, as overrides of a config."""

from typing import Any


def half_by_path(per_class: int = 0, pca_dim: int = 64) -> dict[str, Any]:
    """Keep half of each class by the penalized-regression path, of pieces or of the whole data."""
    rule = {
        "name": "share",
        "within": "class",
        "keep": 0.5,
        "per_class": per_class,
        "classes_per_group": 100,
        "pca_dim": pca_dim,
        "intercept": True,
    }
    return {f"method.select.{option}": value for option, value in rule.items()}


HALF_BY_PATH = half_by_path()  # of the whole data
