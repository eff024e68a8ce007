"""Read a user's arrays and tables from files.

Files are data, never code: nothing is unpickled.
"""

import contextlib
import csv
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np


def read_features(path: str | Path) -> np.ndarray:
    """Read an [N, d] array of numbers from .npy, .npz (one array, or `features`) or .csv."""
    path = Path(path)
    if path.suffix.lower() != ".csv":
        return _read_numpy(path, "features")
    _, rows = read_csv(path, _is_header)
    try:
        return np.array(rows, dtype=np.float64)
    except ValueError:
        raise ValueError(
            f"{path} holds text or empty cells among its numbers; every column of a feature file "
            "must be numeric, below at most one line of column names."
        ) from None


def read_labels(path: str | Path) -> np.ndarray:
    """Read [N] integers or class names from .npy, .npz (one array, or `labels`) or .csv.

    A CSV file has one column, or a column named `label`.
    """
    path = Path(path)
    if path.suffix.lower() != ".csv":
        labels = _read_numpy(path, "labels")
        return np.char.decode(labels, "utf-8", "replace") if labels.dtype.kind == "S" else labels
    header, rows = read_csv(path, _has_labels)
    if header and "label" in header:
        column = header.index("label")
    elif len(rows[0]) == 1:
        column = 0
    else:
        raise ValueError(
            f"{path} has {len(rows[0])} columns and none is named 'label'; give one column of "
            "labels, or name it in the first line."
        )
    return labels_of([row[column] for row in rows])


def labels_of(cells: Sequence[str]) -> np.ndarray:
    """Return the labels that the cells of a table hold: integers, if all of them are, or names."""
    values = np.array(cells)
    with contextlib.suppress(ValueError, OverflowError):
        return values.astype(np.int64)
    with contextlib.suppress(ValueError, OverflowError):
        return values.astype(np.float64)  # the detector checks that they are whole
    return values


def read_names(path: str | Path) -> np.ndarray | None:
    """Read [N] file names from the column `file` of a CSV of labels, if it has one."""
    if Path(path).suffix.lower() != ".csv":
        return None
    header, rows = read_csv(Path(path), _has_labels)
    if not header or "file" not in header:
        return None
    return np.array([row[header.index("file")] for row in rows])


def load_arrays(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    """Load the array of a .npy or the arrays of a .npz file, without unpickling anything."""
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else dict(loaded)
    except OSError as error:
        raise ValueError(f"Cannot read {path}: {error.strerror or error}.") from None
    except (
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        tokenize.TokenError,
        SyntaxError,
        MemoryError,
    ):
        raise ValueError(f"Cannot read {path}: it is cut off or not a NumPy file.") from None
    except ValueError:
        raise ValueError(
            f"Cannot read {path}: it is not an array of numbers or text that NumPy stored "
            "without pickling."
        ) from None


def _read_numpy(path, name):
    """Read the only array, or the one of this name if there are several."""
    if path.suffix.lower() not in (".npy", ".npz"):
        raise ValueError(f"Cannot read {path}: expected a file that ends in .npy, .npz or .csv.")
    arrays = load_arrays(path)
    if isinstance(arrays, np.ndarray):
        return arrays
    if len(arrays) != 1 and name not in arrays:
        raise ValueError(
            f"{path} holds the arrays {sorted(arrays)}; expected one array, or one named {name!r}."
        )
    return arrays[name] if name in arrays else next(iter(arrays.values()))


@contextlib.contextmanager
def csv_errors(path: Path) -> Iterator[None]:
    """Raise a ValueError in one sentence if a CSV file cannot be read."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"Cannot read {path}: {error.strerror or error}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"Cannot read {path}: it is not a CSV file in UTF-8 ({error}).") from None


def read_csv(
    path: Path, is_header: Callable[[list[str]], bool]
) -> tuple[list[str] | None, list[list[str]]]:
    """Return column names, if the first line holds them, and rows of equal length."""
    with csv_errors(path), open(path, newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if row]
    header = None
    if rows and is_header(rows[0]):
        header, *rows = rows
    if not rows:
        raise ValueError(f"{path} holds no rows; expected one row for each example.")
    for number, row in enumerate(rows, start=2 if header else 1):
        if len(row) != len(rows[0]):
            raise ValueError(
                f"Line {number} of {path} has {len(row)} columns and the first has "
                f"{len(rows[0])}; all rows must be equally long."
            )
    return header, rows


def _has_labels(row):
    return "label" in row


def _is_header(row):
    """Tell whether the cells are names, or the numbers 0, 1, 2 ... that stand for names."""
    named = any(cell.strip() and not _is_number(cell) for cell in row)
    return named or (len(row) > 1 and row == [str(number) for number in range(len(row))])


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True
