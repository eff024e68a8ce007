"""A report on label noise: are the estimated rates right, and are the promised levels kept?

    python -m experiments.error_control mnist_sym40.npz cifar10_sym40.npz \
        --human cifar10n.npz --out runs/error_control --report

Each file holds `features` [N, d], `given` and `true` labels [N], and for human labels `index` [N]
into the data set. Every file is measured with its own labels. For files named DATASET_sym40.npz
(`experiments.feature_files` makes them), or for all with --redraw, labels are also redrawn from the
true ones: symmetric and asymmetric noise of several rates and seeds, and none; for CIFAR-10, also
human labels (--human, CIFAR-10N).

Finished runs are lines of OUT/runs.jsonl, so an interrupted command resumes, and a report is made
again without measuring.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.error_control_plots import PLOTS
from experiments.error_control_report import render
from experiments.harness.provenance import REPORTS, origin, show_report
from experiments.label_sets import Row, cases_of, dataset_of, is_redrawn, measure_all
from spr_jax.detection.error_control import expected_auroc, flag_surest, is_explained, keep_cleanest
from spr_jax.detection.find import components_for
from spr_jax.devices import device_mesh, one_device_per_core
from spr_jax.noise import PAIRS
from spr_jax.solver import Options, clean_set, plan_pieces
from spr_jax.solver.knockoffs import Trial, knockoff_set
from spr_jax.solver.label_noise import LabelNoise, label_noise
from spr_jax.training.selection_metrics import auroc

LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2)
RATES = {"symmetric": (0.05, 0.2, 0.4, 0.6, 0.8), "asymmetric": (0.2, 0.3, 0.4)}
FEW_RATES = {"symmetric": (0.2,), "asymmetric": (0.3,)}  # with --small


def measure(features: np.ndarray, given: np.ndarray, true: np.ndarray, seed: int = 0) -> Row:
    """Measure one set of labels, with the options of `find_label_errors`."""
    num_classes = int(max(given.max(), true.max())) + 1
    wrong = given != true
    dim = components_for(len(given), num_classes=num_classes)
    noise = jax.device_get(label_noise(features, given, num_classes=num_classes, pca_dim=dim))
    mesh = device_mesh()
    how = {
        "plan": plan_pieces(given, num_classes=num_classes, multiple_of=mesh.size),
        "options": Options(pca_dim=dim, intercept=True),
        "mesh": mesh,
    }
    data = jnp.asarray(features), jnp.asarray(given), jax.random.key(seed)
    found = jax.device_get(clean_set(*data, **how))
    can_rank = 0 < wrong.sum() < len(wrong)
    return {
        "examples": len(given),
        "true": shares(wrong, given, num_classes),
        "rate": noise.rate.tolist(),
        "low": noise.low.tolist(),
        "high": noise.high.tolist(),
        "explained": is_explained(noise),
        "flagged": float(np.mean(noise.wrong > 0.5)),
        "auroc": {
            "entry": auroc(found.entry_penalty, wrong) if can_rank else None,
            "wrong": auroc(noise.wrong, wrong) if can_rank else None,
            "expected": expected_auroc(noise.wrong),
        },
        "f1": {
            "default": f1(noise.wrong > 0.5, wrong),
            "best_entry": best_f1(found.entry_penalty, wrong),
            "best_wrong": best_f1(noise.wrong, wrong),
            "half": f1(~found.clean, wrong),
        },
        "levels": [
            {"rule": rule, "asked": level, "claims": np.asarray(claims).tolist()}
            | counts(chosen, ~wrong if rule == "flag_surest" else wrong, given, num_classes)
            for rule, choices in choices_of(noise, given, data, how).items()
            for level, (chosen, claims) in zip(LEVELS, choices, strict=True)
        ],
    }


def choices_of(noise: LabelNoise, given: np.ndarray, data: tuple, how: dict) -> dict[str, Iterable]:
    """Rule -> for each level, (mask of the examples it takes [N], classes that claim it [c])."""

    def knockoffs(rule):
        def keep(level):  # vmap computes what does not depend on the level only once
            tried = knockoff_set(*data, level=level, trial=Trial(rule=rule), **how)
            return tried.clean, tried.attained

        return zip(*jax.device_get(jax.vmap(keep)(jnp.asarray(LEVELS))), strict=True)

    return {
        "keep_cleanest": [keep_cleanest(noise, given, level)[:2] for level in LEVELS],
        "knockoffs": knockoffs("fixed"),
        "released": knockoffs("released"),
        "flag_surest": [flag_surest(noise, given, level)[:2] for level in LEVELS],
    }


def shares(values: np.ndarray, labels: np.ndarray, num_classes: int) -> list[float]:
    """The mean over all examples, then that of each class; 0 for a class that does not occur."""
    sums = np.bincount(labels, values, num_classes)
    sizes = np.bincount(labels, minlength=num_classes)
    return [float(values.mean()), *(sums / np.maximum(sizes, 1)).tolist()]


def counts(chosen: np.ndarray, mistake: np.ndarray, labels: np.ndarray, num_classes: int) -> Row:
    """Count, for each class, the examples that were taken and those taken by mistake."""
    return {
        "taken": np.bincount(labels[chosen], minlength=num_classes).tolist(),
        "mistakes": np.bincount(labels[chosen & mistake], minlength=num_classes).tolist(),
    }


def f1(flagged: np.ndarray, wrong: np.ndarray) -> float | None:
    """F1 of the flags as a detector of wrong labels; None if no label is wrong."""
    if not wrong.any():
        return None
    return float(2 * np.sum(flagged & wrong) / (flagged.sum() + wrong.sum()))


def best_f1(score: np.ndarray, wrong: np.ndarray) -> float | None:
    """F1 at the best threshold, chosen with knowledge of the truth. Ties are flagged together."""
    if not wrong.any():
        return None
    order = np.argsort(-score, kind="stable")
    hits, flags = np.cumsum(wrong[order]), np.arange(1, len(wrong) + 1)
    ends_tie = np.append(np.diff(score[order]) != 0, True)
    return float(np.max((2 * hits / (flags + wrong.sum()))[ends_tie]))


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--human", type=Path, help="cifar10n.npz, human labels of CIFAR-10")
    parser.add_argument("--dataset", choices=PAIRS, help="of all files [from their names]")
    parser.add_argument("--redraw", action="store_true", help="redraw labels for all files")
    parser.add_argument("--seeds", type=int, default=3, help="of redrawn labels [%(default)s]")
    parser.add_argument("--rows", type=int, default=20_000, help="most rows per file [%(default)s]")
    parser.add_argument("--small", action="store_true", help="one seed, few rates, 1,000 rows")
    parser.add_argument("--out", type=Path, default=Path("runs/error_control"))
    parser.add_argument("--report", action="store_true", help="write reports/error_control.md")
    options = parser.parse_args(arguments)
    if options.small:
        options.seeds, options.rows = 1, min(options.rows, 1000)
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    cases = []
    for file in options.files:
        redraw = options.redraw or is_redrawn(file.stem)
        data = options.dataset or dataset_of(file.stem)
        rates = FEW_RATES if options.small else RATES
        human = options.human is not None
        cases += cases_of(file, data, rates, options.seeds, redraw=redraw, human=human)
    rows = measure_all(measure, cases, options.out / "runs.jsonl", options.rows, options.human)
    report = render(rows, origin("scipy"))
    show_report(report, "error_control", keep=options.report)
    if options.report:
        for name, plot in PLOTS.items():
            plot(rows, REPORTS / name)


if __name__ == "__main__":
    one_device_per_core()
    main()
