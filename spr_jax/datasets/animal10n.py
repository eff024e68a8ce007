"""ANIMAL-10N: 64x64 photographs of animals that people confuse (Song et al., 2019).

Read from folders of images whose names begin with the label, or from binary batches.
https://dm.kaist.ac.kr/datasets/animal-10n
"""

from pathlib import Path

import numpy as np
from tqdm import tqdm

from spr_jax.datasets.images import image_files, open_image
from spr_jax.datasets.prepared import load, split_of
from spr_jax.datasets.source import Examples, Source, find_file
from spr_jax.types import IMAGENET_MEAN, IMAGENET_STD, Dataset

SIZE = 64
# A record: id and label, big-endian, then the pixels channel by channel.
RECORD = np.dtype([("id", ">u4"), ("label", ">u4"), ("planes", np.uint8, (3, SIZE, SIZE))])


def animal10n(data_dir: str = "") -> Dataset:
    """64x64 photographs of ten animals, 50,000 with about 8 % human errors and 5,000 without."""
    splits = load(SOURCE, data_dir)
    return Dataset(
        name="animal10n",
        train=split_of(splits["train"], known=False),
        tests={"test": split_of(splits["test"])},
        class_names=SOURCE.class_names,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        augmentation="crop_flip",
    )


def read(raw_dir: Path) -> dict[str, Examples]:
    """Read both splits; images are in the order of their names."""
    place = find_file(raw_dir, "training", "data_batch_1.bin", "raw_image/training")
    if place.is_dir():
        folders = {"train": place, "test": find_file(place.parent, "testing")}
        return {split: _read_folder(folder, split) for split, folder in folders.items()}
    batches = sorted(place.parent.glob("data_batch_*.bin"), key=lambda path: (len(path.name), path))
    test = find_file(raw_dir, "test_batch.bin")
    return {"train": _read_batches(batches), "test": _read_batches([test])}


def _read_folder(folder, split):
    paths = image_files(folder)
    images = np.empty((len(paths), SIZE, SIZE, 3), np.uint8)
    labels = np.empty(len(paths), np.uint8)
    for index, path in enumerate(tqdm(paths, f"Reading {split}", unit=" images")):
        image, label = open_image(path), path.name.split("_")[0]
        if image.size != (SIZE, SIZE) or label not in set("0123456789"):
            raise ValueError(
                f"{path} is {image.size[0]}x{image.size[1]} pixels; expected {SIZE}x{SIZE} and a "
                "name that begins with a label from 0 to 9 and an underscore."
            )
        images[index], labels[index] = image, int(label)
    return Examples(images, {"label": labels})


def _read_batches(paths):
    records = []
    for path in paths:
        if path.stat().st_size % RECORD.itemsize:
            raise ValueError(
                f"{path} has {path.stat().st_size} bytes, not a multiple of the record size "
                f"{RECORD.itemsize}: it is truncated, download it again."
            )
        records.append(np.fromfile(path, RECORD))
    records = np.concatenate(records)
    labels = np.minimum(records["label"], 255).astype(np.uint8)
    return Examples(records["planes"].transpose(0, 2, 3, 1).copy(), {"label": labels})


SOURCE = Source(
    name="animal10n",
    class_names=(
        "cat",
        "lynx",
        "wolf",
        "coyote",
        "cheetah",
        "jaguar",
        "chimpanzee",
        "orangutan",
        "hamster",
        "guinea pig",
    ),
    counts={"train": 50_000, "test": 5_000},
    read=read,
    homepage="https://dm.kaist.ac.kr/datasets/animal-10n",
)
