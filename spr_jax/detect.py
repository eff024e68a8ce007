"""Find the label errors of a data set, as a command.

python -m spr_jax.detect --images=photos --out=found   # a folder for each class, or a labels.csv
python -m spr_jax.detect --dataset=cifar10n --data_dir=DIR
python -m spr_jax.detect features.npy labels.csv --out=found
python -m spr_jax.detect                # scikit-learn's digits, a fifth of their labels wrong

Images are learned by a small network, unless --features has what another one makes of them. Ctrl-C
then saves and exits with status 75; the same command goes on from there.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from spr_jax.devices import one_device_per_core
from spr_jax.files import check_folder, read_features, read_labels, read_names
from spr_jax.findings import print_summary, summarize, write_results
from spr_jax.label_errors import Detection, find_label_errors
from spr_jax.report import write_report
from spr_jax.self_test import check_share, flip_labels, judge, print_judged

TRAINING = ("epochs", "folds", "size")  # options of networks that are trained


class Examples(NamedTuple):
    """Whose labels are looked at."""

    labels: np.ndarray  # [N], as given
    features: np.ndarray | None  # [N, d]; None: of a network that is to be trained
    names: np.ndarray | None = None  # [N]
    images: Any = None  # [N, h, w, channels], to be shown
    true: np.ndarray | None = None  # [N], where known
    dataset: Any = None  # of the images


def noisy_digits(rate: float = 0.2, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images as features, given labels and true labels of scikit-learn's 8 x 8 digits."""
    from sklearn.datasets import load_digits

    features, true = load_digits(return_X_y=True)
    generator = np.random.default_rng(seed)
    wrong = generator.permutation(len(true))[: int(rate * len(true))]
    given = true.copy()
    given[wrong] = (true[wrong] + generator.integers(1, 10, len(wrong))) % 10
    return features, given, true


def load(options: argparse.Namespace) -> Examples:
    """What the user gave, or the digits."""
    if options.images or options.dataset:
        return _load_images(options)
    if options.features:
        features, labels = read_features(options.features), read_labels(options.labels)
        return Examples(labels, features, read_names(options.labels))
    features, labels, true = noisy_digits()
    images = (features * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)
    return Examples(labels, features, images=images, true=true)


def _load_images(options):
    from spr_jax.detect_images import load_images  # what trains networks takes long to import

    dataset, labels, true, images = load_images(
        folder=options.images,
        name=options.dataset,
        size=options.size,
        skip_unreadable=options.skip_unreadable,
        data_dir=options.data_dir,
    )
    features = read_features(options.own_features) if options.own_features else None
    return Examples(labels, features, dataset.train.names, images, true, dataset)


def find(
    examples: Examples, labels: np.ndarray, options: argparse.Namespace, workdir: Path
) -> tuple[Detection, np.ndarray]:
    """Errors among these labels, and the features they were found with."""
    criterion = {
        "max_noise_in_clean": options.max_noise_in_clean,
        "max_false_alarms": options.max_false_alarms,
        "keep": options.keep,
        "per_class": options.per_class,
        "pca_dim": options.pca_dim,
        "classes_per_group": options.classes_per_group,
        "seed": options.seed,
        "progress": True,
    }
    if examples.features is not None:
        return find_label_errors(examples.features, labels, **criterion), examples.features
    criterion |= {"epochs": options.epochs, "folds": options.folds}
    return _find_in_images(examples.dataset, labels, workdir, **criterion)


