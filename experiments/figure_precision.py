"""Test accuracy and label precision by epoch (a figure of the paper).

    python -m experiments.figure_precision --data_dir=DIR     # CIFAR-10, on an accelerator
    python -m experiments.figure_precision --small --out=runs/learn_mnist    # MNIST, ten epochs

The small one needs the runs of experiments.learn_mnist, and finds those that are there.

Label precision is the share of right labels among those called clean, label recall the share of the
right labels that are called clean. If a share r of all labels is right and half are kept,

    precision <= min(1, 2 r),    recall <= min(1, 1 / (2 r)),

whatever the ranking is. Bounds below 1 are drawn, and r, which is the precision of a random choice.
"""

import argparse
import sys
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from experiments import paper, study
from experiments.markdown import table
from experiments.plot import new_grid, show_figure, star, style
from experiments.runs import Run, config_of
from experiments.study import Cells, Found, number, spread
from spr_jax.files import load_arrays
from spr_jax.metrics import read_rows

NAME = "figure_precision"
NOISE = {  # title -> end of the config's name, rate
    "symmetric 0.4": ("sym", 0.4),
    "symmetric 0.8": ("sym", 0.8),
    "asymmetric 0.4": ("asym", 0.4),
}
PLAIN, PAPER, EXACT = "plain cross-entropy", "SPR, preset paper", "SPR, preset exact"
METHODS = {  # title -> method, overrides
    PLAIN: ("ce", {}),
    PAPER: ("spr", {"preset": "paper"}),
    EXACT: ("spr", {"preset": "exact"}),
}
SMALL_EPOCHS = 10
FIELDS = {  # of a row of metrics -> axis
    "test_top1": "test accuracy (%)",
    "label_precision": "label precision (%)",
    "label_recall": "label recall (%)",
}
# The ends of the paper's figure, in per cent; accuracies are those of its Table 1.
PUBLISHED = {  # (data, field, method) -> for each noise
    ("cifar10", "label_precision", PAPER): (93.90, 30.34, 93.50),
    ("cifar10", "label_recall", PAPER): (None, 76.24, None),
}
PUBLISHED_EPOCHS = {"cifar10": 180, "mnist": 50}


class Bounds(NamedTuple):
    """In per cent, of a selection among labels of which a known share is right."""

    random: float  # precision of a random choice: the share itself
    precision: float  # the most that a fixed half can have
    recall: float


def data_of(options: argparse.Namespace) -> str:
    return "mnist" if options.small else "cifar10"


def cells(options: argparse.Namespace) -> Cells:
    found = {}
    for noise, (kind, rate) in NOISE.items():
        for title, (method, fields) in METHODS.items():
            fields = fields | {"noise.rate": rate}
            if options.small:
                fields["epochs"] = SMALL_EPOCHS
            elif method == "spr" and rate == 0.8:
                fields["method.growth"] = 1.0  # as in the paper, at this rate
            run = Run(f"configs/{data_of(options)}_{kind}.py", method, tuple(fields.items()))
            found[noise, title] = study.repeat(run, options)
    return found


def published(options: argparse.Namespace, noise: str, field: str, method: str) -> float | None:
    data, name = data_of(options), METHODS[method][0]
    if field == "test_top1" and method != EXACT:
        rows, (kind, rate) = paper.TABLE1[data], NOISE[noise]
        row = next(row for row in rows if paper.METHOD_OF.get(row) == name)
        return rows[row][paper.NOISE.index(f"{kind}-{rate}")]
    values = PUBLISHED.get((data, field, method))
    return values[list(NOISE).index(noise)] if values else None


def history(cell: Found, field: str) -> np.ndarray:
    """[finished runs, epochs], in per cent; plain training has no selection to be described."""
    done = [result.folder for result in cell.results if result.status == "finished"]
    runs = [read_rows(folder / "metrics.jsonl") for folder in done]
    values = [[row[field] for row in rows] for rows in runs if field in rows[-1]]
    return 100 * np.array(values)


def bounds(cells: list[Found]) -> Bounds | None:
    """Of runs that have the same labels; None while none of them is finished."""
    for result in (result for cell in cells for result in cell.results):
        if result.status == "finished":
            right = 1 - float(load_arrays(result.folder / "noise.npz")["obtained"])
            return Bounds(100 * right, 100 * min(1, 2 * right), 100 * min(1, 1 / (2 * right)))
    return None


def draw(options: argparse.Namespace, found: dict[Hashable, Found]) -> str:
    """The picture, as Markdown; none while there is nothing to draw."""
    if not any(cell.summaries for cell in found.values()):
        return ""
    figure, panels = new_grid(len(FIELDS), len(NOISE), height=3.0)
    for row, (field, axis) in zip(panels, FIELDS.items(), strict=True):
        for panel, noise in zip(row, NOISE, strict=True):
            limits = bounds([found[noise, method] for method in METHODS])
            draw_panel(panel, options, noise, field, {m: found[noise, m] for m in METHODS})
            draw_bounds(panel, field, limits)
            panel.xaxis.get_major_locator().set_params(integer=True)
            if panel is row[0]:
                panel.set_ylabel(axis)
    for panel, noise in zip(panels[0], NOISE, strict=True):
        panel.set_title(noise)
    for panel in panels[-1]:
        panel.set_xlabel("epoch")
    data = "MNIST, C2F2" if options.small else "CIFAR-10, ResNet-18"
    return show_figure(figure, options, f"{data}; {study.seeds_of(options)}")


