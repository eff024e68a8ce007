"""CIFAR-10 (Krizhevsky, 2009) from its binary or its python version, packed or unpacked.

A record is a label byte and 3072 pixel bytes, channel by channel. Every batch is converted to that
form, whose md5 is known.
"""

import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError

import numpy as np

from spr_jax.datasets.prepared import load, split_of
from spr_jax.datasets.source import Examples, Source, check_md5, find_file
from spr_jax.io.pickles import load_array_pickle
from spr_jax.types import Dataset

# Batch -> md5 of its file in the binary version.
MD5 = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
RECORD = 1 + 3 * 32 * 32
MEAN = (0.49139968, 0.48215827, 0.44653124)
STD = (0.24703233, 0.24348505, 0.26158768)


def cifar10(data_dir: str = "") -> Dataset:
    """32x32 photographs of ten classes, 50,000 and 10,000."""
    splits = load(SOURCE, data_dir)
    return Dataset(
        name="cifar10",
        train=split_of(splits["train"]),
        tests={"test": split_of(splits["test"])},
        class_names=SOURCE.class_names,
        mean=MEAN,
        std=STD,
        augmentation="crop_flip",
    )


def read(raw_dir: Path, md5: dict[str, str] = MD5) -> dict[str, Examples]:
    """Read both splits from the folder or archive of either version."""
    batches = {}
    for name, content in _batches(raw_dir, md5):
        check_md5(f"{name} of CIFAR-10 in {raw_dir}", content, md5[name])
        batches[name] = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    test = batches.pop("test_batch")
    return {"train": _examples(np.concatenate(list(batches.values()))), "test": _examples(test)}


def _examples(records):
    planes = records[:, 1:].reshape(-1, 3, 32, 32)
    return Examples(planes.transpose(0, 2, 3, 1).copy(), {"label": records[:, 0].copy()})


def _batches(raw_dir: Path, names) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content as in the binary version) of every batch."""
    place = find_file(
        raw_dir,
        "cifar-10-batches-bin",
        "cifar-10-binary.tar.gz",
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
        "data_batch_1.bin",
        "data_batch_1",
    )
    place = raw_dir if place.name.startswith("data_batch_1") else place
    try:
        files = (
            _files_of_folder(place, names) if place.is_dir() else _files_of_archive(place, names)
        )
        for name in names:
            if name not in files:
                raise ValueError(f"There is no {name} of CIFAR-10 in {place}; download it again.")
            yield name, files[name]
    except (OSError, EOFError, zlib.error, tarfile.TarError, UnpicklingError, KeyError) as error:
        raise ValueError(f"Cannot read CIFAR-10 in {place}: {error}; download it again.") from None


def _files_of_folder(folder, names):
    paths = [folder / f"{name}{end}" for name in names for end in (".bin", "")]
    return {path.stem: _as_records(path.name, path.read_bytes()) for path in paths if path.exists()}


def _files_of_archive(path, names):
    """Read members by name, without unpacking to disk."""
    with tarfile.open(path) as archive:
        members = [member for member in archive if Path(member.name).stem in names]
        return {
            Path(member.name).stem: _as_records(member.name, archive.extractfile(member).read())
            for member in members
        }


def _as_records(name, content):
    """Convert a batch of the python version, a dict of pixels [n, 3072] and a list of labels."""
    if name.endswith(".bin"):
        return content
    batch = load_array_pickle(io.BytesIO(content))
    labels = np.array(batch["labels"], np.uint8)
    return np.concatenate([labels[:, None], batch["data"]], axis=1).tobytes()


SOURCE = Source(
    name="cifar10",
    class_names=(
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ),
    counts={"train": 50_000, "test": 10_000},
    read=read,
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    urls={"cifar-10-binary.tar.gz": "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"},
    sha256={
        "train": "f912919bdea371136f1aa4feed6beeca728015a5f08b1899a29c932a7e30be2b",
        "test": "8193b3fbce55bec361cd1b8fd4880cb1649832dc4d6de6da1e7a21847a4843aa",
    },
    stock="cifar10",
)
