"""Find the label errors of a data set, as a command.

    spr-detect --images=photos --out=found   # a folder for each class, or a labels.csv
    spr-detect --dataset=cifar10n --data_dir=DIR
    spr-detect features.npy labels.csv --out=found
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

from spr_jax.detection.demo import digit_images, noisy_digits
from spr_jax.detection.exports import EXPORTS, check_exports, export
from spr_jax.detection.find import find_label_errors
from spr_jax.detection.options import DetectorOptions
from spr_jax.detection.results import (
    describe_images,
    print_summary,
    print_truth,
    summarize,
    write_results,
)
from spr_jax.detection.self_test import check_fraction, flip_labels, judge, print_judged
from spr_jax.detection.tables import data_from_table
from spr_jax.detection.types import Detection
from spr_jax.detection.user_data import UserData
from spr_jax.devices import (
    PROGRAM_CACHE,
    cache_programs,
    keep_freed_memory,
    one_device_per_core,
)
from spr_jax.io import signals
from spr_jax.io.arrays import read_features, read_labels, read_names
from spr_jax.io.atomic import check_folder
from spr_jax.io.extras import needs_extra
from spr_jax.io.text import program_name
from spr_jax.registry import lookup
from spr_jax.review.page import write_report

TRAINING = ("epochs", "folds", "size")  # options that apply only if a network is trained
LONG = 200_000  # examples; with fewer a path takes seconds, and without progress it is cached
FRACTION = {"type": float, "metavar": "FRACTION"}
NUMBER = {"type": int, "metavar": "N"}
COLUMN = {"default": "", "metavar": "COLUMN"}


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
        features, labels = read_features(options.features), read_labels(options.labels)
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
            should_stop=should_stop,
        )
    if options.images:
        root, pictures = (
            Path(options.images).expanduser(),
            files_to_show(options.images, data.names),
        )
        data = data._replace(root=root, pictures=pictures)
    return data


def detect(
    data: UserData, labels: np.ndarray, options: argparse.Namespace, workdir: Path
) -> tuple[Detection, np.ndarray]:
    """Find the errors among these labels; return the features that they were found with, too."""
    chosen = {name: getattr(options, name) for name in DetectorOptions._fields[:-1]}
    detector = DetectorOptions(**chosen, progress=len(labels) > LONG)
    if data.features is not None:
        return find_label_errors(data.features, labels, **detector._asdict()), data.features
    return _train_and_detect(
        data.dataset, labels, workdir, folds=options.folds, epochs=options.epochs, options=detector
    )


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


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=program_name("spr_jax.detect"),
        description="Find label errors in images, or from features. Without either: in "
        "scikit-learn's digits, 20 % of their labels corrupted. Images get features from a "
        "pretrained encoder, which are kept in the folder of the results; Ctrl-C saves, and the "
        "same command resumes.",
    )
    _add_data(parser.add_argument_group("data"))
    _add_training(parser.add_argument_group("training, with --encoder=scratch"))
    _add_criterion(parser.add_argument_group("criterion, at most one of"))
    _add_solver(parser.add_argument_group("regression"))
    _add_output(parser.add_argument_group("results"))
    parsed = parser.parse_args(arguments)
    try:
        _check(parsed)
    except ValueError as error:
        parser.error(str(error))
    return parsed


def _add_data(group):
    add = group.add_argument
    add("features", nargs="?", help=".npy, .npz or .csv, one row per example; or a table, --label")
    add("labels", nargs="?", help=".npy, .npz or .csv, integers or class names")
    add("--label", **COLUMN, help="of the labels, if one table (.csv or .parquet) has everything")
    add("--features_columns", **COLUMN, help="of the features: A,B,... [all others of numbers]")
    add("--id", **COLUMN, help="of names of the examples [file]")
    add(
        "--images",
        default="",
        metavar="DIR",
        help="folder with a folder per class, or a labels.csv",
    )
    add(
        "--dataset",
        default="",
        metavar="NAME",
        help="a data set by name: digits, mnist, cifar10n ...",
    )
    add(
        "--data_dir",
        default="",
        metavar="DIR",
        help="folder where data sets and decoded images are kept",
    )
    add(
        "--encoder",
        default=None,
        metavar="NAME",
        help="where the features of images come from: efficientnet_lite0, efficientnet_lite2, "
        "onnx:FILE, scratch (networks trained on the images), or auto: whichever of the first and "
        "scratch predicts the given labels better [auto]",
    )
    add("--skip_unreadable", action="store_true", help=argparse.SUPPRESS)  # always, since 0.2
    add(
        "--features",
        dest="own_features",
        metavar="FILE",
        help="features of the images from your own network: one row per file, sorted by class and "
        "then by file name, or in the order of labels.csv",
    )


def _add_training(group):
    add = group.add_argument
    add("--size", **NUMBER, help="side to which images are resized [32; 64 on an accelerator]")
    add("--epochs", **NUMBER, help="epochs of training [5 to 30, by the number of images]")
    add(
        "--folds",
        **NUMBER,
        help="number of networks; each judges the images that it was not trained on [3]. With 1, "
        "one network judges all images",
    )


def _add_criterion(group):
    add = group.add_argument
    add(
        "--max_noise_in_clean", **FRACTION, help="maximum fraction of wrong labels in the clean set"
    )
    add("--max_false_alarms", **FRACTION, help="maximum fraction of correct labels in the suspects")
    add(
        "--keep",
        **FRACTION,
        help="fraction of each class to call clean [labels more likely correct than wrong]",
    )


def _add_solver(group):
    add = group.add_argument
    add("--per_class", **NUMBER, help="examples of each class in a piece [the whole data at once]")
    add(
        "--pca_dim",
        **NUMBER,
        help="principal components [sqrt(rows) / 2, at most 64, at least one per class]",
    )
    add("--classes_per_group", **NUMBER, help="classes solved together [all, at most 100]")
    add("--seed", **NUMBER, default=0, help="seed of splits, training and flips [%(default)s]")


def _add_output(group):
    add = group.add_argument
    add("--out", default="found", metavar="DIR", help="folder for the results [%(default)s]")
    add(
        "--export",
        type=lambda text: text.split(","),
        default=[],
        metavar="NAME,...",
        help=f"write the results for other tools, too: {', '.join(EXPORTS)}",
    )
    add("--top", **NUMBER, default=20, help="number of suspects to print [%(default)s]")
    add(
        "--self_test",
        **FRACTION,
        help="first flip this fraction of the labels, and report how many of them are found",
    )


def _check(options):
    """Refuse options that do not go together, or are out of range."""
    sources = {
        "a table" if options.label else "two files": options.features,
        "--images": options.images,
        "--dataset": options.dataset,
    }
    given = [name for name, value in sources.items() if value]
    if len(given) > 1:
        raise ValueError(f"got {' and '.join(given)}; give one of them")
    _check_table(options)
    for name in options.export:
        lookup(EXPORTS, name)
    if options.dataset == "folder":
        raise ValueError("--dataset is folder; give your own images with --images=DIR")
    has_images = bool(options.images or options.dataset)
    if options.own_features and not has_images:
        raise ValueError("--features needs --images; or pass FEATURES LABELS as two files")
    if options.encoder and (options.own_features or not has_images):
        raise ValueError("--encoder applies to images without features; drop it")
    options.encoder = options.encoder or "auto"
    trains = has_images and options.encoder == "scratch"
    for name in TRAINING:
        value = getattr(options, name)
        if value is not None and not trains:
            raise ValueError(f"--{name} applies to images with --encoder=scratch only; drop it")
        if value is not None and value < 1:
            raise ValueError(f"--{name} is {value}; expected 1 or more")
    if options.size and not options.images:
        raise ValueError("--size applies to --images only; a data set has its own size")
    if options.self_test is not None:
        check_fraction(options.self_test)
    if options.top < 0:
        raise ValueError(f"--top is {options.top}; expected 0 or more")


def _check_table(options):
    if options.features and not options.labels and not options.label:
        raise ValueError("got a file of features but no file of labels; give both, or --label")
    if options.label and (options.labels or not options.features):
        raise ValueError("--label names a column of one table; give one .csv or .parquet file")
    if not options.label and (options.features_columns or options.id):
        raise ValueError("--features_columns and --id name columns of a table; give --label, too")


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
        shown = {"images": data.pictures, "names": data.names}
        write_report(out / "report.html", found, features, data.labels, **shown)
        where = {"names": data.names, "root": data.root}
        exported = export(found, data.labels, options.export, out, **where)
    except OSError as error:
        _fail(f"Cannot write to {out}: {error.strerror or error}.")
    if judged:
        print_judged(judged)
        print("\nWithout the flips:")
    print_summary(found, data.labels, summary, options.top, data.unreadable)
    print_truth(found, data)
    print(f"\nWrote labels.csv, summary.json and the review page, report.html, to {out}.")
    if exported:
        print(f"Exported {', '.join(map(str, exported))}.")


def main(arguments: list[str] | None = None) -> None:
    """Run the command; without `arguments`, as a process of its own, on all cores."""
    if arguments is None:
        one_device_per_core(batch_size=16)  # the smallest of `detection/features.py`
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            cache_programs(PROGRAM_CACHE)
    options = parse_arguments(arguments)
    try:
        with needs_extra("images", "spr_jax.detect"):
            run(options, check_folder(options.out))
    except ValueError as error:
        _fail(str(error))


if __name__ == "__main__":
    main()
