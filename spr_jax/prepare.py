"""Prepare a data set from its publisher's files, or by a download of them.

    python -m spr_jax.prepare mnist --raw_dir=DIR   # DIR holds train-images-idx3-ubyte.gz ...
    python -m spr_jax.prepare cifar10               # downloads
    python -m spr_jax.prepare --check cifar10       # decodes and verifies what is there

Data sets are kept where TensorFlow Datasets keeps them: in --data_dir, else $TFDS_DATA_DIR, else
~/tensorflow_datasets. Interrupted, it leaves nothing that would be taken for whole: run it again.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from spr_jax.datasets import DATASETS, SOURCES, prepared, webvision
from spr_jax.registry import lookup
from spr_jax.types import Dataset


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m spr_jax.prepare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help=f"one of {', '.join([*SOURCES, 'webvision'])}")
    parser.add_argument("--raw_dir", default="", help="folder of the publisher's files")
    parser.add_argument("--data_dir", default="", help="where data sets are kept")
    parser.add_argument("--check", action="store_true", help="verify an existing one")
    parser.add_argument("--imagenet_dir", default="", help="webvision: ImageNet's validation set")
    parser.add_argument(
        "--skip_unreadable", action="store_true", help="webvision: leave damaged images out"
    )
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> tuple[Path, Dataset]:
    """Prepare or check; the folder of the data set, and the data set."""
    name, data_dir = options.name, options.data_dir
    if name in ("digits", "folder"):
        raise ValueError(f"{name!r} needs no preparing; it is read as it is.")
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
    """A table of the examples of each class in every split."""
    splits = {"train": dataset.train, **dataset.tests}
    counts = [np.bincount(split.labels, minlength=dataset.num_classes) for split in splits.values()]
    rows = [*zip(dataset.class_names, *counts, strict=True), ("all", *map(np.sum, counts))]
    width = max(len(row[0]) for row in rows)
    lines = [" " * width + "".join(f"{name:>11}" for name in splits)]
    lines += [f"{row[0]:{width}}" + "".join(f"{count:11,}" for count in row[1:]) for row in rows]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(arguments)
    start = time.perf_counter()
    try:
        folder, dataset = run(options)
    except ValueError as error:
        print(f"python -m spr_jax.prepare: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nInterrupted, with nothing half made left; run it again.", file=sys.stderr)
        sys.exit(130)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
    seconds = time.perf_counter() - start
    print(summary(dataset))
    verb = "Checked" if options.check else "Prepared"
    print(f"{verb} {dataset.name} in {seconds:.1f} s: {folder}, {size:.0f} MiB.")


if __name__ == "__main__":
    main()
