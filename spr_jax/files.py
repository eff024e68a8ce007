"""A user's arrays and tables, from and to disk.

Files are data, never code (a pickle may hold arrays and nothing else), and are replaced whole: a
reader never meets a file that is half written.
"""

import contextlib
import csv
import os
import pickle
import sys
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np


def read_features(path: str | Path) -> np.ndarray:
    """An [N, d] array of numbers from .npy, .npz (one array, or `features`) or .csv."""
    path = Path(path)
    if path.suffix.lower() != ".csv":
        return _read_numpy(path, "features")
    header, rows = _read_csv(path)
    try:
        return np.array(rows, dtype=np.float64)
    except ValueError:
        raise ValueError(
            f"{path} holds text or empty cells among its numbers; every column of a feature file "
            "must be numeric, below at most one line of column names."
        ) from None


def read_labels(path: str | Path) -> np.ndarray:
    """An [N] array of integers or class names from .npy, .npz (one array, or `labels`) or .csv.

    A CSV file has one column, or a column named `label`.
    """
    path = Path(path)
    if path.suffix.lower() != ".csv":
        labels = _read_numpy(path, "labels")
        return np.char.decode(labels, "utf-8", "replace") if labels.dtype.kind == "S" else labels
    header, rows = _read_csv(path, text=True)
    if header and "label" in header:
        column = header.index("label")
    elif len(rows[0]) == 1:
        column = 0
    else:
        raise ValueError(
            f"{path} has {len(rows[0])} columns and none is named 'label'; give one column of "
            "labels, or name it in the first line."
        )
    values = np.array([row[column] for row in rows])
    with contextlib.suppress(ValueError, OverflowError):
        return values.astype(np.int64)
    with contextlib.suppress(ValueError, OverflowError):
        return values.astype(np.float64)  # whole or not is for the detector to say
    return values


def read_names(path: str | Path) -> np.ndarray | None:
    """[N], the column `file` of a CSV of labels, if it has one."""
    if Path(path).suffix.lower() != ".csv":
        return None
    header, rows = _read_csv(Path(path), text=True)
    if not header or "file" not in header:
        return None
    return np.array([row[header.index("file")] for row in rows])


def load_arrays(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    """The array of a .npy or the arrays of a .npz file, without unpickling anything."""
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
    """One array, named if there are several."""
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


def _read_csv(path, text=False):
    """(column names or None, rows of equal length). The first line may hold names."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except OSError as error:
        raise ValueError(f"Cannot read {path}: {error.strerror or error}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"Cannot read {path}: it is not a CSV file in UTF-8 ({error}).") from None
    header = None
    if rows and ("label" in rows[0] if text else _is_header(rows[0])):
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


def _is_header(row):
    """A name among the cells, or the numbers 0, 1, 2 ... that stand for names."""
    named = any(cell.strip() and not _is_number(cell) for cell in row)
    return named or (len(row) > 1 and row == [str(number) for number in range(len(row))])


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


class _ArrayUnpickler(pickle.Unpickler):
    """Plain containers, numbers, text and NumPy arrays; nothing else, so nothing is run."""

    ALLOWED = {(f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")} | {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    }

    def find_class(self, module, name):
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def load_array_pickle(file: BinaryIO) -> Any:
    """What CIFAR's python version and torch.save keep arrays in, from an untrusted file."""
    return _ArrayUnpickler(file, encoding="latin1").load()


@contextlib.contextmanager
def replace_file(path: Path, *, binary: bool = False) -> Iterator:
    """Write to a temporary file beside `path` and rename it at the end, or leave no trace."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    text = {} if binary else {"newline": "", "encoding": "utf-8"}
    try:
        with open(handle, "wb" if binary else "w", **text) as file:
            yield file
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask():
    """Temporary files are private; a result is as readable as any new file."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_folder(path: str | Path) -> Path:
    """The folder to write to, before any work is done for it; it is not made yet."""
    path = Path(path)
    try:
        existing = next(folder for folder in [path, *path.absolute().parents] if folder.exists())
    except (OSError, ValueError) as error:
        raise ValueError(f"Cannot write to {path}: {error}.") from None
    if not existing.is_dir():
        raise ValueError(f"Cannot write to {path}: {existing} is not a folder; give another one.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f"Cannot write to {path}: no permission to write in {existing}.")
    return path


def shown(label) -> str:
    """A label of the user's as text that cannot steer a terminal, nor break it."""
    text = str(label)
    encoding = sys.stdout.encoding or "utf-8"
    encodable = text.encode(encoding, "replace").decode(encoding) == text
    return text if text.isprintable() and encodable else ascii(text)
