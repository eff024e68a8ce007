"""Options of the command `spr-detect`, and which of them go together."""

import argparse

from spr_jax.detection.exports import EXPORTS
from spr_jax.detection.self_test import check_fraction
from spr_jax.io.text import program_name
from spr_jax.registry import lookup

TRAINING = ("epochs", "folds", "size")  # options that apply only if a network is trained
FRACTION = {"type": float, "metavar": "FRACTION"}
NUMBER = {"type": int, "metavar": "N"}
COLUMN = {"default": "", "metavar": "COLUMN"}


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
    add(
        "features",
        nargs="?",
        help=".npy, .npz or .csv, one row per example, or a folder of .npy files in the order of "
        "their names; .npy need not fit in memory. Or a table, with --label",
    )
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
