"""What the user gave, in the form that the detector takes."""

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spr_jax.io.rows import Rows
from spr_jax.io.tables import read_columns


class Unreadable(NamedTuple):
    """Image files that cannot be read; they keep their place among the others."""

    positions: np.ndarray  # [K], among all files, increasing
    names: np.ndarray  # [K]
    labels: np.ndarray  # [K]
    reasons: list[str]  # [K], a sentence each

    def others(self, count: int) -> np.ndarray:
        """Positions of the `count` files that can be read."""
        return np.setdiff1d(np.arange(count + len(self.positions)), self.positions)


class UserData(NamedTuple):
    """The examples whose labels are judged."""

    labels: np.ndarray  # [N], as given
    features: np.ndarray | Rows | None  # [N, d]; None: networks are to be trained
    names: np.ndarray | None = None  # [N]
    pictures: Any = None  # [N, h, w, channels], to be shown
    true: np.ndarray | None = None  # [N], where known
    dataset: Any = None  # to train on
    unreadable: Unreadable | None = None  # files that are not among the N
    root: Path | None = None  # folder that the names are files of
    features_from: dict[str, Any] | None = None  # the encoder, and why it was taken
    pictures_key: str = ""  # changes with the pictures; "": unknown


def data_from_table(path: str, *, label: str, features: str, names: str) -> UserData:
    """Read a table for the command, whose `features` are a comma list, and say what is used."""
    chosen = next(csv.reader([features]), [])
    table = read_columns(path, label=label, features=chosen, names=names)
    print(table.in_words())
    return UserData(table.labels, table.features, table.names, root=Path(path).parent)
