"""The images whose labels are to be judged, in an order that never changes.

    images = list_images(folder="photos")  # nothing is decoded yet
    images.dataset.train.images, images.labels

Labels are class names here; only the data set that a network is trained on holds their codes.
"""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spr_jax.datasets import DATASETS
from spr_jax.datasets.folder import fingerprint, list_folder
from spr_jax.datasets.images import ImageFiles
from spr_jax.registry import build, options_of
from spr_jax.types import IMAGENET_MEAN, IMAGENET_STD, Dataset, Split


class Images(NamedTuple):
    """The training images of a data set, whose labels are to be judged."""

    dataset: Dataset
    labels: np.ndarray  # [N] class names, as given
    true: np.ndarray | None  # [N] class names, where known


def list_images(
    *, folder: str = "", name: str = "", size: int | None = None, data_dir: str = ""
) -> Images:
    """List the user's folder, of which nothing is held out or decoded; or load a data set by name.

    Args:
      folder: with a folder for each class, or a labels.csv.
      name: of a data set, instead of a folder.
      size: of the user's images when they are decoded; None: as a network is trained on them.
      data_dir: folder where data sets are stored.

    Raises:
      ValueError: in one sentence, what was given and what is expected.
    """
    if not folder:
        return load_images(name=name, data_dir=data_dir)
    root, listing, class_names = list_folder(folder)
    kept = np.flatnonzero(~listing.test)
    size = size or usual_size()
    given, true = (
        None if labels is None else np.searchsorted(class_names, labels[kept]).astype(np.int32)
        for labels in (listing.labels, listing.true_labels)
    )
    names = [Path(path).relative_to(root).as_posix() for path in listing.paths[kept]]
    files = ImageFiles(listing.paths[kept], size, size)
    assert given is not None
    return _with_names(
        Dataset(
            name="folder",
            train=Split(files, given, true, np.array(names)),
            tests={},
            class_names=class_names,
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
            augmentation="crop_flip",
        )
    )


def load_images(
    *,
    folder: str = "",
    name: str = "",
    size: int | None = None,
    skip_unreadable: bool = False,
    data_dir: str = "",
) -> Images:
    """Load a data set by name; or decode the user's folder, of which nothing is held out."""
    options: dict[str, Any] = {"name": "folder" if folder else name, "data_dir": data_dir}
    if folder:
        options |= {"path": folder, "size": size or usual_size(), "test_share": 0.0}
        options["skip_unreadable"] = skip_unreadable
    elif name in DATASETS and "data_dir" not in options_of(DATASETS[name]):
        del options["data_dir"]  # embedded
    return _with_names(build(DATASETS, options))


def _with_names(dataset):
    train, names = dataset.train, np.array(dataset.class_names)
    true = None if train.true_labels is None else names[train.true_labels]
    return Images(dataset, names[train.labels], true)


def usual_size() -> int:
    """Pixels to which a user's images are resized to train on them."""
    import jax

    return 32 if jax.default_backend() == "cpu" else 64


def fingerprint_of(dataset: Dataset) -> str:
    """Hash that changes with the training images: of their files, or of some of their pixels."""
    images = dataset.train.images
    if isinstance(images, ImageFiles):
        return fingerprint(images.paths)
    some = images[:: max(len(images) // 1000, 1)]
    facts = f"{dataset.name} {images.shape} {hashlib.sha256(some.tobytes()).hexdigest()}"
    return hashlib.sha256(facts.encode()).hexdigest()[:16]