def draw_panel(panel, options, noise: str, field: str, found: dict[str, Found]) -> None:
    """A line for each method, and the paper's numbers at its end."""
    for line, (method, cell) in enumerate(found.items()):
        draw_history(panel, history(cell, field), label=method, **style(line))
        end = published(options, noise, field, method)
        if end is not None:
            epochs = PUBLISHED_EPOCHS[data_of(options)]
            label = f"the paper after {epochs} epochs, in the colour of the method"
            last = config_of(cell.runs[0]).epochs
            panel.plot(last, end, linestyle="none", label=label, **star(line))


def draw_history(panel, values: np.ndarray, color: str, **look) -> None:
    """Mean of the runs and a band of their deviation; of none the line in the legend."""
    epochs = np.arange(1, 1 + values.shape[1]) if len(values) else np.array([])
    mean = values.mean(axis=0) if len(values) else epochs
    every = max(1, len(epochs) // 10)
    panel.plot(epochs, mean, color=color, markersize=4, markevery=every, **look)
    if len(values) > 1:
        std = values.std(axis=0, ddof=1)
        panel.fill_between(epochs, mean - std, mean + std, color=color, alpha=0.2, linewidth=0)


def draw_bounds(panel, field: str, limits: Bounds | None) -> None:
    """Those that say something."""
    if limits is None or field == "test_top1":
        return
    if field == "label_precision":
        panel.axhline(limits.random, color="0.4", linestyle=":", label="share of right labels")
    most = limits.precision if field == "label_precision" else limits.recall
    if most < 100:
        panel.axhline(most, color="0.4", linestyle="--", label="bound of a fixed half")


def result_table(options: argparse.Namespace, found: dict[Hashable, Found]) -> str:
    """Of the last epoch; the paper's numbers beside."""
    rows = []
    for (noise, method), cell in found.items():
        names = ("test accuracy, last epoch", "test accuracy, best on test")
        accuracies = [study.shown(cell, name) for name in names]
        shares = [
            spread([100 * s["last"][name] for s in cell.summaries if name in s["last"]])
            for name in ("clean_share", "label_precision", "label_recall")
        ]
        theirs = [
            number(published(options, noise, name, method))
            for name in ("test_top1", "label_precision")
        ]
        rows.append([noise, method, *accuracies, *shares, *theirs])
    head = ["noise", "", "accuracy, last epoch", "best on test", "kept"]
    head += ["label precision", "label recall", "paper: accuracy", "paper: label precision"]
    return table(head, rows)


def seen(found: dict[Hashable, Found]) -> str:
    """What the curves show, in a sentence for each noise and selection."""
    lines = []
    for noise in NOISE:
        limits = bounds([found[noise, method] for method in METHODS])
        if limits is None:
            continue
        lines.append(
            f"- {noise}: {limits.random:.2f} % of the labels are right; a fixed half has a "
            f"precision of at most {limits.precision:.2f} % and a recall of at most "
            f"{limits.recall:.2f} %."
        )
        for method in METHODS:
            curve = history(found[noise, method], "label_precision")
            if curve.size:
                curve = curve.mean(axis=0)
                lines.append(
                    f"    - {method}: label precision goes from {curve[0]:.2f} % to "
                    f"{curve[-1]:.2f} %, and is highest after epoch {curve.argmax() + 1} of "
                    f"{len(curve)} ({curve.max():.2f} %)."
                )
    return "\n".join(lines)


def csv_rows(found: dict[Hashable, Found]) -> list[list]:
    """Every epoch of every finished run."""
    fields = ("test_top1", "clean_share", "label_precision", "label_recall")
    rows = [["noise", "method", "seed", "epoch", *(f"{name} (%)" for name in fields)]]
    for (noise, method), (runs, results) in found.items():
        for run, result in zip(runs, results, strict=True):
            if result.status == "finished":
                for row in read_rows(result.folder / "metrics.jsonl"):
                    shares = [number(100 * row[f] if f in row else None, 4) for f in fields]
                    rows.append([noise, method, run.seed, row["epoch"] + 1, *shares])
    return rows


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0, 1 if a run failed, 75 if it was stopped and can go on."""
    options = study.arguments(__doc__, NAME).parse_args(arguments)
    options.name += "_small" * options.small
    found = study.conduct(cells(options), options)
    parts = [
        "# Accuracy and label precision by epoch",
        study.head(found),
        draw(options, found),
        seen(found),
        f"In per cent; {study.seeds_of(options)}; selections of the last epoch. The paper does not "
        "say whether its accuracies are of the last epoch or of the best.",
        result_table(options, found),
        study.commands(found, NAME),
    ]
    study.write_report(options, parts, csv_rows(found))
    return study.exit_status(study.results_of(found))


if __name__ == "__main__":
    sys.exit(main())
