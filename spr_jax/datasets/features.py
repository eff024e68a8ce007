"""The user's own vectors: embeddings of another network, or measurements.

    embeddings.npz                 arrays `features`, `labels` and, if known, `true_labels`,
                                   `test_features`, `test_labels`, `class_names`, `source`
    features.npy, labels.csv       as `spr-detect` reads them
    table.csv or table.parquet     with a column of labels, named by `label`

`spr-encode` makes the first from images. Without test features some examples are held out; they are
as noisy as the rest, unless their true labels are known.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from spr_jax.io.arrays import load_arrays, read_features, read_labels
from spr_jax.io.columns import Scale, scale_of
from spr_jax.io.inputs import check_features, check_labels, label_array
from spr_jax.io.tables import read_columns
from spr_jax.io.text import shown
from spr_jax.types import Dataset, Split

# Of longer vectors, for `configs/features.py` and `SPRClassifier`: an epoch is faster. Of the 1,280
# columns of encoded CIFAR-10, 512 components taught as much with 8,000 examples; with 40,000, 0.1
# points less with wrong labels, 0.6 less with the correct ones alone (docs/measuring.md).
COMPONENTS = 512


class Given(NamedTuple):
    """What the files hold: N training and M test examples."""

    features: np.ndarray  # [N, k]
    labels: np.ndarray  # [N]
    true_labels: np.ndarray | None = None  # [N]
    test_features: np.ndarray | None = None  # [M, k]
    test_labels: np.ndarray | None = None  # [M]
    class_names: np.ndarray | None = None  # [c], if labels are numbers from 0
    source: np.ndarray | str = "features"  # name of the data set that they are features of


def features(
    path: str = "",
    labels: str = "",
    label: str = "",
    augmentation: str = "feature_noise",
    components: int = 0,
    test_share: float = 0.2,
    data_dir: str = "",
) -> Dataset:
    """Your own vectors with labels: an .npz file, a .npy file with a file of labels, or a table.

    Args:
      path: .npz, .npy, .csv or .parquet.
      labels: file of the labels, for features that come without.
      label: column of the labels, for a table.
      augmentation: of the vectors: "feature_noise", "feature_dropout" or "none".
      components: principal components to keep of longer vectors; 0: all columns.
      test_share: share of each class to hold out if there are no test features.
      data_dir: folder of the files; "": where the command runs.
    """
    path, labels = (str(Path(data_dir, name)) if name else "" for name in (path, labels))
    given = read(path, labels=labels, label=label)
    if given.test_features is None:
        given = hold_out(given, test_share)
    if components < 0:
        raise ValueError(f"dataset.components is {components}; expected a number, or 0 for all.")
    return dataset_of(given, augmentation=augmentation, components=components)


def read(path: str, *, labels: str = "", label: str = "") -> Given:
    """Read vectors and labels from files.

    Raises:
      ValueError: in one sentence, what was given and what is expected.
    """
    if not path:
        raise ValueError(
            "dataset.path is empty; give the file of your features, such as "
            "--config.dataset.path=embeddings.npz."
        )
    if label:
        table = read_columns(path, label=label)
        return Given(table.features, table.labels)
    held = load_arrays(Path(path)) if Path(path).suffix.lower() == ".npz" else None
    arrays = dict(held) if isinstance(held, dict) else {}
    if labels:  # also instead of those in the file, of the same examples
        arrays["labels"] = read_labels(labels)
        if "features" not in arrays:
            arrays["features"] = read_features(path)
    if not arrays:
        raise ValueError(
            f"{path} holds features without labels; give their file as dataset.labels, or, for a "
            "table, the name of their column as dataset.label."
        )
    missing = [name for name in ("features", "labels") if name not in arrays]
    missing += ["test_labels"] if "test_features" in arrays and "test_labels" not in arrays else []
    if missing:
        raise ValueError(
            f"{path} holds the arrays {sorted(arrays)}; expected one named {missing[0]!r}."
        )
    return Given(**{name: arrays[name] for name in Given._fields if name in arrays})


def hold_out(given: Given, share: float) -> Given:
    """Take every k-th example of each class for the test set."""
    if not 0 < share < 1:
        raise ValueError(f"dataset.test_share is {share}; expected a share between 0 and 1.")
    labels = label_array(given.labels)
    chosen, every = np.zeros(len(labels), bool), max(round(1 / share), 2)
    for name in np.unique(labels):
        chosen[np.flatnonzero(labels == name)[every - 1 :: every]] = True
    if not chosen.any():
        raise ValueError(
            f"No class has {every} examples, so none can be held out as a test set; give test "
            "features, or raise dataset.test_share."
        )
    known = given.true_labels
    return given._replace(
        features=given.features[~chosen],
        labels=labels[~chosen],
        true_labels=None if known is None else known[~chosen],
        test_features=given.features[chosen],
        test_labels=labels[chosen] if known is None else known[chosen],
    )


def dataset_of(
    given: Given,
    *,
    augmentation: str = "feature_noise",
    components: int = 0,
    scale: Scale | None = None,
) -> Dataset:
    """Check the arrays, number the classes and bring the columns to one scale, or to this one."""
    train = check_features(given.features)
    classes, codes = check_labels(given.labels, len(train))
    if given.class_names is not None:  # of which some may have no example
        classes = np.arange(len(given.class_names))
        codes = numbers_of(given.labels, classes, "labels")
    scale = scale_of(np.asarray(given.features), components) if scale is None else scale
    inputs = _scaled(given.features, scale)
    known = None
    if given.true_labels is not None:
        known = numbers_of(given.true_labels, classes, "true labels")
        if len(known) != len(codes):
            raise ValueError(f"Got {len(codes)} labels and {len(known)} true ones; expected both.")
    tests = {}
    if given.test_features is not None and given.test_labels is not None:
        check_features(given.test_features)
        check_width(given.test_features, train.shape[1], "Test features")
        test_codes = numbers_of(given.test_labels, classes, "test labels")
        if len(test_codes) != len(given.test_features):
            raise ValueError(
                f"Got {len(given.test_features)} rows of test features but {len(test_codes)} test "
                "labels; they must match."
            )
        tests["test"] = Split(_scaled(given.test_features, scale), test_codes, test_codes)
    names = classes if given.class_names is None else given.class_names
    return Dataset(
        name=str(given.source),  # pairs of classes for asymmetric noise have it, too
        train=Split(inputs, codes, known),
        tests=tests,
        class_names=tuple(str(name) for name in names),
        mean=(0.0,),
        std=(1.0,),
        augmentation=augmentation,
    )


def _scaled(values, scale: Scale):
    return scale.apply(np.asarray(values)).astype(np.float32)


def numbers_of(labels, classes: np.ndarray, what: str) -> np.ndarray:
    """Labels [N] as positions in the classes."""
    labels = label_array(labels)
    places = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    unknown = np.flatnonzero(classes[places] != labels)
    if len(unknown):
        raise ValueError(
            f"The {what} hold {shown(labels[unknown[0]])!r} at index {unknown[0]}, which is none "
            f"of the {len(classes)} classes to learn."
        )
    return places.astype(np.int32)


def check_width(features, width: int, what: str) -> None:
    """Refuse vectors of another length than those trained on."""
    if np.ndim(features) != 2 or np.shape(features)[1] != width:
        raise ValueError(
            f"{what} have the shape {np.shape(features)}; expected {width} columns, as in training."
        )
