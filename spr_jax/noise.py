"""Label noise: corrupted labels with a known truth, and a manifest that records them.

`corrupt` gives a data set noise of one of the KINDS, or the labels of an earlier manifest.

Every kind maps true labels to given labels with its own seed, independent of the training seed.
Symmetric and asymmetric noise follow the released code draw by draw (NumPy's legacy generator), so
seed 233 gives the labels that its experiments used.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import logging

from spr_jax.io.arrays import load_arrays, read_features
from spr_jax.io.atomic import replace_file
from spr_jax.registry import suggestion
from spr_jax.types import Dataset

# Source -> target of the paper's asymmetric noise, in the order in which pairs are processed.
DIGIT_PAIRS = ((7, 1), (2, 7), (5, 6), (6, 5), (3, 8))
PAIRS = {
    "mnist": DIGIT_PAIRS,
    "digits": DIGIT_PAIRS,
    "cifar10": ((9, 1), (2, 0), (3, 5), (5, 3), (4, 7)),
}

KINDS = ("none", "human", "symmetric", "asymmetric", "matrix", "instance")
AS_GIVEN = ("none", "human")  # labels stay as the data set has them


class Manifest(NamedTuple):
    """Noise asked for and labels obtained."""

    given: np.ndarray  # [N]
    true: np.ndarray  # [N]; where the truth is not known, the labels as the data set has them
    kind: str
    rate: float  # asked for
    seed: int

    @property
    def obtained(self) -> float:
        """Fraction of labels that were corrupted, or are known to be wrong."""
        return float(np.mean(self.given != self.true))

    def __str__(self) -> str:
        if self.kind in ("none", "human"):
            known = f"; {self.obtained:.2%} of the labels are known to be wrong"
            return f"No label noise is added{known if self.obtained else ''}."
        asked = f"asked for {self.rate:.4f}, obtained {self.obtained:.4f}"
        return f"Label noise: {self.kind}, {asked}, seed {self.seed}."

    @property
    def matrix(self) -> np.ndarray:
        """Fraction of each true class (row) with each given label (column), [c, c]."""
        size = 1 + max(self.given.max(), self.true.max())
        counts = np.zeros((size, size))
        np.add.at(counts, (self.true, self.given), 1)
        return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def corrupt(
    dataset: Dataset,
    *,
    kind: str = "none",
    rate: float = 0.0,
    seed: int = 233,
    inclusive: bool = False,
    simultaneous: bool = False,
    matrix: str = "",
    manifest: str = "",
) -> tuple[Dataset, Manifest]:
    """Add label noise to the training labels of a data set.

    Args:
        dataset: the data set; its true labels are corrupted if they are known.
        kind: one of KINDS; "human" are the errors that the data set's own labels have.
        rate: fraction of labels to corrupt.
        seed: of the noise alone.
        inclusive: symmetric noise: see `symmetric`.
        simultaneous: asymmetric noise: see `asymmetric`.
        matrix: noise by matrix: a .npy or .csv file of transition probabilities.
        manifest: file of an earlier run, whose labels are used instead.

    Returns:
        The noisy data set, and the manifest to save with the run.

    Raises:
        ValueError: the kind, rate, matrix or manifest does not fit, or the others contradict it.
    """
    train = dataset.train
    true = train.labels if train.true_labels is None else train.true_labels
    if manifest:
        record = load_manifest(manifest, true, num_classes=dataset.num_classes)
    else:
        given = _draw_labels(dataset, true, kind, rate, seed, inclusive, simultaneous, matrix)
        record = Manifest(given.astype(true.dtype), true, kind, rate, seed)
    logging.info("%s", record)
    known = train.true_labels if record.kind in AS_GIVEN else true
    return dataset._replace(train=train._replace(labels=record.given, true_labels=known)), record


def _draw_labels(dataset, true, kind, rate, seed, inclusive, simultaneous, matrix):
    if kind not in KINDS:
        raise ValueError(f"Unknown kind of noise {kind!r}; {suggestion(kind, KINDS)}")
    if kind in AS_GIVEN and rate:
        raise ValueError(
            f"The noise rate is {rate} but its kind is {kind!r}; set the kind as well."
        )
    if kind == "symmetric":
        classes = {"num_classes": dataset.num_classes}
        return symmetric(true, rate, seed=seed, inclusive=inclusive, **classes)
    if kind == "asymmetric":
        if dataset.name not in PAIRS:
            raise ValueError(
                f"There are no pairs of similar classes for {dataset.name!r}, only for "
                f"{sorted(PAIRS)}; give a transition matrix, with kind='matrix'."
            )
        pairs = PAIRS[dataset.name]
        return asymmetric(true, rate, pairs=pairs, seed=seed, simultaneous=simultaneous)
    if kind == "matrix":
        if not matrix:
            raise ValueError(
                "The noise kind is 'matrix' but matrix is empty; give a .npy or .csv file."
            )
        return by_matrix(true, read_features(matrix), num_classes=dataset.num_classes, seed=seed)
    if kind == "instance":
        if not isinstance(dataset.train.images, np.ndarray):
            raise ValueError(f"{dataset.name!r} is streamed; instance noise needs it in memory.")
        classes = {"num_classes": dataset.num_classes}
        return instance_dependent(true, dataset.train.images, rate, seed=seed, **classes)
    return dataset.train.labels


def symmetric(
    labels: np.ndarray,
    rate: float,
    *,
    num_classes: int,
    seed: int = 233,
    inclusive: bool = False,
) -> np.ndarray:
    """Give a fraction of each class a random other label.

    `inclusive` draws among all classes, including the true one, so fewer labels end up wrong.
    """
    _check_rate(rate)
    generator = np.random.RandomState(seed)
    by_class = []
    for label in range(num_classes):
        members = np.flatnonzero(labels == label)
        by_class.append(generator.choice(members, int(rate * len(members)), replace=False))
    chosen = np.concatenate(by_class)
    given = labels.copy()
    if inclusive:
        given[chosen] = generator.randint(0, num_classes, len(chosen))
    else:
        other = generator.randint(0, num_classes - 1, len(chosen))
        given[chosen] = other + (other >= labels[chosen])  # skip the true class
    return given


def asymmetric(
    labels: np.ndarray,
    rate: float,
    *,
    pairs: Sequence[tuple[int, int]],
    seed: int = 233,
    simultaneous: bool = False,
) -> np.ndarray:
    """Give a fraction of each source class the label of its target class.

    As released, pairs are processed one after the other on labels already changed, so swapped
    classes get some examples back and less noise results than was asked for. `simultaneous` takes
    every pair from the true labels.
    """
    _check_rate(rate)
    generator = np.random.RandomState(seed)
    given = labels.copy()
    for source, target in pairs:
        members = np.flatnonzero((labels if simultaneous else given) == source)
        given[generator.choice(members, int(rate * len(members)), replace=False)] = target
    return given


def by_matrix(
    labels: np.ndarray, matrix: np.ndarray, *, num_classes: int, seed: int = 233
) -> np.ndarray:
    """Draw each label from the row of its true class in a transition matrix [c, c]."""
    matrix = np.asarray(matrix, float)
    if matrix.shape != (num_classes, num_classes):
        raise ValueError(
            f"The transition matrix has the shape {matrix.shape}; expected a row and a column "
            f"for each of the {num_classes} classes."
        )
    if matrix.min() < 0 or not np.allclose(matrix.sum(axis=1), 1):
        raise ValueError(
            "The rows of the transition matrix must be probabilities that add up to 1."
        )
    return _draw(matrix[labels], np.random.RandomState(seed))


def instance_dependent(
    labels: np.ndarray,
    features: np.ndarray,
    rate: float,
    *,
    num_classes: int,
    seed: int = 233,
) -> np.ndarray:
    """Draw errors that depend on the example, towards classes that its features point to.

    Xia et al., 2020, https://arxiv.org/abs/2006.07836, Algorithm 2: each example has its own error
    probability, normal around the rate and clipped to [0, 1]; the wrong label follows a random
    linear map of the features, one per true class.
    """
    _check_rate(rate)
    generator = np.random.RandomState(seed)
    error_probability = np.clip(generator.normal(rate, 0.1, len(labels)), 0, 1)
    features = np.reshape(features, (len(labels), -1)).astype(np.float64)
    features = (features - features.mean(axis=0)) / np.maximum(features.std(axis=0), 1e-12)
    probability = np.empty((len(labels), num_classes))
    for label in range(num_classes):
        members = np.flatnonzero(labels == label)
        scores = features[members] @ generator.standard_normal((features.shape[1], num_classes))
        scores[:, label] = -np.inf
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        wrong = scores / scores.sum(axis=1, keepdims=True)
        probability[members] = error_probability[members, None] * wrong
        probability[members, label] = 1 - error_probability[members]
    return _draw(probability, generator)


def _draw(probability, generator):
    """Draw one class per row of [N, c]."""
    edges = np.cumsum(probability, axis=1)
    edges[:, -1] = 1  # rounding
    return np.argmax(generator.random_sample((len(edges), 1)) < edges, axis=1)


def _check_rate(rate):
    if not 0 <= rate < 1:
        raise ValueError(f"The noise rate is {rate}; expected a fraction from 0 to below 1.")


def fingerprint(labels: np.ndarray) -> str:
    """Hash a data set's true labels in their order, to tell data sets apart."""
    return hashlib.sha256(np.asarray(labels, np.int64).tobytes()).hexdigest()


