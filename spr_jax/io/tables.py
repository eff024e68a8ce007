"""Features and labels from one table, whose columns have names.

chosen = read_columns("houses.csv", label="type")      # every other column of numbers
chosen = read_columns("texts.parquet", label="topic", features=["embedding"], names="url")
"""

import contextlib
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spr_jax.io.arrays import labels_of, read_csv
from spr_jax.io.inputs import label_array
from spr_jax.io.text import shown

NAMED_AT_MOST = 10  # columns in a sentence


class Columns(NamedTuple):
    """What was taken from a table of N examples."""

    labels: np.ndarray  # [N]
    features: np.ndarray  # [N, d]
    names: np.ndarray | None  # [N]
    used: list[str]  # names of the columns of the features
    unused: list[str]  # other columns, which hold no numbers

    def in_words(self) -> str:
        """Say which columns are used, and which are not."""
        left_out = f"; not numbers, left out: {_listed(self.unused)}" if self.unused else ""
        return f"Features: {self.features.shape[1]} numbers ({_listed(self.used)}){left_out}."


def read_columns(
    path: str | Path, *, label: str, features: Sequence[str] = (), names: str = ""
) -> Columns:
    """Read labels and features from the columns of a table.

    Args:
      path: .csv, the first line of which names the columns, or .parquet.
      label: column of the labels.
      features: columns of numbers, or one column of vectors. Empty: all columns of numbers but the
        other two.
      names: column that identifies the examples. Empty: `file`, if there is one.

    Returns:
      The columns. Numbers are standardized, column by column, since their units differ; vectors
      are left as they are.

    Raises:
      ValueError: in one sentence, what was given and what is expected.
    """
    table = read_table(Path(path))
    for name in (label, *features, *([names] if names else [])):
        if name not in table:
            raise ValueError(f"{path} has no column {shown(name)!r}; {near_names(name, table)}")
    if label in features:
        raise ValueError(
            f"{shown(label)!r} is both the label and a feature; choose other features."
        )
    names = names or ("file" if "file" in table and "file" not in (label, *features) else "")
    others = [name for name in table if name not in (label, names, "")]
    numbers = {name: _numbers(table[name]) for name in features or others}
    without = [name for name, values in numbers.items() if values is None]
    if features and without:
        raise ValueError(
            f"The column {shown(without[0])!r} of {path} does not hold numbers; expected features."
        )
    used = {name: values for name, values in numbers.items() if values is not None}
    return Columns(
        labels=_labels(table[label]),
        features=_join(used, path),
        names=table[names].astype(str) if names else None,
        used=list(used),
        unused=without,
    )


def near_names(name: str, known: Mapping) -> str:
    """ "did you mean ...?" for close matches, else the first of the names."""
    lower = {str(each).lower(): each for each in known}
    near = [lower[each] for each in difflib.get_close_matches(name.lower(), lower)]
    if near:
        return f"did you mean {' or '.join(map(repr, map(shown, near)))}?"
    return f"it has {_listed(list(known))}."


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED_AT_MOST
    return ", ".join(map(shown, names[:NAMED_AT_MOST])) + (f" and {more} more" if more > 0 else "")


def read_table(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a table: the text of a .csv, numbers or objects of a .parquet file."""
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path)
    if path.suffix.lower() != ".csv":
        raise ValueError(f"Cannot read {path}: expected a table that ends in .csv or .parquet.")
    header, rows = read_csv(path, lambda row: True)
    assert header is not None
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise ValueError(f"{path} has several columns {shown(twice[0])!r}; rename all but one.")
    if len(rows[0]) != len(header):
        raise ValueError(
            f"{path} has {len(rows[0])} columns and {len(header)} names in its first line; "
            "expected a name for each."
        )
    cells = zip(*rows, strict=True)
    return {name: np.array(column) for name, column in zip(header, cells, strict=True)}


def _read_parquet(path):
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ValueError(
            f"Reading {path} needs pyarrow, which is not installed; pip install pyarrow, or give a "
            ".csv file."
        ) from None
    try:
        with open(path, "rb") as file:
            table = parquet.read_table(file)
    except (OSError, ArrowException) as error:
        reason = getattr(error, "strerror", None) or "it is not a Parquet file"
        raise ValueError(f"Cannot read {path}: {reason}.") from None
    if not len(table):
        raise ValueError(f"{path} holds no rows; expected one row for each example.")
    return {name: _from_arrow(table.column(name)) for name in table.column_names}


def _from_arrow(column):
    """Return numbers [N], vectors [N, d] of equal length, or objects [N]."""
    from pyarrow import compute, types

    kind = column.type
    if types.is_integer(kind) or types.is_floating(kind):
        return column.to_numpy()  # NaN where nothing is given
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        lengths = compute.list_value_length(column).to_numpy()
        if (lengths == lengths[0]).all():
            return compute.list_flatten(column).to_numpy().reshape(len(column), -1)
    return np.array(column.to_pylist() + [None], object)[:-1]  # even if all lists are equally long


def _numbers(values: np.ndarray) -> np.ndarray | None:
    """Return numbers, NaN where a cell is empty; None for a column of anything else."""
    if values.dtype.kind in "fiub":
        return values
    if values.dtype.kind == "O" or not values.astype(bool).any():
        return None
    with contextlib.suppress(ValueError):
        return np.where(np.char.strip(values) == "", "nan", values).astype(np.float64)
    return None


def _labels(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind != "U":
        return label_array(values)
    return labels_of(label_array([cell or None for cell in values.tolist()]).tolist())


def _join(columns: dict[str, np.ndarray], path) -> np.ndarray:
    """Join columns of numbers, standardized, or take the only column of vectors as it is."""
    if not columns:
        raise ValueError(
            f"{path} has no other column of numbers; expected features beside the labels."
        )
    for name, values in columns.items():
        empty = np.flatnonzero(np.isnan(values).reshape(len(values), -1).any(axis=1))
        if len(empty):
            raise ValueError(
                f"The column {shown(name)!r} of {path} is empty in {len(empty)} rows, the first at "
                f"index {empty[0]}; fill these cells, drop the rows or choose other features."
            )
    vectors = [name for name, values in columns.items() if values.ndim == 2]
    if vectors and len(columns) > 1:
        raise ValueError(
            f"{path} has the vectors {shown(vectors[0])!r} and {len(columns) - 1} other columns of "
            "numbers; choose one column of vectors, or columns of single numbers, as features."
        )
    if vectors:
        return columns[vectors[0]]
    features = np.stack(list(columns.values()), axis=1).astype(np.float64)
    scale = features.std(axis=0)
    return (features - features.mean(axis=0)) / np.where((scale > 0) & (scale < np.inf), scale, 1)
