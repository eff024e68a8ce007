"""Find the label errors of a data set, as a command.

python -m spr_jax.detect features.npy labels.csv --out=found
python -m spr_jax.detect                # scikit-learn's digits, a fifth of their labels wrong
"""

import argparse
import csv
import json
import sys
import time
from pathlib import Path
from typing import NoReturn

import numpy as np

import spr_jax
from spr_jax.devices import one_device_per_core
from spr_jax.files import (
    check_folder,
    read_features,
    read_labels,
    read_names,
    replace_file,
    shown,
)
from spr_jax.label_errors import Detection, find_label_errors
from spr_jax.report import write_report


def noisy_digits(rate: float = 0.2, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images as features, given labels and true labels of scikit-learn's 8 x 8 digits."""
    from sklearn.datasets import load_digits

    features, true = load_digits(return_X_y=True)
    generator = np.random.default_rng(seed)
    wrong = generator.permutation(len(true))[: int(rate * len(true))]
    given = true.copy()
    given[wrong] = (true[wrong] + generator.integers(1, 10, len(wrong))) % 10
    return features, given, true


def summarize(found: Detection, labels: np.ndarray, seconds: float) -> dict:
    """What was found, as written to summary.json."""
    noise, promise, classes = found.noise, found.promise, []
    for place, label in enumerate(noise.classes):
        mine = labels == label
        row = {
            "label": label.item(),
            "examples": int(mine.sum()),
            "wrong_share": float(noise.by_class[place]),
            "wrong_share_interval": noise.by_class_interval[place].tolist(),
            "suspect": int((mine & ~found.clean).sum()),
            "mostly": noise.classes[_mostly(noise.confusion, place)].item(),
        }
        if promise is not None:
            lowest = promise.lowest[place]
            row["attained"] = bool(promise.attained[place])
            row["lowest_level"] = float(lowest) if np.isfinite(lowest) else None
        classes.append(row)
    summary = {
        "examples": len(labels),
        "wrong_share": noise.rate,
        "wrong_share_interval": list(noise.interval),
        "features_explain_labels": noise.explained,
        "suspect": int((~found.clean).sum()),
        "expected_wrong_in_clean": _mean(found.wrong[found.clean]),
        "expected_right_in_suspects": _mean(1 - found.wrong[~found.clean]),
        "gap": found.gap,
        "seconds": round(seconds, 3),
        "version": spr_jax.__version__,
        "classes": classes,
    }
    if promise is not None:
        summary["asked"] = {"level": promise.level, "of": promise.of}
    return summary


def _mean(values):
    return float(values.mean()) if len(values) else None


def _mostly(confusion, place):
    """The class that wrong labels of a class most often truly have."""
    others = confusion[place].copy()
    others[place] = -1
    return int(np.argmax(others))


def print_summary(found: Detection, labels: np.ndarray, summary: dict, top: int) -> None:
    classes = summary["classes"]
    low, high = (f"{100 * bound:.1f}" for bound in summary["wrong_share_interval"])
    print(
        f"{summary['examples']:,} examples of {len(classes)} classes in "
        f"{summary['seconds']:.1f} s: about {100 * summary['wrong_share']:.1f} % of the labels are "
        f"wrong (between {low} and {high} %); {summary['suspect']:,} are called suspect."
    )
    if not summary["features_explain_labels"]:
        print(
            "The features explain the labels hardly better than chance would: either the labels "
            "are random, or these features cannot tell the classes. Nothing below means much."
        )
    if found.promise is not None:
        print(_in_words(found.promise, found.noise.classes))
    width = max(5, *(len(shown(row["label"])) for row in classes))
    print(f"\n{'class':>{width}}  examples  wrong, about  suspect  mostly")
    for row in classes:
        print(
            f"{shown(row['label']):>{width}}  {row['examples']:8,}  "
            f"{100 * row['wrong_share']:10.1f} %  {row['suspect']:7,}  {shown(row['mostly'])}"
        )
    if top:
        print(
            f"\nMost suspect:\n   index  {'label':>{width}}  {'suggested':>{width + 4}}   wrong"
            "   entry"
        )
    for index in found.order[:top]:
        print(
            f"{index:8}  {shown(labels[index]):>{width}}  "
            f"{shown(found.suggested[index]):>{width + 4}}  {found.wrong[index]:6.3f}  "
            f"{found.entry[index]:6.3f}"
        )


def _in_words(promise, classes):
    what = {
        "clean": ("wrong labels among the clean", "so none of its examples is called clean"),
        "suspects": ("right labels among the suspects", "so none of its examples is flagged"),
    }
    share, then = what[promise.of]
    missed = [
        f"{shown(label)} ({f'not below {100 * lowest:.1f} %' if np.isfinite(lowest) else 'none'})"
        for label, lowest, attained in zip(classes, promise.lowest, promise.attained, strict=True)
        if not attained
    ]
    said = f"At most {100 * promise.level:g} % {share}: "
    if not missed:
        return said + "every class can keep this."
    names = ", ".join(missed[:10]) + (f" and {len(missed) - 10} more" if len(missed) > 10 else "")
    return said + f"{len(missed)} of {len(classes)} classes cannot keep this, {then}: {names}."


def write_results(
    found: Detection, labels: np.ndarray, names: np.ndarray | None, summary: dict, out: Path
) -> None:
    """labels.csv, one line for each example in the order given, and summary.json."""
    out.mkdir(parents=True, exist_ok=True)
    rank = np.empty(len(labels), int)
    rank[found.order] = np.arange(1, len(labels) + 1)
    with replace_file(out / "labels.csv") as file:
        table = csv.writer(file, lineterminator="\n")
        columns = {"index": np.arange(len(labels))}
        if names is not None:
            columns["file"] = names
        columns |= {
            "label": labels,
            "suspect": (~found.clean).astype(int),
            "wrong": np.char.mod("%.6g", found.wrong),
            "entry": np.char.mod("%.6g", found.entry),
            "rank": rank,
            "suggested": found.suggested,
        }
        table.writerow(columns)
        table.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    with replace_file(out / "summary.json") as file:
        json.dump(summary, file, indent=2)
        file.write("\n")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m spr_jax.detect",
        description="Find label errors from features. Without files: scikit-learn's digits, a "
        "fifth of their labels made wrong.",
    )
    parser.add_argument("features", nargs="?", help=".npy, .npz or .csv, one row per example")
    parser.add_argument("labels", nargs="?", help=".npy, .npz or .csv, integers or class names")
    parser.add_argument("--out", default="found", help="folder for the results [%(default)s]")
    parser.add_argument(
        "--max_noise_in_clean", type=float, help="at most this share of wrong labels in the clean"
    )
    parser.add_argument(
        "--max_false_alarms", type=float, help="at most this share of right labels in the suspects"
    )
    parser.add_argument(
        "--keep", type=float, help="share of each class called clean [what is more likely right]"
    )
    parser.add_argument("--top", type=int, default=20, help="suspects to print [%(default)s]")
    parser.add_argument(
        "--per_class", type=int, help="examples of each class in a piece [the whole data at once]"
    )
    parser.add_argument(
        "--pca_dim", type=int, help="principal components [sqrt(rows) / 2, at most 64, one a class]"
    )
    parser.add_argument(
        "--classes_per_group", type=int, help="classes solved together [all, at most 100]"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the split [%(default)s]")
    parsed = parser.parse_args(arguments)
    if parsed.features and not parsed.labels:
        parser.error("got a file of features but no file of labels; give both, or neither")
    if parsed.top < 0:
        parser.error(f"--top is {parsed.top}; expected 0 or more")
    return parsed


def _fail(sentence: str) -> NoReturn:
    print(f"python -m spr_jax.detect: {sentence}", file=sys.stderr)
    sys.exit(2)


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(arguments)
    true = names = images = None
    try:
        out = check_folder(options.out)
        if options.features:
            features, labels = read_features(options.features), read_labels(options.labels)
            names = read_names(options.labels)
        else:
            features, labels, true = noisy_digits()
            images = (features * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)
        start = time.perf_counter()
        found = find_label_errors(
            features,
            labels,
            max_noise_in_clean=options.max_noise_in_clean,
            max_false_alarms=options.max_false_alarms,
            keep=options.keep,
            per_class=options.per_class,
            pca_dim=options.pca_dim,
            classes_per_group=options.classes_per_group,
            seed=options.seed,
            progress=True,
        )
    except ValueError as error:
        _fail(str(error))
    summary = summarize(found, labels, time.perf_counter() - start)
    try:
        write_results(found, labels, names, summary, out)
        write_report(out / "report.html", found, features, labels, images=images, names=names)
    except ValueError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"Cannot write to {out}: {error.strerror or error}.")
    print_summary(found, labels, summary, options.top)
    if true is not None:
        wrong = found.order[: (labels != true).sum()]
        share = np.mean(labels[wrong] != true[wrong])
        print(f"\nOf the {len(wrong)} most suspect labels, {share:.1%} are wrong.")
    print(
        f"\nWrote labels.csv, summary.json and report.html, the page to review them on, to {out}."
    )


if __name__ == "__main__":
    one_device_per_core()
    main()