def save_manifest(manifest: Manifest, path: str | Path) -> None:
    """Write one .npz file with all that is needed to use the same labels again."""
    with replace_file(Path(path), binary=True) as file:
        np.savez_compressed(
            file,
            **manifest._asdict(),
            obtained=manifest.obtained,
            matrix=manifest.matrix,
            hash=fingerprint(manifest.true),
        )


def load_manifest(path: str | Path, true: np.ndarray, *, num_classes: int = 256) -> Manifest:
    """Read the manifest of a data set with these true labels.

    Raises:
        ValueError: the file is not a manifest, or belongs to another data set.
    """
    stored = load_arrays(Path(path))
    if not isinstance(stored, dict) or not {*Manifest._fields, "hash"} <= set(stored):
        raise ValueError(f"{path} is not a noise manifest; expected one that a run saved.")
    if stored["hash"] != fingerprint(true):
        raise ValueError(
            f"The noise manifest {path} belongs to another data set: it has "
            f"{len(stored['true'])} labels of another order or kind, this one has {len(true)}."
        )
    given = stored["given"]
    if given.shape != true.shape or given.min() < 0 or given.max() >= num_classes:
        raise ValueError(
            f"The noise manifest {path} gives {given.shape} labels from {given.min()} to "
            f"{given.max()}; expected {true.shape} from 0 to {num_classes - 1}."
        )
    kind, rate, seed = str(stored["kind"]), float(stored["rate"]), int(stored["seed"])
    return Manifest(given, true, kind, rate, seed)
