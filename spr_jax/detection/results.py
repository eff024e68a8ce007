"""The results of a detector in words, and as the files summary.json and labels.csv."""

import csv
import heapq
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import spr_jax
from spr_jax.detection.types import Detection
from spr_jax.detection.user_data import Unreadable, UserData
from spr_jax.io.atomic import replace_file, write_json
from spr_jax.io.text import print_columns, shown

ROWS = 100_000  # that are written at a time
FEW = 3  # unreadable files that are named in the summary


def summarize(found: Detection, labels: np.ndarray, seconds: float) -> dict:
    """Return the content of summary.json."""
    noise, promise, classes = found.noise, found.promise, []
    for number, label in enumerate(noise.classes):
        mine = labels == label
        row = {
            "label": label.item(),
            "examples": int(mine.sum()),
            "wrong_share": float(noise.by_class[number]),
            "wrong_share_interval": noise.by_class_interval[number].tolist(),
            "suspect": int((mine & ~found.clean).sum()),
            "mostly": noise.classes[_mostly(noise.confusion, number)].item(),
        }
        if promise is not None:
            lowest = promise.lowest[number]
            row["attained"] = bool(promise.attained[number])
            row["lowest_level"] = float(lowest) if np.isfinite(lowest) else None
        classes.append(row)
    summary = {
        "examples": len(labels),
        "wrong_share": noise.rate,
        "wrong_share_interval": list(noise.interval),
        "features_explain_labels": noise.explained,
        "suspect": int((~found.clean).sum()),
        "expected_wrong_in_clean": _mean(found.error_probability[found.clean]),
        "expected_right_in_suspects": _mean(1 - found.error_probability[~found.clean]),
        "duality_gap": found.duality_gap,
        "fit_gap": noise.fit_gap,
        "seconds": round(seconds, 3),
        "version": spr_jax.__version__,
        "classes": classes,
    }
    if promise is not None:
        summary["asked"] = {"level": promise.level, "kind": promise.kind}
    return summary


def _mean(values):
    return float(values.mean()) if len(values) else None


def _mostly(confusion, number):
    """Return the true class of most wrong labels of a class."""
    others = confusion[number].copy()
    others[number] = -1
    return int(np.argmax(others))


def describe_images(data: UserData) -> dict:
    """Return what summary.json says about images: where features came from, what was unreadable."""
    described: dict = {}
    if data.features_from is not None:
        described["features_from"] = data.features_from
    if data.unreadable is not None:
        names = data.unreadable.names[:FEW].tolist()
        described["unreadable"] = {"count": len(data.unreadable.positions), "first": names}
    return described


def print_summary(
    found: Detection,
    labels: np.ndarray,
    summary: dict,
    top: int,
    unreadable: Unreadable | None = None,
) -> None:
    classes = summary["classes"]
    low, high = (f"{100 * bound:.1f}" for bound in summary["wrong_share_interval"])
    print(
        f"{summary['examples']:,} examples of {len(classes)} classes in "
        f"{summary['seconds']:.1f} s: about {100 * summary['wrong_share']:.1f} % of the labels are "
        f"wrong (between {low} and {high} %); {summary['suspect']:,} are suspect."
    )
    _print_images(summary)
    if not summary["features_explain_labels"]:
        print(
            "The features predict the labels barely better than chance: either the labels are "
            "random, or these features cannot separate the classes. So nothing is flagged, and any "
            "fraction of the labels may be wrong."
        )
    if found.promise is not None:
        print(_in_words(found.promise, found.noise.classes))
    head = ("class", "examples", "wrong (est.)", "suspects", "confused with")
    rows = [
        (
            shown(row["label"]),
            f"{row['examples']:,}",
            f"{100 * row['wrong_share']:.1f} %",
            f"{row['suspect']:,}",
            shown(row["mostly"]),
        )
        for row in classes
    ]
    print_columns(head, rows)
    if top:
        print("\nMost suspect:", end="")
        index = _positions(len(labels), unreadable)
        head = ("index", "label", "suggested", "error probability", "entry penalty")
        rows = [
            (
                str(index[row]),
                shown(labels[row]),
                shown(found.suggested[row]),
                f"{found.error_probability[row]:.3f}",
                f"{found.entry_penalty[row]:.3f}",
            )
            for row in found.order[:top]
        ]
        print_columns(head, rows)


