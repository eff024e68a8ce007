"""WebVision (mini): photographs from a web search, labeled by their search words.

The first 50 classes of the Google subset, as in the papers, and the publisher's validation set;
optionally ImageNet's validation images of the same classes as a second test set. The images stay
files where they are and are decoded while training; preparing reads the lists, decodes every image
once to verify it, and writes an index.
"""

from pathlib import Path
from typing import Any

import numpy as np

from spr_jax.datasets.images import (
    ImageFiles,
    decode_all,
    image_files,
    readable,
)
from spr_jax.datasets.prepared import usual_data_dir
from spr_jax.datasets.source import find_file
from spr_jax.io.arrays import load_arrays
from spr_jax.io.atomic import replace_file
from spr_jax.types import IMAGENET_MEAN, IMAGENET_STD, Dataset, Split

HOMEPAGE = "https://data.vision.ee.ethz.ch/cvl/webvision"
TESTS = ("webvision", "imagenet")


def webvision(data_dir: str = "") -> Dataset:
    """Web photographs of 50 classes with real errors, streamed; ImageNet as a second test set.

    Args:
        data_dir: where data sets are stored; default: where TensorFlow Datasets stores them.

    Raises:
        ValueError: the data set has not been prepared.
    """
    stored = _read_index(data_dir)

    def split(name, known):
        labels = stored[f"{name}_labels"]
        return Split(_files(stored[f"{name}_paths"]), labels, labels if known else None)

    tests = [name for name in TESTS if f"{name}_paths" in stored]
    return Dataset(
        name="webvision",
        train=split("train", known=False),
        tests={name: split(name, known=True) for name in tests},
        class_names=tuple(stored["class_names"].tolist()),
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        augmentation="flip",  # the crops are cut while decoding
    )


def prepare(
    raw_dir: str,
    data_dir: str = "",
    *,
    imagenet_dir: str = "",
    num_classes: int = 50,
    skip_unreadable: bool = False,
) -> Path:
    """Write the index of a folder that holds info, google and val_images_256.

    Args:
        raw_dir: that folder.
        data_dir: where data sets are stored; default: where TensorFlow Datasets stores them.
        imagenet_dir: ImageNet's validation images, for a second test set.
        num_classes: the first this many classes are used.
        skip_unreadable: leave damaged images out instead of failing.

    Returns:
        The folder of the index.

    Raises:
        ValueError: files are missing, malformed or unreadable, or the index cannot be written.
    """
    root = Path(raw_dir).expanduser().absolute()
    if not raw_dir or not root.is_dir():
        raise ValueError(
            f"There is no folder {raw_dir!r}; WebVision must be requested: get it from "
            f"{HOMEPAGE} and give the folder of info, google and val_images_256 as raw_dir."
        )
    synsets = [line.split(maxsplit=1) for line in _lines(root, "info/synsets.txt")][:num_classes]
    splits = {
        "train": _read_list(root, "info/train_filelist_google.txt", root, num_classes),
        "webvision": _read_list(
            root, "info/val_filelist.txt", root / "val_images_256", num_classes
        ),
    }
    if imagenet_dir:
        images = Path(imagenet_dir).expanduser().absolute()
        splits["imagenet"] = _read_imagenet(images, [words[0] for words in synsets])
    arrays: dict[str, Any] = {
        "class_names": np.array([words[-1].split(",")[0].strip() for words in synsets])
    }
    for name, (paths, labels) in splits.items():
        good = readable(decode_all(_files(paths)), skip=skip_unreadable)
        arrays |= {f"{name}_paths": np.array(paths)[good], f"{name}_labels": labels[good]}
    index = _index_file(data_dir)
    try:
        index.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(index, binary=True) as file:
            np.savez_compressed(file, **arrays)
    except OSError as error:
        raise ValueError(f"Cannot write {index}: {error.strerror or error}.") from None
    return index.parent


def check(data_dir: str = "") -> Path:
    """Decode every image of the index once more."""
    stored = _read_index(data_dir)
    for name in ("train", *TESTS):
        if f"{name}_paths" in stored:
            readable(decode_all(_files(stored[f"{name}_paths"])), skip=False)
    return _index_file(data_dir).parent


def _files(paths):
    return ImageFiles(paths, size=299, short_side=320)


def _index_file(data_dir):
    return usual_data_dir(data_dir) / "spr_webvision" / "1.0.0" / "index.npz"


def _read_index(data_dir):
    index = _index_file(data_dir)
    if not index.exists():
        home = usual_data_dir(data_dir)
        raise ValueError(
            f"There is no WebVision in {home}; get it from {HOMEPAGE} and run "
            f"`python -m spr_jax.prepare webvision --raw_dir=DIR --data_dir={home}`."
        )
    return load_arrays(index)


def _read_list(root, name, home, num_classes):
    """Read (paths, labels) of lines `google/q0001/a.jpg 0` with a label below `num_classes`."""
    rows = [line.rsplit(maxsplit=1) for line in _lines(root, name)]
    bad = [row for row in rows if len(row) != 2 or not row[1].isdigit()]
    if bad:
        raise ValueError(f"{root / name} has the line {' '.join(bad[0])!r}; expected FILE LABEL.")
    rows = [(str(home / path), int(label)) for path, label in rows if int(label) < num_classes]
    labels = np.array([label for _, label in rows], np.int32)
    missing = set(range(num_classes)) - set(labels.tolist())
    if missing:
        raise ValueError(f"{root / name} has no images of the classes {sorted(missing)[:5]}.")
    return [path for path, _ in rows], labels


def _read_imagenet(folder, synsets):
    """Read (paths, labels) of validation images: one folder per class, or with the devkit."""
    if (folder / synsets[0]).is_dir():
        rows = [(path, k) for k, name in enumerate(synsets) for path in image_files(folder / name)]
    else:
        from scipy.io import loadmat

        rows = loadmat(find_file(folder, "meta.mat", "data/meta.mat"), squeeze_me=True)["synsets"]
        number = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in rows}
        truth = "ILSVRC2012_validation_ground_truth.txt"
        lines = find_file(folder, truth, f"data/{truth}").read_text().split()
        paths = [path for path in image_files(folder) if "_val_" in path.name]
        if len(paths) != len(lines):
            raise ValueError(
                f"{folder} has {len(paths)} validation images and {len(lines)} labels for them; "
                "expected one label per image."
            )
        names = [number[int(line)] for line in lines]
        rows = [
            (path, synsets.index(name))
            for path, name in zip(paths, names, strict=True)
            if name in synsets
        ]
    return [str(path) for path, _ in rows], np.array([label for _, label in rows], np.int32)


def _lines(root, name):
    lines = find_file(root, name).read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip()]
