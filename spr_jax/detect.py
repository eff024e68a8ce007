"""Find the label errors of a data set, as a command.

    spr-detect --images=photos --out=found   # a folder for each class, or a labels.csv
    spr-detect --dataset=cifar10n --data_dir=DIR
    spr-detect features.npy labels.csv --out=found  # or a folder of .npy files; of any size
    spr-detect table.csv --label=COLUMN      # the other columns of numbers are the features
    spr-detect                               # scikit-learn's digits, 20 % of the labels corrupted

or `python -m spr_jax.detect`. Images get features from a pretrained encoder, or from networks that
are trained on them (--encoder), unless you pass your own with --features. Ctrl-C saves and exits
with status 75; the same command resumes.
"""

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

import numpy as np

from spr_jax.detection.arguments import parse_arguments
from spr_jax.detection.demo import digit_images, noisy_digits
from spr_jax.detection.exports import check_exports, export
from spr_jax.detection.find import find_label_errors, read_or_open
from spr_jax.detection.options import DetectorOptions
from spr_jax.detection.results import (
    describe_images,
    print_summary,
    print_truth,
    summarize,
    write_results,
)
from spr_jax.detection.self_test import flip_labels, judge, print_judged
from spr_jax.detection.types import Detection
from spr_jax.detection.user_data import UserData, data_from_table
from spr_jax.devices import (
    PROGRAM_CACHE,
    cache_programs,
    keep_freed_memory,
    one_device_per_core,
)
from spr_jax.io import signals
from spr_jax.io.arrays import read_labels, read_names
from spr_jax.io.atomic import check_folder
from spr_jax.io.extras import needs_extra
from spr_jax.io.rows import Rows
from spr_jax.io.text import program_name
from spr_jax.review.page import write_report

LONG = 200_000  # examples; with fewer a path takes seconds, and without progress it is cached


def load(options: argparse.Namespace, out: Path) -> UserData:
    """Load what the options name, or the digits; features of images are kept in `out`."""
    if options.images or options.dataset:
        return _load_images(options, out)
    if options.label:
        return data_from_table(
            options.features,
            label=options.label,
            features=options.features_columns,
            names=options.id,
        )
    if options.features:
        features, labels = read_or_open(options.features), read_labels(options.labels)
        root = Path(options.labels).parent
        return UserData(labels, features, read_names(options.labels), root=root)
    features, labels, true = noisy_digits()
    return UserData(labels, features, pictures=digit_images(features), true=true)


def _load_images(options, out):
    from spr_jax.detection.from_images import data_from_images  # slow to import
    from spr_jax.review.pictures import files_to_show

    keep_freed_memory()
    with _resumable() as should_stop:
        data = data_from_images(
            out / "features",
            folder=options.images,
            name=options.dataset,
            data_dir=options.data_dir,
            encoder=options.encoder,
            own_features=options.own_features,
            size=options.size,
            pca_dim=options.pca_dim or 0,
            should_stop=should_stop,
        )
    if options.images:
        pictures = files_to_show(options.images, data.names)
        data = data._replace(root=Path(options.images).expanduser(), pictures=pictures)
    return data


def detect(
    data: UserData, labels: np.ndarray, options: argparse.Namespace, workdir: Path
) -> tuple[Detection, np.ndarray | Rows]:
    """Find the errors among these labels; return the features that they were found with, too."""
    detector = _criterion(options)._replace(progress=len(labels) > LONG)
    if data.features is not None:
        return find_label_errors(data.features, labels, **detector._asdict()), data.features
    return _train_and_detect(
        data.dataset, labels, workdir, folds=options.folds, epochs=options.epochs, options=detector
    )


def _criterion(options):
    """Options of the detector, among those of the command."""
    names = DetectorOptions._fields[:-1]  # all but the progress bar
    return DetectorOptions(**{name: getattr(options, name) for name in names})


def _train_and_detect(*arguments, **options):
    from spr_jax.detection.images import train_and_detect  # slow to import

    try:
        with _resumable() as should_stop:
            return train_and_detect(*arguments, should_stop=should_stop, **options)
    except FloatingPointError as error:
        _fail(str(error))


@contextlib.contextmanager
def _resumable():
    """Give a `should_stop` that Ctrl-C turns on, and exit if it has stopped the work."""
    try:
        with signals.stop_on_signals() as should_stop:
            yield should_stop
    except signals.Stopped:
        print(f"\n{signals.STOPPED}", file=sys.stderr)
        sys.exit(signals.SAVED)


def _fail(sentence: str) -> NoReturn:
    print(f"{program_name('spr_jax.detect')}: {sentence}", file=sys.stderr)
    sys.exit(2)


def run(options: argparse.Namespace, out: Path) -> None:
    """Find the errors, write the results to `out`, and print them."""
    try:
        data = load(options, out)
    except OSError as error:
        _fail(f"Cannot keep features in {out}: {error.strerror or error}.")
    check_exports(options.export, data.labels, data.names, data.root)
    judged = None
    if options.self_test:
        flipped = flip_labels(data.labels, options.self_test, seed=options.seed)
        found, _ = detect(data, flipped, options, out / "self_test")
        judged = judge(found, flipped, flipped != data.labels)
    start = time.perf_counter()
    found, features = detect(data, data.labels, options, out / "training")
    summary = summarize(found, data.labels, time.perf_counter() - start)
    summary |= describe_images(data)
    if judged:
        summary["self_test"] = {"share": options.self_test, **judged}
    try:
        write_results(found, data.labels, data.names, summary, out, data.unreadable)
        has_page = not isinstance(features, Rows)  # it needs all features in memory
        if has_page:
            _write_page(out, found, features, data)
        where = {"names": data.names, "root": data.root}
        exported = export(found, data.labels, options.export, out, **where)
    except OSError as error:
        _fail(f"Cannot write to {out}: {error.strerror or error}.")
    if judged:
        print_judged(judged)
        print("\nWithout the flips:")
    print_summary(found, data.labels, summary, options.top, data.unreadable)
    print_truth(found, data)
    if has_page:
        print(f"\nWrote labels.csv, summary.json and the review page, report.html, to {out}.")
    else:
        print(f"\nWrote labels.csv and summary.json to {out}; no review page of so many examples.")
    if exported:
        print(f"Exported {', '.join(map(str, exported))}.")


def _write_page(out, found, features, data):
    taken = (data.features_from or {}).get("encoder", "")
    shown = {"images": data.pictures, "images_key": data.pictures_key}
    shown |= {"names": data.names, "source": taken}
    write_report(out / "report.html", found, features, data.labels, **shown)


def main(arguments: list[str] | None = None) -> None:
    """Run the command; without `arguments`, as a process of its own, on all cores."""
    if arguments is None:
        one_device_per_core(batch_size=16)  # the smallest of `detection/features.py`
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            cache_programs(PROGRAM_CACHE)
    options = parse_arguments(arguments)
    try:
        _criterion(options).check()  # before minutes of work
        with needs_extra("images", "spr_jax.detect"):
            run(options, check_folder(options.out))
    except ValueError as error:
        _fail(str(error))


if __name__ == "__main__":
    main()
