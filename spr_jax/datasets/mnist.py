"""MNIST from its idx files (LeCun, Cortes, Burges)."""

import gzip
import zlib
from pathlib import Path

import numpy as np

from spr_jax.datasets.prepared import load, split_of
from spr_jax.datasets.source import Examples, Source, check_md5, find_file
from spr_jax.types import Dataset

# Images and labels of each split, with the md5 of the unpacked file.
FILES = {
    "train": {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    },
    "test": {
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
}


def mnist(data_dir: str = "") -> Dataset:
    """28x28 handwritten digits, 60,000 and 10,000."""
    splits = load(SOURCE, data_dir)
    return Dataset(
        name="mnist",
        train=split_of(splits["train"]),
        tests={"test": split_of(splits["test"])},
        class_names=SOURCE.class_names,
        mean=(0.1307,),
        std=(0.3081,),
        augmentation="none",
    )


def read(raw_dir: Path, files: dict[str, dict[str, str]] = FILES) -> dict[str, Examples]:
    """Read both splits from four idx files, gzipped or not."""
    splits = {}
    for split, names in files.items():
        images, labels = (_read_idx(raw_dir, name, md5) for name, md5 in names.items())
        splits[split] = Examples(images[..., None], {"label": labels})
    return splits


def _read_idx(raw_dir, name, md5):
    """Read two zero bytes, type 8 (uint8), the number of axes, their lengths, the values."""
    homes = ("", "MNIST/raw/")  # the second is torchvision's
    path = find_file(raw_dir, *(f"{home}{name}{end}" for home in homes for end in (".gz", "")))
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"Cannot read {path}: {error}; download it again.") from None
    check_md5(path, content, md5)
    shape = np.frombuffer(content, ">i4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


SOURCE = Source(
    name="mnist",
    class_names=tuple("0123456789"),
    counts={"train": 60_000, "test": 10_000},
    read=read,
    homepage="http://yann.lecun.com/exdb/mnist",
    urls={
        f"{name}.gz": f"https://storage.googleapis.com/cvdf-datasets/mnist/{name}.gz"
        for names in FILES.values()
        for name in names
    },
    sha256={
        "train": "edc0d1098aa497be14ace79ddd5171e5a3dcf9c4d196c015389203eb3ba1f59b",
        "test": "c3f9adf9c66efb572b1f9326c3a511b45910c7173b97be66ceceeeeaef6b802b",
    },
)
