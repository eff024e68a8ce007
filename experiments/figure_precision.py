"""A figure of the paper: test accuracy and label precision by epoch.

    python -m experiments.figure_precision --data_dir=DIR     # CIFAR-10, on an accelerator
    python -m experiments.figure_precision --small --out=runs/learn_mnist    # MNIST, ten epochs
    python -m experiments.figure_precision --features --data_dir=DIR --out=runs/table1_features

The small one has the same runs as experiments.learn_mnist, the one on features those of
experiments.table1_features; finished ones are read.

Label precision is the fraction of correct labels among those called clean, label recall the
fraction of the correct labels that are called clean. If a fraction r of all labels is correct and
half are kept,

    precision <= min(1, 2 r),    recall <= min(1, 1 / (2 r)),

whatever the ranking is. Bounds below 1 are drawn, and r, which is the precision of a random choice.
"""

import argparse
import sys
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from experiments import paper_results
from experiments.harness import study
from experiments.harness.plot import new_grid, show_figure, star, style
from experiments.harness.runs import Run, config_of
from experiments.harness.study import Cells, Found, number, spread, table
from spr_jax.io.arrays import load_arrays
from spr_jax.training.log import read_rows

NAME = "figure_precision"
NOISE = {  # title -> end of the config's name, rate
    "symmetric 0.4": ("sym", 0.4),
    "symmetric 0.8": ("sym", 0.8),
    "asymmetric 0.4": ("asym", 0.4),
}
KINDS = {"sym": "symmetric", "asym": "asymmetric"}
PLAIN, PAPER, OURS = "plain cross-entropy", "SPR, preset paper", "SPR, preset noise_model"
METHODS = {  # title -> method, overrides
    PLAIN: ("ce", {}),
    PAPER: ("spr", {"preset": "paper"}),
    OURS: ("spr", {"preset": "noise_model"}),
}
SMALL_EPOCHS = 10
FIELDS = {  # field of a row of metrics -> axis
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
    """Bounds on a selection among labels of which a known fraction is correct, in per cent."""

    random: float  # precision of a random choice: the fraction itself
    precision: float  # upper bound for a fixed half
    recall: float  # upper bound for a fixed half


def data_of(options: argparse.Namespace) -> str:
    return "mnist" if options.small else "cifar10"


def cells(options: argparse.Namespace) -> Cells:
    return {
        (noise, title): study.repeat(run_of(options, method, fields, *NOISE[noise]), options)
        for noise in NOISE
        for title, (method, fields) in METHODS.items()
    }


def run_of(options: argparse.Namespace, method: str, fields: dict, kind: str, rate: float) -> Run:
    fields = fields | {"noise.rate": rate}
    if study.on_features(options):
        fields["noise.kind"] = KINDS[kind]
        return Run(study.FEATURES_CONFIG, method, tuple(fields.items()))
    if options.small:
        fields["epochs"] = SMALL_EPOCHS
    return Run(f"configs/{data_of(options)}_{kind}.py", method, tuple(fields.items()))


def published(options: argparse.Namespace, noise: str, field: str, method: str) -> float | None:
    if study.on_features(options):
        return None
    data, name = data_of(options), METHODS[method][0]
    if field == "test_top1" and method != OURS:
        rows, (kind, rate) = paper_results.TABLE1[data], NOISE[noise]
        row = next(row for row in rows if paper_results.METHOD_OF.get(row) == name)
        return rows[row][paper_results.NOISE.index(f"{kind}-{rate}")]
    values = PUBLISHED.get((data, field, method))
    return values[list(NOISE).index(noise)] if values else None


def history(cell: Found, field: str) -> np.ndarray:
    """[finished runs, epochs], in per cent; plain training has no selection to describe."""
    done = [result.folder for result in cell.results if result.status == "finished"]
    runs = [read_rows(folder / "metrics.jsonl") for folder in done]
    values = [[row[field] for row in rows] for rows in runs if field in rows[-1]]
    return 100 * np.array(values)


def bounds(cells: list[Found]) -> Bounds | None:
    """The bounds for runs that share their labels; None while none of them is finished."""
    for result in (result for cell in cells for result in cell.results):
        if result.status == "finished":
            right = 1 - float(load_arrays(result.folder / "noise.npz")["obtained"])
            return Bounds(100 * right, 100 * min(1, 2 * right), 100 * min(1, 1 / (2 * right)))
    return None


def draw(options: argparse.Namespace, found: dict[Hashable, Found]) -> str:
    """The picture, as Markdown; empty while there is nothing to draw."""
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
    data = f"{study.FEATURES}, one hidden layer" if study.on_features(options) else data
    return show_figure(figure, options, f"{data}; {study.seeds_of(options)}")


def draw_panel(panel, options, noise: str, field: str, found: dict[str, Found]) -> None:
    """Draw a line for each method, with the paper's number at its end."""
    for line, (method, cell) in enumerate(found.items()):
        draw_history(panel, history(cell, field), label=method, **style(line))
        end = published(options, noise, field, method)
        if end is not None:
            epochs = PUBLISHED_EPOCHS[data_of(options)]
            label = f"the paper after {epochs} epochs, in the colour of the method"
            last = config_of(cell.runs[0]).epochs
            panel.plot(last, end, linestyle="none", label=label, **star(line))


def draw_history(panel, values: np.ndarray, color: str, **look) -> None:
    """Draw the mean of the runs and a band of one deviation; without runs only the legend."""
    epochs = np.arange(1, 1 + values.shape[1]) if len(values) else np.array([])
    mean = values.mean(axis=0) if len(values) else epochs
    every = max(1, len(epochs) // 10)
    panel.plot(epochs, mean, color=color, markersize=4, markevery=every, **look)
    if len(values) > 1:
        std = values.std(axis=0, ddof=1)
        panel.fill_between(epochs, mean - std, mean + std, color=color, alpha=0.2, linewidth=0)


def draw_bounds(panel, field: str, limits: Bounds | None) -> None:
    """Draw the bounds that are below 100 %."""
    if limits is None or field == "test_top1":
        return
    if field == "label_precision":
        panel.axhline(limits.random, color="0.4", linestyle=":", label="fraction of correct labels")
    most = limits.precision if field == "label_precision" else limits.recall
    if most < 100:
        panel.axhline(most, color="0.4", linestyle="--", label="bound of a fixed half")


def result_table(options: argparse.Namespace, found: dict[Hashable, Found]) -> str:
    """The numbers of the last epoch, and the paper's."""
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


def describe_curves(found: dict[Hashable, Found]) -> str:
    """Describe the curves, in a sentence for each noise and selection."""
    lines = []
    for noise in NOISE:
        limits = bounds([found[noise, method] for method in METHODS])
        if limits is None:
            continue
        lines.append(
            f"- {noise}: {limits.random:.2f} % of the labels are correct; a fixed half has a "
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
    options = study.parse(study.arguments(__doc__, NAME, on_features=True), arguments)
    found = study.conduct(cells, options)
    parts = [
        draw(options, found),
        describe_curves(found),
        f"In per cent; {study.seeds_of(options)}; selections of the last epoch. The paper does not "
        "say whether its accuracies belong to the last epoch or to the best.",
        result_table(options, found),
    ]
    title = "Accuracy and label precision by epoch"
    return study.report(options, found, title, parts, csv_rows(found))


if __name__ == "__main__":
    sys.exit(main())