def _find_in_images(*arguments, **criterion):
    from spr_jax.detect_images import find_errors
    from spr_jax.run import Stopped
    from spr_jax.settings import SAVED

    try:
        return find_errors(*arguments, **criterion)
    except Stopped:
        print("\nStopped and saved; the same command goes on from here.", file=sys.stderr)
        sys.exit(SAVED)
    except FloatingPointError as error:
        _fail(str(error))


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m spr_jax.detect",
        description="Find label errors in images, or from features. Without either: scikit-learn's "
        "digits, a fifth of their labels made wrong.",
    )
    add = parser.add_argument
    add("features", nargs="?", help=".npy, .npz or .csv, one row per example")
    add("labels", nargs="?", help=".npy, .npz or .csv, integers or class names")
    add("--images", default="", help="folder of images: one for each class, or with a labels.csv")
    add("--dataset", default="", help="or a data set by its name: digits, mnist, cifar10n ...")
    add("--data_dir", default="", help="where data sets, and decoded images, are kept")
    add("--skip_unreadable", action="store_true", help="leave damaged images out")
    add(
        "--features",
        dest="own_features",
        help="of these images, from a network of your own: a row for each, classes and then files "
        "sorted by name, or in the order of labels.csv",
    )
    add("--size", type=int, help="pixels that images are brought to [32; 64 on an accelerator]")
    add("--epochs", type=int, help="of training [5 to 30, by the number of images]")
    add("--folds", type=int, help="networks, each judges what it did not learn from [3]; 1: one")
    add("--self_test", type=float, help="flip this share of the labels first, and look for those")
    add("--out", default="found", help="folder for the results [%(default)s]")
    add("--max_noise_in_clean", type=float, help="at most this share of wrong labels in the clean")
    add("--max_false_alarms", type=float, help="at most this share of right labels in the suspects")
    add("--keep", type=float, help="share of each class called clean [what is more likely right]")
    add("--top", type=int, default=20, help="suspects to print [%(default)s]")
    add("--per_class", type=int, help="examples of each class in a piece [the whole data at once]")
    add(
        "--pca_dim", type=int, help="principal components [sqrt(rows) / 2, at most 64, one a class]"
    )
    add("--classes_per_group", type=int, help="classes solved together [all, at most 100]")
    add("--seed", type=int, default=0, help="of splits, training and flips [%(default)s]")
    parsed = parser.parse_args(arguments)
    try:
        _check(parsed)
    except ValueError as error:
        parser.error(str(error))
    return parsed


def _check(options):
    """Which options go together, and their ranges."""
    sources = {
        "two files": options.features,
        "--images": options.images,
        "--dataset": options.dataset,
    }
    given = [name for name, value in sources.items() if value]
    if len(given) > 1:
        raise ValueError(f"got {' and '.join(given)}; give one of them")
    if options.features and not options.labels:
        raise ValueError("got a file of features but no file of labels; give both, or neither")
    has_images = bool(options.images or options.dataset)
    if options.own_features and not has_images:
        raise ValueError("--features are of images; give these with --images, or give two files")
    trains = has_images and not options.own_features
    for name in TRAINING:
        value = getattr(options, name)
        if value is not None and not trains:
            raise ValueError(f"--{name} is of training, and here nothing is trained; leave it out")
        if value is not None and value < 1:
            raise ValueError(f"--{name} is {value}; expected 1 or more")
    if options.size and not options.images:
        raise ValueError("--size is of --images; a data set has its own")
    if options.self_test is not None:
        check_share(options.self_test)
    if options.top < 0:
        raise ValueError(f"--top is {options.top}; expected 0 or more")


def _fail(sentence: str) -> NoReturn:
    print(f"python -m spr_jax.detect: {sentence}", file=sys.stderr)
    sys.exit(2)


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(arguments)
    try:
        out = check_folder(options.out)
        examples = load(options)
        labels, judged = examples.labels, None
        if options.self_test:
            flipped = flip_labels(labels, options.self_test, seed=options.seed)
            found, _ = find(examples, flipped, options, out / "self_test")
            judged = judge(found, flipped, flipped != labels)
        start = time.perf_counter()
        found, features = find(examples, labels, options, out / "training")
    except ValueError as error:
        _fail(str(error).replace("--workdir", "--out"))  # of this command, that decides it
    summary = summarize(found, labels, time.perf_counter() - start)
    if judged:
        summary["self_test"] = {"share": options.self_test, **judged}
    shown = {"images": examples.images, "names": examples.names}
    try:
        write_results(found, labels, examples.names, summary, out)
        write_report(out / "report.html", found, features, labels, **shown)
    except ValueError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"Cannot write to {out}: {error.strerror or error}.")
    if judged:
        print_judged(judged)
        print("\nWithout the flips:")
    print_summary(found, labels, summary, options.top)
    if examples.true is not None and (labels != examples.true).any():
        wrong = found.order[: (labels != examples.true).sum()]
        share = np.mean(labels[wrong] != examples.true[wrong])
        print(f"\nOf the {len(wrong)} most suspect labels, {share:.1%} are wrong.")
    print(
        f"\nWrote labels.csv, summary.json and report.html, the page to review them on, to {out}."
    )


if __name__ == "__main__":
    one_device_per_core(batch_size=16)  # the smallest of training, see `image_features.py`
    main()
