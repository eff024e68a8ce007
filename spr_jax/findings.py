"""What a detector found, in words and as files: summary.json and labels.csv."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import spr_jax
from spr_jax.files import replace_file, shown
from spr_jax.label_errors import Detection


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
    head = ("class", "examples", "wrong, about", "suspect", "mostly")
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
        head = ("index", "label", "suggested", "wrong", "entry")
        rows = [
            (
                str(index),
                shown(labels[index]),
                shown(found.suggested[index]),
                f"{found.wrong[index]:.3f}",
                f"{found.entry[index]:.3f}",
            )
            for index in found.order[:top]
        ]
        print_columns(head, rows)


def print_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for the terminal, after an empty line; columns are as wide as what is in them."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    print()
    for line in (head, *rows):
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


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
            "rank": found.rank,
            "suggested": found.suggested,
        }
        table.writerow(columns)
        table.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    with replace_file(out / "summary.json") as file:
        json.dump(summary, file, indent=2)
        file.write("\n")
