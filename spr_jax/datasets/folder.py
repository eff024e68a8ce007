"""The user's own images, in one of three layouts.

    photos/cat/1.jpg         one folder per class; some images of each are held out as the test set
    photos/train/cat/1.jpg   the same in two folders, `train` and `test`
    photos/labels.csv        a table with the columns `file`, `label` and, if known, `true_label`

The test set has the true labels if they are known; otherwise it is as noisy as the rest.

Small sets are decoded once and stored as arrays; large ones are streamed from their files.
"""

import contextlib
import csv
import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import logging

from spr_jax.datasets.cache import cached
from spr_jax.datasets.images import (
    ImageFiles,
    decode_all,
    image_files,
    readable,
)
from spr_jax.datasets.prepared import usual_data_dir
from spr_jax.types import IMAGENET_MEAN, IMAGENET_STD, Dataset, Split


class Listing(NamedTuple):
    """Contents of the folder, one row per image."""

    paths: np.ndarray  # [N] text
    labels: np.ndarray  # [N] class names
    true_labels: np.ndarray | None  # [N] class names
    test: np.ndarray  # [N] bool


def folder(
    path: str = "",
    size: int = 64,
    test_share: float = 0.1,
    skip_unreadable: bool = False,
    memory_gb: float = 1.0,
    data_dir: str = "",
) -> Dataset:
    """Your own images: one folder per class, or files listed in a labels.csv.

    Args:
        path: the folder.
        size: images become squares of this many pixels.
        test_share: fraction of each class held out as the test set.
        skip_unreadable: leave damaged images out instead of failing.
        memory_gb: larger sets are streamed from their files.
        data_dir: where decoded images are stored; default: where TensorFlow Datasets stores data.

    Raises:
        ValueError: the folder or its labels.csv is missing, malformed or has unreadable images.
    """
    root, listing, class_names = list_folder(path, test_share=test_share)
    streamed = len(listing.paths) * size * size * 3 > memory_gb * 2**30
    # Streamed images are resized to slightly more than the crop, as usual; decoded ones are cropped
    # again on the device.
    files = ImageFiles(listing.paths, size, round(size * 320 / 299) if streamed else size)
    stored = _decode_once(root, files, streamed, usual_data_dir(data_dir))
    good = readable(stored["errors"].tolist(), skip=skip_unreadable)

    given = np.searchsorted(class_names, listing.labels)
    true = listing.true_labels
    true = None if true is None else np.searchsorted(class_names, true)

    def split(chosen, labels):
        images = files.take(chosen) if streamed else stored["images"][chosen]
        names = np.array([Path(path).relative_to(root).as_posix() for path in files.paths[chosen]])
        return Split(images, labels[chosen], None if true is None else true[chosen], names)

    test = np.flatnonzero(good & listing.test)
    if test_share and not len(test):
        logging.warning("%s leaves no images for a test set; see test_share.", root)
    return Dataset(
        name="folder",
        train=split(np.flatnonzero(good & ~listing.test), given),
        tests={"test": split(test, given if true is None else true)} if len(test) else {},
        class_names=class_names,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        augmentation="flip" if streamed else "crop_flip",
    )


def list_folder(path: str, *, test_share: float = 0.0) -> tuple[Path, Listing, tuple[str, ...]]:
    """Return the folder, its images and labels, and the names of its classes; decode nothing."""
    root = Path(path).expanduser().absolute()
    if not path or not root.is_dir():
        raise ValueError(f"There is no folder {path!r}; path must be a folder of images.")
    if not 0 <= test_share < 1:
        raise ValueError(f"test_share is {test_share}; expected a fraction from 0 to below 1.")
    listing = _list(root, test_share)
    return root, listing, _class_names(root, listing)


