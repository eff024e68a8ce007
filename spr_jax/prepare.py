"""Prepare a data set from its publisher's files, or from a download of them.

    python -m spr_jax.prepare mnist --raw_dir=DIR   # DIR holds train-images-idx3-ubyte.gz ...
    python -m spr_jax.prepare cifar10               # downloads
    python -m spr_jax.prepare --check cifar10       # decodes and verifies an existing one

Data sets are stored where TensorFlow Datasets stores them: in --data_dir, else $TFDS_DATA_DIR, else
~/tensorflow_datasets. If interrupted, it leaves no incomplete data set: run it again.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from spr_jax.io.extras import needs_extra
from spr_jax.io.text import program_name
from spr_jax.registry import lookup
from spr_jax.types import Dataset

with needs_extra("train", "spr_jax.prepare"):
    from spr_jax.datasets import DATASETS, SOURCES, prepared, webvision


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=program_name("spr_jax.prepare"),
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help=f"one of {', '.join([*SOURCES, 'webvision'])}")
    parser.add_argument("--raw_dir", default="", help="folder of the publisher's files")
    parser.add_argument("--data_dir", default="", help="where data sets are stored")
    parser.add_argument("--check", action="store_true", help="verify an existing data set")
    parser.add_argument("--imagenet_dir", default="", help="webvision: ImageNet's validation set")
    parser.add_argument(
        "--skip_unreadable", action="store_true", help="webvision: leave damaged images out"
    )
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> tuple[Path, Dataset]:
    """Prepare or check; return the folder of the data set, and the data set."""
    name, data_dir = options.name, options.data_dir
    if name in ("digits", "folder"):
        raise ValueError(f"{name!r} needs no preparing; it is read directly.")
    source = lookup({**SOURCES, "webvision": None}, name)
    if source and options.check:
        folder = prepared.check(source, data_dir)
    elif source:
        folder = prepared.prepare(source, options.raw_dir, data_dir)
    elif options.check:
        folder = webvision.check(data_dir)
    else:
        folder = webvision.prepare(
            options.raw_dir,
            data_dir,
            imagenet_dir=options.imagenet_dir,
            skip_unreadable=options.skip_unreadable,
        )
    return folder, DATASETS[name](data_dir=data_dir)


def summary(dataset: Dataset) -> str:
    """Table of the number of examples of each class in every split."""
    splits = {"train": dataset.train, **dataset.tests}
    counts = [np.bincount(split.labels, minlength=dataset.num_classes) for split in splits.values()]
    rows = [*zip(dataset.class_names, *counts, strict=True), ("all", *map(np.sum, counts))]
    width = max(len(row[0]) for row in rows)
    lines = [" " * width + "".join(f"{name:>11}" for name in splits)]
    lines += [f"{row[0]:{width}}" + "".join(f"{count:11,}" for count in row[1:]) for row in rows]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Run the command; exit with status 2 on bad input."""
    options = parse_arguments(arguments)
    start = time.perf_counter()
    try:
        with needs_extra("train", "spr_jax.prepare"):
            folder, dataset = run(options)
    except ValueError as error:
        print(f"{program_name('spr_jax.prepare')}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nInterrupted; nothing incomplete is left, run it again.", file=sys.stderr)
        sys.exit(130)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
    seconds = time.perf_counter() - start
    print(summary(dataset))
    verb = "Checked" if options.check else "Prepared"
    print(f"{verb} {dataset.name} in {seconds:.1f} s: {folder}, {size:.0f} MiB.")


if __name__ == "__main__":
    main()
