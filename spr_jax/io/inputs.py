"""Arrays from whatever a user has: frames, tensors, columns of data sets, sparse matrices, lists.

Objects are recognized by what they can do, so that none of their libraries is imported. Pandas and
polars frames and series, Arrow and JAX arrays convert themselves; the others are helped. What
cannot be used is named in one sentence.
"""

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from spr_jax.io.text import shown

MAX_DENSE = 2**27  # entries; a larger sparse matrix is reduced to its principal components
# More than the detector looks at: 64, or one per class. On a random sparse matrix of slowly
# falling variance the first 64 of 128 have .99999 of the variance of the exact ones.
SPARSE_COMPONENTS = 128
LARGEST = np.finfo(np.float32).max  # features must be below


def feature_array(values: Any, components: int = SPARSE_COMPONENTS) -> np.ndarray:
    """Return features of any kind as an array; missing values become NaN.

    A sparse matrix too large to be written out is replaced by its `components` first principal
    components, of which the detector uses the first.
    """
    if hasattr(values, "tocsr"):  # a sparse matrix of SciPy
        return _from_sparse(values.tocsr(), components)
    array = _as_array(values, "Features")
    if array.dtype.kind != "O":
        return array
    text = [isinstance(value, str) for value in array.flat]
    if any(text):
        first = np.unravel_index(np.argmax(text), array.shape)
        names = getattr(values, "columns", None)
        where = "" if names is None else f" in the column {shown(names[first[1]])!r}"
        raise ValueError(
            f"Features hold text{where}, the first is {shown(array[first])!r}; expected numbers: "
            "drop it, or encode it as numbers."
        )
    try:
        flat = [np.nan if is_missing(value) else float(value) for value in array.flat]
    except (TypeError, ValueError):
        raise ValueError(f"Features have the type {array.dtype}; expected numbers.") from None
    return np.array(flat).reshape(array.shape)


def label_array(values: Any) -> np.ndarray:
    """Return labels of any kind as an array of numbers or text; a missing label is an error."""
    labels = _as_array(values, "Labels")
    if labels.dtype.kind == "S":
        return np.char.decode(labels, "utf-8", "replace")
    if labels.dtype.kind == "T":  # NumPy's text of any length
        labels = labels.astype(object)
    if labels.dtype.kind not in "Of":
        return labels
    missing = np.flatnonzero(
        np.isnan(labels) if labels.dtype.kind == "f" else [is_missing(label) for label in labels]
    )
    if len(missing):
        raise ValueError(
            f"{len(missing)} labels are missing, the first at index {missing[0]}; fill them in, or "
            "drop these examples."
        )
    if labels.dtype.kind == "O":
        for kind in (str, bool, numbers.Integral, numbers.Real):
            if all(isinstance(label, kind) for label in labels.flat):
                return np.array(labels.tolist())
    return labels


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
    extreme = extremes(features)
    refuse_extreme(np.flatnonzero(~(extreme < LARGEST)))
    return to_single(features, float(extreme.max()))


def extremes(features: np.ndarray) -> np.ndarray:
    """Return the largest absolute value of each row, which is not finite if any of its values is.

    One number per row is enough to see that, without copying everything.
    """
    return np.maximum(features.max(axis=1), -features.min(axis=1).astype(np.float64))


def refuse_extreme(rows: np.ndarray) -> None:
    """Raise a ValueError if there are rows that hold what is not finite."""
    if len(rows):
        raise ValueError(
            f"{len(rows)} rows of the features hold NaN or infinite values, the first at index "
            f"{rows[0]}; expected finite numbers (of at most 3e38): repair or drop these rows."
        )


def scale_to_divide_by(dtype: np.dtype, largest: float) -> float:
    """Return the scale of features whose largest value this is; zeros stay zeros."""
    return max(largest, float(np.finfo(np.float64 if dtype == np.float64 else np.float32).tiny))


def to_single(
    features: np.ndarray,  # [n, d]
    largest: float,  # absolute value among all rows
    mean: np.ndarray | None = None,  # [d], of all rows in double precision, if these are not all
) -> np.ndarray:
    """Return the features as float32, scaled to stay within single precision."""
    scale = scale_to_divide_by(features.dtype, largest)
    if features.dtype == np.float64:  # a common offset would not survive single precision
        features = features / scale
        features -= features.mean(axis=0) if mean is None else mean / scale
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


def is_missing(value: Any) -> bool:
    """Tell whether a value is None, NaN, NaT or pandas' NA."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # NA, of which nothing is known
        return True
    except ValueError:  # an array
        return False


def _as_array(values, name):
    """Convert to an array, also if every cell holds a row."""
    try:
        array = np.asarray(_unwrapped(values))
        if array.dtype.kind == "O" and array.ndim == 1 and len(array) and np.ndim(array[0]):
            array = np.array([np.asarray(row) for row in array])
    except ValueError:
        raise ValueError(f"{name} are not one array: their rows differ in length.") from None
    if array.dtype.name.startswith(("bfloat16", "float8")):  # of JAX; NumPy cannot compute with it
        return array.astype(np.float32)
    return array


def _unwrapped(values):
    """Return something that NumPy converts correctly and quickly."""
    if hasattr(values, "detach"):  # a tensor of PyTorch: it may need gradients, be on a device ...
        values = values.detach().cpu()
        is_small = values.is_floating_point() and values.dtype.itemsize < 4  # ... or be bfloat16
        return values.float() if is_small else values
    if hasattr(values, "with_format") and hasattr(values, "column_names"):  # a Hugging Face Dataset
        columns = [np.asarray(_unwrapped(values[name])) for name in values.column_names]
        return np.column_stack(columns)
    if isinstance(values, list | tuple) and any(hasattr(row, "detach") for row in values):
        return [_unwrapped(row) for row in values]
    if isinstance(values, Sequence) and not isinstance(values, list | tuple | str):
        return values[:]  # a column of Hugging Face: all at once instead of one by one
    return values


def _from_sparse(matrix, components):
    if matrix.dtype.kind not in "fiub":
        raise ValueError(f"Features have the type {matrix.dtype}; expected numbers.")
    if np.prod(matrix.shape, dtype=float) <= MAX_DENSE:
        return matrix.toarray()
    if not np.isfinite(matrix.data).all():
        return np.asarray(abs(matrix).sum(axis=1)).reshape(-1, 1)  # whose checks name the rows
    return principal_components(matrix, components)


def principal_components(matrix, count: int, rounds: int = 5) -> np.ndarray:
    """Compute the first principal components of a sparse matrix A [n, d], by subspace iteration.

    Q <- orth(A_c A_c^T Q), a few rounds from a random Q that is the same every time, spans the
    first left singular vectors of A_c = A - 1 mean^T, which is never formed. With B = A_c^T Q and
    B^T B = U S^2 U^T the components are Q U S.

    Returns:
      [n, count], or as many as there are.
    """
    mean = np.asarray(matrix.mean(axis=0)).ravel()
    size = min(count + 16, *matrix.shape)

    def forward(right):  # A_c right
        return matrix @ right - mean @ right

    def backward(left):  # A_c^T left
        return matrix.T @ left - np.outer(mean, left.sum(axis=0))

    basis = np.random.default_rng(0).standard_normal((matrix.shape[0], size))
    for _ in range(rounds):
        basis, _ = np.linalg.qr(forward(backward(basis)))
    right = backward(basis)
    squares, left = np.linalg.eigh(right.T @ right)  # ascending
    return (basis @ left * np.sqrt(np.maximum(squares, 0)))[:, ::-1][:, :count]