def _print_images(summary):
    if "features_from" in summary:
        taken = summary["features_from"]
        print(f"Features: {taken['encoder']}, because {taken['reason']}.")
    if "unreadable" in summary:
        count, first = summary["unreadable"].values()
        names = ", ".join(map(shown, first)) + (" ..." if count > len(first) else "")
        print(f"{count:,} files cannot be read (see unreadable.csv): {names}.")


def _positions(count, unreadable):
    """[N], the place of each example among all, of which some may be unreadable."""
    return np.arange(count) if unreadable is None else unreadable.others(count)


def print_truth(found: Detection, data: UserData) -> None:
    """Where the true labels are known, print how many of the suspects are wrong."""
    if data.true is None or (data.labels == data.true).all():
        return
    suspects = found.order[: (data.labels != data.true).sum()]
    fraction = np.mean(data.labels[suspects] != data.true[suspects])
    print(f"\nOf the {len(suspects)} most suspect labels, {fraction:.1%} are wrong.")


def _in_words(promise, classes):
    mistakes, then = {
        "clean": ("wrong labels among the clean", "so none of their examples is called clean"),
        "suspects": ("correct labels among the suspects", "so none of their examples is flagged"),
    }[promise.kind]
    missed = [
        f"{shown(label)} ({f'not below {100 * lowest:.1f} %' if np.isfinite(lowest) else 'none'})"
        for label, lowest, attained in zip(classes, promise.lowest, promise.attained, strict=True)
        if not attained
    ]
    asked = f"At most {100 * promise.level:g} % {mistakes}: "
    if not missed:
        return asked + "every class can keep this level."
    names = ", ".join(missed[:10]) + (f" and {len(missed) - 10} more" if len(missed) > 10 else "")
    return asked + f"{len(missed)} of {len(classes)} classes cannot keep this, {then}: {names}."


def write_results(
    found: Detection,
    labels: np.ndarray,
    names: np.ndarray | None,
    summary: dict,
    out: Path,
    unreadable: Unreadable | None = None,
) -> None:
    """Write labels.csv, one line for each example in the input order, and summary.json.

    Files that cannot be read have a line of empty cells in their place, and unreadable.csv says
    why.
    """
    out.mkdir(parents=True, exist_ok=True)
    columns: dict[str, np.ndarray] = {"index": _positions(len(labels), unreadable)}
    if names is not None:
        columns["file"] = names
    columns |= found.columns(labels)
    columns["suspect"] = columns["suspect"].astype(int)
    others = []
    if unreadable is not None:
        empty = ("",) * (len(columns) - 4)
        others = [(*row[:3], 0, *empty) for row in zip(*unreadable[:3], strict=True)]
    write_csv(out / "labels.csv", columns, others)
    reasons = out / "unreadable.csv"
    reasons.unlink(missing_ok=True)  # of an earlier call
    if unreadable is not None:
        names_of = ("index", "file", "label", "reason")
        write_csv(reasons, dict(zip(names_of, map(np.asarray, unreadable), strict=True)))
    write_json(out / "summary.json", summary)


def write_csv(path: Path, columns: Mapping[str, np.ndarray], others: Sequence[tuple] = ()) -> None:
    """Write a table; numbers that are not integers have six digits.

    `others` are further rows, to be sorted in by the first column.
    """
    # Python before 3.13 does not quote a lone carriage return, and reads it as the end of a line.
    names: list[Any] = [column for column in columns.values() if column.dtype.kind == "U"]
    returns = any("\r" in str(cell) for row in [*names, *others] for cell in row)
    quoting: Any = csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL
    rows: Any = [_cells(list(columns.values())), sorted(others)]
    with replace_file(path) as file:
        table = csv.writer(file, lineterminator="\n", quoting=quoting)
        table.writerow(columns)
        table.writerows(heapq.merge(*rows, key=_first))


def _first(row: Any) -> Any:
    return row[0]


def _cells(columns: list[np.ndarray]) -> Iterator[tuple]:
    """Yield rows of cells, some at a time: as Python objects all would take much memory."""
    for start in range(0, len(columns[0]), ROWS):
        parts = [column[start : start + ROWS] for column in columns]
        texts = [np.char.mod("%.6g", part) if part.dtype.kind == "f" else part for part in parts]
        yield from zip(*(part.tolist() for part in texts), strict=True)
