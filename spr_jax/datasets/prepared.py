"""Data sets that are prepared once: the publisher's files -> records -> arrays in memory.

    DATA_DIR/spr_NAME/1.0.0/                records and their description, in TFDS's format
    DATA_DIR/spr_NAME/1.0.0/decoded_SPLIT/  the same as uint8 arrays, memory-mapped when read

A second start reads the arrays and does not import TFDS. Both are written under another name and
renamed, under a lock, so that whatever happens a data set is complete or does not exist.
"""

import json
import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
from absl import logging

from spr_jax.datasets.cache import alone, cached
from spr_jax.datasets.records import VERSION, has_records, read_records, write_records
from spr_jax.datasets.source import (
    Examples,
    Source,
    check_examples,
    content_hash,
    read_raw,
)
from spr_jax.types import Split


def usual_data_dir(data_dir: str = "") -> Path:
    """Return the given folder, or the one that TFDS uses."""
    usual = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return Path(data_dir or usual).expanduser()


def load(source: Source, data_dir: str = "") -> dict[str, Examples]:
    """Load the splits of a data set; prepare it first if it is missing."""
    folder = folder_of(source, data_dir)
    if folder is None:
        home = usual_data_dir(data_dir)
        logging.info("%s is not in %s: preparing it.", source.name, home)
        try:
            folder = prepare(source, data_dir=data_dir)
        except ValueError as error:
            raise ValueError(
                f"{source.name} is not in {home} and cannot be prepared: {error} Prepare it "
                f"with {command(source, home)}."
            ) from error
    return {split: _decoded(source, folder, split) for split in source.counts}


def split_of(examples: Examples, *, given: str = "label", known: bool = True) -> Split:
    """Make a split with the labels of one column, and the true ones if known."""
    labels, true = (examples.labels[name].astype(np.int32) for name in (given, "label"))
    return Split(examples.images, labels, true if known else None)


def prepare(source: Source, raw_dir: str = "", data_dir: str = "") -> Path:
    """Write a data set from its publisher's files, or a download of them.

    Args:
        source: the data set.
        raw_dir: folder of the publisher's files; default: $SPR_RAW_DIR, or else a download.
        data_dir: where data sets are stored; default: where TFDS stores them.

    Returns:
        The folder of the prepared data set.

    Raises:
        ValueError: the files are missing or damaged, or cannot be written.
    """
    home = usual_data_dir(data_dir)
    folder = home / f"spr_{source.name}" / VERSION
    try:
        with alone(folder.parent):
            if has_records(folder):  # another process may have made it while this one waited
                return folder
            splits = read_raw(source, raw_dir, home / "downloads")
            for split, examples in splits.items():
                check_examples(source, split, examples)
            _check_space(home, splits)
            write_records(source, splits, home)
            for split, (images, labels) in splits.items():
                arrays = {"images": images, **labels}
                cached(_cache(folder, split), partial(dict, arrays))
    except OSError as error:
        raise ValueError(
            f"Cannot prepare {source.name} in {home}: {error.strerror or error}; choose "
            "another data_dir, or make room in this one."
        ) from error
    return folder


def check(source: Source, data_dir: str = "") -> Path:
    """Decode a prepared data set; compare it with its publisher's, or with what was written.

    Returns:
        The folder of the data set.

    Raises:
        ValueError: the data set is missing, damaged or changed.
    """
    folder = folder_of(source, data_dir)
    if folder is None:
        home = usual_data_dir(data_dir)
        raise ValueError(f"There is no {source.name} in {home}; run {command(source, home)}.")
    for split in source.counts:
        examples = _read(source, folder, split)
        check_examples(source, split, examples)
        found, decoded = content_hash(examples), _decoded(source, folder, split)
        expected = source.sha256.get(split) or _written_hash(folder, split) or found
        if not found == expected == content_hash(decoded):
            raise ValueError(
                f"The {split} split of {source.name} in {folder} is not what its publisher "
                "shipped, or was changed; delete that folder and run "
                f"{command(source, folder.parents[1])}."
            )
    return folder


def folder_of(source: Source, data_dir: str = "") -> Path | None:
    """Find the data set: ours, or one that TFDS prepared, if it has ids. None if missing."""
    home = usual_data_dir(data_dir)
    stock = sorted((home / source.stock).glob("*.*.*")) if source.stock else []
    folders = [home / f"spr_{source.name}" / VERSION, *reversed(stock)]
    return next((folder for folder in folders if has_records(folder)), None)


def command(source: Source, data_dir: Path) -> str:
    """Command that prepares the data set."""
    return f"`python -m spr_jax.prepare {source.name} --raw_dir=DIR --data_dir={data_dir}`"


def _read(source, folder, split):
    try:
        return read_records(folder, split)
    except Exception as error:  # TFDS, array_record and Pillow each raise their own kinds
        raise ValueError(
            f"Cannot read {source.name} in {folder} ({error}); delete that folder and run "
            f"{command(source, folder.parents[1])}."
        ) from error


def _decoded(source, folder, split):
    def make():
        images, labels = _read(source, folder, split)
        return {"images": images, **labels}

    arrays = cached(_cache(folder, split), make)
    return Examples(arrays.pop("images"), arrays)


def _written_hash(folder, split):
    """Hash of what was written, from our description; TFDS's own have none."""
    path = folder / "metadata.json"
    return json.loads(path.read_text()).get("sha256", {}).get(split) if path.exists() else None


def _cache(folder, split):
    return folder / f"decoded_{split}"


def _check_space(home, splits):
    """Check that records and arrays fit: better to fail now than when half is written."""
    needed = 2 * sum(examples.images.nbytes for examples in splits.values()) / 2**20
    free = shutil.disk_usage(home).free / 2**20
    if free < needed:
        raise ValueError(
            f"{home} has {free:.0f} MiB free and {needed:.0f} MiB are needed; choose another "
            "data_dir, or make room in this one."
        )
