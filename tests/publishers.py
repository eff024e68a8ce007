"""Small files in the publishers' own layouts, and sources that accept them."""

import gzip
import hashlib
import pickle
import struct
import tarfile
from functools import partial
from pathlib import Path

import numpy as np

from spr_jax.datasets import animal10n, cifar10, cifar10n, mnist
from spr_jax.datasets.source import Examples, Source

COUNTS = {"train": 50, "test": 10}


def md5_of(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def make_images(count: int, *shape: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random pixels, and labels that hold every class."""
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (count, *shape), dtype=np.uint8)
    return images, generator.permutation(np.arange(count) % 10).astype(np.uint8)


def write_mnist(folder: Path) -> tuple[Source, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Four idx files, gzipped: magic number, lengths of the axes, values."""
    folder.mkdir(parents=True, exist_ok=True)
    data, files = {}, {}
    for split, names in mnist.FILES.items():
        images, labels = data[split] = make_images(COUNTS[split], 28, 28, seed=len(split))
        files[split] = {}
        for name, array in zip(names, (images, labels), strict=True):
            head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            content = head + array.tobytes()
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            files[split][name] = md5_of(content)
    source = mnist.SOURCE._replace(counts=COUNTS, read=partial(mnist.read, files=files), sha256={})
    return source, data


def cifar_batches() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {name: make_images(10, 3, 32, 32, seed=k) for k, name in enumerate(cifar10.MD5)}


def as_binary(images: np.ndarray, labels: np.ndarray) -> bytes:
    return np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1).tobytes()


def as_python(images: np.ndarray, labels: np.ndarray) -> bytes:
    """The dict that Python 2 pickled; protocol 2 is its latest."""
    batch = {
        "batch_label": "a batch",
        "labels": labels.tolist(),
        "data": images.reshape(len(images), -1),
        "filenames": [f"{k}.png" for k in range(len(images))],
    }
    return pickle.dumps(batch, protocol=2)


def write_cifar10(folder: Path, *, python: bool = False, archive: bool = False) -> Source:
    """Six batches in a folder, or that folder in an archive."""
    name = "cifar-10-batches-py" if python else "cifar-10-batches-bin"
    home = folder / name
    home.mkdir(parents=True)
    for batch, (images, labels) in cifar_batches().items():
        content = as_python(images, labels) if python else as_binary(images, labels)
        (home / (batch if python else f"{batch}.bin")).write_bytes(content)
    (home / ("batches.meta" if python else "batches.meta.txt")).write_bytes(b"names")
    if archive:
        kind = "python" if python else "binary"
        with tarfile.open(folder / f"cifar-10-{kind}.tar.gz", "w:gz") as tar:
            tar.add(home, name)
        for path in home.iterdir():
            path.unlink()
        home.rmdir()
    return cifar10.SOURCE._replace(
        counts=COUNTS, read=partial(cifar10.read, md5=cifar_md5()), sha256={}
    )


def cifar_md5() -> dict[str, str]:
    return {name: md5_of(as_binary(*batch)) for name, batch in cifar_batches().items()}


def cifar_arrays() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Contents of the files: images [N, 32, 32, 3] and labels of both splits."""
    batches = cifar_batches()
    test = batches.pop("test_batch")
    images, labels = (np.concatenate(parts) for parts in zip(*batches.values(), strict=True))
    return {
        "train": (images.transpose(0, 2, 3, 1), labels),
        "test": (test[0].transpose(0, 2, 3, 1), test[1]),
    }


def human_labels() -> dict[str, np.ndarray]:
    """In the publisher's names and the order of the batches."""
    true = cifar_arrays()["train"][1].astype(np.int64)
    names = [*cifar10n.OPINIONS.values()]
    return {"clean_label": true} | {name: (true + k) % 10 for k, name in enumerate(names)}


def cifar10n_source() -> Source:
    return cifar10n.SOURCE._replace(counts=COUNTS, read=partial(cifar10n.read, md5=cifar_md5()))


def animal_source() -> Source:
    return animal10n.SOURCE._replace(counts=COUNTS)


def assert_holds(examples: Examples, images: np.ndarray, labels: np.ndarray) -> None:
    """Assert that the examples are these, in this order."""
    np.testing.assert_array_equal(examples.images, images.reshape(examples.images.shape))
    np.testing.assert_array_equal(examples.labels["label"], labels)
