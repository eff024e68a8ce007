"""Find the label errors of a data set from the features of its examples.

In Python, on one's own arrays (NumPy in, NumPy out):

    found = find_label_errors(features, labels)
    suspects = np.argsort(-found.entry)[:100]

As a command, on one's own files; without files, on scikit-learn's digits with wrong labels:

    python -m spr_jax.detect features.npy labels.csv --out=found
"""

import argparse
import contextlib
import csv
import json
import math
import numbers
import sys
import time
from pathlib import Path
from typing import NamedTuple, NoReturn

import jax
import numpy as np
from tqdm import tqdm

import spr_jax
from spr_jax.devices import device_mesh, one_device_per_core
from spr_jax.files import check_folder, read_features, read_labels, replace_file
from spr_jax.solver import Options, clean_set, plan_pieces

MAX_PCA_DIM = 64
MAX_CLASSES_PER_GROUP = 100


class Detection(NamedTuple):
    clean: np.ndarray  # [N] bool, the share of each class that its features explain best
    entry: np.ndarray  # [N], penalty at which the example left zero: larger, more suspect
    suggested: np.ndarray  # [N], the label the robust fit gives
    gap: float  # largest relative duality gap on the path: how well the answer is converged


def find_label_errors(
    features: np.ndarray,  # [N, d]
    labels: np.ndarray,  # [N], integers from 0, or class names
    *,
    keep: float = 0.5,
    per_class: int | None = None,
    pca_dim: int | None = None,
    classes_per_group: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Detection:
    """Rank examples by how little their features explain their label.

    Args:
      features: one row for each example, from any network or descriptor; bring columns of
        very different scales to one scale first, the largest would drown the others.
      labels: as given, possibly wrong.
      keep: share of each class that is called clean; the rest is suspect.
      per_class: examples of each class in a piece; 10 is the paper's split. None, the default,
        solves the whole data at once (with an intercept, as classes then differ in size),
        which finds more errors than small pieces.
      pca_dim: principal components the regression sees. None takes sqrt(rows of a piece) / 2,
        at most 64, but one for each class. On features of networks trained on 40 % wrong
        labels, whole data, half kept, 99.91 / 99.95 / 99.95 % (MNIST) and 90.0 / 91.7 / 91.8 %
        (CIFAR-10) of the kept labels were right with 10 / 32 / 64 components, and no more with
        all of them; fewer examples bear fewer components, and in pieces of 100 more than 10
        did harm (`experiments/reports/detector_quality.md`).
      classes_per_group: solve so many classes at a time, unlike ones together. None takes all
        of them, at most 100.
      seed: of the random split; whole data needs none.
      progress: show how many examples have entered the path of the whole data.

    Raises:
      ValueError: in one sentence, what was given and what is expected.
    """
    features = _check_features(features)
    classes, codes = _check_labels(labels, len(features))
    _check_options(keep, per_class, pca_dim, classes_per_group, seed)
    is_tall = len(features) > features.shape[1]  # else there is nothing to gain
    mesh = device_mesh() if jax.local_device_count() > 1 and is_tall else None
    plan = plan_pieces(
        codes,
        per_class=per_class,
        classes_per_group=classes_per_group or MAX_CLASSES_PER_GROUP,
        multiple_of=mesh.size if mesh else 1,
    )
    if pca_dim is None:
        pca_dim = max(plan.classes_per_group, min(math.isqrt(plan.rows // 4), MAX_PCA_DIM))
    options = Options(
        pca_dim=pca_dim,
        intercept=per_class is None,
        report=_show_progress if progress else None,
    )
    with _progress_bar() if progress else contextlib.nullcontext():
        found = jax.device_get(
            clean_set(
                features,
                codes,
                jax.random.key(seed),
                keep=keep,
                plan=plan,
                options=options,
                mesh=mesh,
            )
        )
    return Detection(found.clean, found.entry, classes[found.suggested], float(found.gap))


def _as_array(values, name) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} are not one array: their rows differ in length.") from None


def _check_features(features) -> np.ndarray:
    features = _as_array(features, "Features")
    if features.dtype.kind not in "fiub":
        raise ValueError(f"Features have the type {features.dtype}; expected numbers.")
    if features.ndim != 2:
        raise ValueError(
            f"Features have the shape {features.shape}; expected [examples, features], one row "
            "for each example."
        )
    if features.size == 0:
        raise ValueError(f"Features are empty, of shape {features.shape}; expected some rows.")
    # One number a row is enough to see what is not finite, without a copy of the whole.
    extreme = np.maximum(features.max(axis=1), -features.min(axis=1).astype(np.float64))
    wrong = np.flatnonzero(~(extreme < np.finfo(np.float32).max))
    if len(wrong):
        raise ValueError(
            f"{len(wrong)} rows of the features hold NaN or infinite values, the first at index "
            f"{wrong[0]}; expected finite numbers (of at most 3e38): repair or drop these rows."
        )
    scale = max(extreme.max(), np.finfo(np.float64).tiny)
    if features.dtype == np.float64:  # a common offset would not survive single precision
        features = features / scale
        features -= features.mean(axis=0)
    elif not 1e-6 < scale < 1e6:  # squares must stay within single precision
        features = features / features.dtype.type(scale)
    return features.astype(np.float32, copy=False)


def _check_labels(labels, num_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Names of the classes [c] and the labels as positions among them [N]."""
    labels = _as_array(labels, "Labels")
    if labels.ndim != 1:
        raise ValueError(f"Labels have the shape {labels.shape}; expected [examples].")
    if len(labels) != num_features:
        raise ValueError(
            f"Got {num_features} rows of features but {len(labels)} labels; they must match "
            "(in a file, a line of column names must be called 'label')."
        )
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8", "replace")
    if labels.dtype.kind == "O" and len({type(label) for label in labels}) == 1:
        labels = np.array(labels.tolist())
    if labels.dtype.kind not in "iubfU":
        raise ValueError(f"Labels have the type {labels.dtype}; expected integers or class names.")
    if labels.dtype.kind == "f":
        wrong = np.flatnonzero(~((np.abs(labels) < 2**53) & (labels == np.round(labels))))
        if len(wrong):
            raise ValueError(
                f"{len(wrong)} labels are not integers, the first is {labels[wrong[0]]} at index "
                f"{wrong[0]}; expected integers from 0 or class names."
            )
        labels = labels.astype(np.int64)
    if labels.dtype.kind == "i" and labels.min() < 0:
        first = np.flatnonzero(labels < 0)[0]
        raise ValueError(
            f"{(labels < 0).sum()} labels are negative, the first is {labels[first]} at index "
            f"{first}; expected integers from 0 or class names."
        )
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"All labels are {_shown(classes[0])}; expected at least two classes.")
    return classes, codes.astype(np.int32)


def _check_options(keep, per_class, pca_dim, classes_per_group, seed) -> None:
    if not isinstance(keep, numbers.Real) or not 0 < keep < 1:
        raise ValueError(f"keep is {keep!r}; expected a share between 0 and 1, such as 0.5.")
    counts = {"per_class": per_class, "pca_dim": pca_dim, "classes_per_group": classes_per_group}
    for name, value in counts.items():
        lowest = 2 if name == "classes_per_group" else 1
        if value is None:
            continue
        if not isinstance(value, numbers.Integral) or value < lowest:
            raise ValueError(f"{name} is {value!r}; expected {lowest} or more, or none.")
    if not isinstance(seed, numbers.Integral) or not 0 <= seed < 2**32:
        raise ValueError(f"seed is {seed!r}; expected an integer from 0 to 4294967295.")


def _shown(label) -> str:
    """A label of the user's as text that cannot steer a terminal, nor break it."""
    text = str(label)
    encoding = sys.stdout.encoding or "utf-8"
    encodable = text.encode(encoding, "replace").decode(encoding) == text
    return text if text.isprintable() and encodable else ascii(text)


_bars: list[tqdm] = []


def _show_progress(share) -> None:
    """Called from within the solver; one function, so that it is compiled only once."""
    for bar in _bars:
        bar.update(max(round(float(share) * bar.total) - bar.n, 0))


@contextlib.contextmanager
def _progress_bar():
    form = "{desc}: {percentage:3.0f}% |{bar}| {elapsed}"
    with tqdm(total=100, desc="Examples entered", bar_format=form, leave=False) as bar:
        _bars.append(bar)
        try:
            yield
        finally:
            jax.effects_barrier()
            _bars.remove(bar)


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
    classes = []
    for label in np.unique(labels):
        mine = labels == label
        suspect = mine & ~found.clean
        other = suspect & (found.suggested != label)
        classes.append(
            {
                "label": label.item(),
                "examples": int(mine.sum()),
                "suspect": int(suspect.sum()),
                "suspect_and_suggested_otherwise": int(other.sum()),
            }
        )
    return {
        "examples": len(labels),
        "suspect": int((~found.clean).sum()),
        "gap": found.gap,
        "seconds": round(seconds, 3),
        "version": spr_jax.__version__,
        "classes": classes,
    }


def print_summary(found: Detection, labels: np.ndarray, summary: dict, top: int) -> None:
    classes = summary["classes"]
    print(
        f"{summary['examples']:,} examples of {len(classes)} classes in "
        f"{summary['seconds']:.1f} s: {summary['suspect']:,} are suspect "
        f"(duality gap at most {summary['gap']:.0e})."
    )
    width = max(5, *(len(_shown(row["label"])) for row in classes))
    print(f"\n{'class':>{width}}  examples  suspect  and fitted by another class")
    for row in classes:
        print(
            f"{_shown(row['label']):>{width}}  {row['examples']:8,}  {row['suspect']:7,}  "
            f"{row['suspect_and_suggested_otherwise']:28,}"
        )
    if top:
        print(f"\nMost suspect:\n   index  {'label':>{width}}  {'suggested':>{width + 4}}   entry")
    for index in np.argsort(-found.entry, kind="stable")[:top]:
        print(
            f"{index:8}  {_shown(labels[index]):>{width}}  "
            f"{_shown(found.suggested[index]):>{width + 4}}  {found.entry[index]:6.3f}"
        )


def write_results(found: Detection, labels: np.ndarray, summary: dict, out: Path) -> None:
    """labels.csv, one line for each example in the order given, and summary.json."""
    out.mkdir(parents=True, exist_ok=True)
    rank = np.empty(len(labels), int)
    rank[np.argsort(-found.entry, kind="stable")] = np.arange(1, len(labels) + 1)
    with replace_file(out / "labels.csv") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["index", "label", "suspect", "entry", "rank", "suggested"])
        entry = (f"{value:.6g}" for value in found.entry.tolist())
        suspect = (~found.clean).astype(int).tolist()
        table.writerows(
            zip(
                range(len(labels)),
                labels.tolist(),
                suspect,
                entry,
                rank.tolist(),
                found.suggested.tolist(),
                strict=True,
            )
        )
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
        "--keep", type=float, default=0.5, help="share of each class called clean [%(default)s]"
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
    true = None
    try:
        out = check_folder(options.out)
        if options.features:
            features, labels = read_features(options.features), read_labels(options.labels)
        else:
            features, labels, true = noisy_digits()
        start = time.perf_counter()
        found = find_label_errors(
            features,
            labels,
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
        write_results(found, labels, summary, out)
    except OSError as error:
        _fail(f"Cannot write to {out}: {error.strerror or error}.")
    print_summary(found, labels, summary, options.top)
    if true is not None:
        wrong = np.argsort(-found.entry)[: (labels != true).sum()]
        share = np.mean(labels[wrong] != true[wrong])
        print(f"\nOf the {len(wrong)} most suspect labels, {share:.1%} are wrong.")
    print(f"\nWrote {out / 'labels.csv'} and {out / 'summary.json'}.")


if __name__ == "__main__":
    one_device_per_core()
    main()
