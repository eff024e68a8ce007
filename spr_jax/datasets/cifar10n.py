"""CIFAR-10N: human labels of CIFAR-10's training images (Wei et al., 2022).

Three people labeled each image. https://github.com/UCSC-REAL/cifar-10-100n
"""

import io
import zipfile
from pathlib import Path
from pickle import UnpicklingError

import numpy as np

from spr_jax.datasets import cifar10 as base
from spr_jax.datasets.prepared import load, split_of
from spr_jax.datasets.source import Examples, find_file
from spr_jax.io.arrays import load_arrays
from spr_jax.io.pickles import load_array_pickle
from spr_jax.registry import lookup
from spr_jax.types import Dataset

# Our name -> the publisher's.
OPINIONS = {
    "aggre": "aggre_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
    "worst": "worse_label",
}

WRONG = {  # fraction of wrong labels, as published
    "aggre": 0.0903,
    "random1": 0.1723,
    "random2": 0.1812,
    "random3": 0.1764,
    "worst": 0.4021,
}


def cifar10n(labels: str = "worst", data_dir: str = "") -> Dataset:
    """CIFAR-10 with human labels: aggre (9 % wrong), random1, random2, random3 (18), worst (40).

    Args:
        labels: which of them.
        data_dir: where data sets are stored; default: where TensorFlow Datasets stores them.

    Raises:
        ValueError: `labels` is unknown, or the data set is missing and cannot be prepared.
    """
    lookup(OPINIONS, labels)
    splits = load(SOURCE, data_dir)
    return Dataset(
        name="cifar10n",
        train=split_of(splits["train"], given=labels),
        tests={"test": split_of(splits["test"])},
        class_names=SOURCE.class_names,
        mean=base.MEAN,
        std=base.STD,
        augmentation="crop_flip",
    )


def read(raw_dir: Path, md5: dict[str, str] = base.MD5) -> dict[str, Examples]:
    """Read CIFAR-10, with the human labels of its training images as further columns.

    The test images have no human labels; their columns repeat the true label.
    """
    splits = base.read(raw_dir, md5)
    stored = _opinions(raw_dir)
    true = splits["train"].labels["label"]
    if not np.array_equal(stored["clean_label"], true):
        raise ValueError(
            f"The human labels in {raw_dir} are not in the order of the images; expected the "
            "order of CIFAR-10's own batches."
        )
    human = {name: stored[theirs].astype(np.uint8) for name, theirs in OPINIONS.items()}
    test = splits["test"].labels["label"]
    return {
        "train": Examples(splits["train"].images, {"label": true, **human}),
        "test": Examples(splits["test"].images, {"label": test, **dict.fromkeys(human, test)}),
    }


def _opinions(raw_dir):
    """Read the publisher's names -> [50000], from any published format."""
    names = ("cifar10n.npz", "CIFAR-10_human.pt", "CIFAR-10_human_annotations.csv")
    homes = ("", "data/")
    path = find_file(raw_dir, *(home + name for home in homes for name in names))
    try:
        stored = {".npz": load_arrays, ".pt": _read_torch, ".csv": _read_table}[path.suffix](path)
        return {
            name: np.asarray(stored[name], np.int64).reshape(-1)
            for name in ("clean_label", *OPINIONS.values())
        }
    except (KeyError, EOFError, UnpicklingError, zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"Cannot read {path}: {error}; download it again.") from None


def _read_torch(path):
    """Read a dict of NumPy arrays that torch.save wrote: a zip with one relevant pickle."""
    with zipfile.ZipFile(path) as archive:
        pickled = next((name for name in archive.namelist() if name.endswith("/data.pkl")), "")
        return load_array_pickle(io.BytesIO(archive.read(pickled)))


def _read_table(path):
    """Read the version for TensorFlow, which is in the order in which TFDS shuffles CIFAR-10."""
    order = load_arrays(find_file(path.parent, "image_order_c10.npy"))
    with open(path, encoding="utf-8") as file:
        names = file.readline().strip().split(",")
    table = np.loadtxt(path, np.int64, delimiter=",", skiprows=1, ndmin=2)
    columns = np.empty_like(table)
    columns[order] = table
    return dict(zip(names, columns.T, strict=True))


SOURCE = base.SOURCE._replace(
    name="cifar10n",
    read=read,
    homepage="https://github.com/UCSC-REAL/cifar-10-100n",
    urls={
        **base.SOURCE.urls,
        "CIFAR-10_human.pt": (
            "https://github.com/UCSC-REAL/cifar-10-100n/raw/main/data/CIFAR-10_human.pt"
        ),
    },
    sha256={},
    stock="",
)