def _list(root, test_share):
    """List the folder's images and labels, whichever of the three layouts it has."""
    if (root / "labels.csv").exists():
        return _hold_out(_read_table(root), test_share)
    # A class may be called "train": then that folder holds images and no subfolders.
    inner = root / "train"
    has_splits = inner.is_dir() and any(path.is_dir() for path in inner.iterdir())
    paths, labels = _class_folders(inner if has_splits else root)
    if has_splits and (root / "test").is_dir():
        test = _class_folders(root / "test")
        is_test = np.arange(len(paths) + len(test[0])) >= len(paths)
        paths, labels = (np.concatenate(pair) for pair in zip((paths, labels), test, strict=True))
        return Listing(paths, labels, None, is_test)
    return _hold_out(Listing(paths, labels, None, np.zeros(len(paths), bool)), test_share)


def _class_folders(root):
    """List (paths, names) of one folder per class."""
    paths, labels = [], []
    for home in sorted(root.iterdir()):
        if not home.is_dir() or home.name.startswith("."):
            continue
        found = image_files(home)
        if not found:
            raise ValueError(f"The class folder {home} holds no images; fill or remove it.")
        paths += map(str, found)
        labels += [home.name] * len(found)
    return np.array(paths, str), np.array(labels, str)


def _read_table(root):
    path = root / "labels.csv"
    with open(path, newline="", encoding="utf-8-sig") as file:
        table = csv.DictReader(file)
        rows, names = list(table), table.fieldnames or []
    if not rows or not {"file", "label"} <= set(names):
        raise ValueError(
            f"{path} has {len(rows)} rows and the columns {names}; expected at least one row, and "
            "the columns 'file' (below this folder) and 'label'."
        )
    for number, row in enumerate(rows, start=2):
        known = [row[name] for name in ("file", "label", "true_label") if name in names]
        if not all(known) or not (root / row["file"]).is_file():
            raise ValueError(
                f"Line {number} of {path} has {known}; expected a file in {root} and its label in "
                "every line, and its true label if there is such a column."
            )
    true = np.array([row["true_label"] for row in rows]) if "true_label" in names else None
    paths = np.array([str(root / row["file"]) for row in rows])
    return Listing(paths, np.array([row["label"] for row in rows]), true, np.zeros(len(rows), bool))


def _hold_out(listing, share):
    """Hold out the same images of each class every time."""
    test = listing.test.copy()
    for label in np.unique(listing.labels):
        members = np.random.RandomState(0).permutation(np.flatnonzero(listing.labels == label))
        test[members[: int(share * len(members))]] = True
    return listing._replace(test=test)


def _class_names(root, listing):
    names = [listing.labels] if listing.true_labels is None else [*listing[1:3]]
    names = np.unique(np.concatenate(names)) if len(listing.paths) else []
    if len(names) < 2:
        raise ValueError(
            f"{root} has images of {len(names)} classes; expected a folder for each of two or more "
            "classes, or a labels.csv."
        )
    return tuple(names.tolist())


def _decode_once(root, files, streamed, data_dir):
    """Return `errors` of all files and, unless streamed, `images`; redone if a file changes."""

    def make():
        for other in home.iterdir():  # from an earlier state of the files
            if other.is_dir():
                shutil.rmtree(other)
        images = None if streamed else np.zeros(files.shape, np.uint8)
        errors = np.array(decode_all(files, images), str)
        return {"errors": errors} | ({} if streamed else {"images": images})

    facts = f"{files.size} {files.short_side} {fingerprint(files.paths)}"
    home = data_dir / "spr_folder" / _hash(f"{root} {files.size} {streamed}")
    return cached(home / _hash(facts), make)


def fingerprint(paths: Sequence[str] | np.ndarray) -> str:
    """Hash of the names, sizes and times of files, which changes when one of them does."""
    facts = []
    for path in paths:
        with contextlib.suppress(OSError):  # a broken link, which cannot be read either
            status = os.stat(path)
            facts.append((str(path), status.st_size, status.st_mtime_ns))
    return _hash(repr(facts))


def _hash(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]
