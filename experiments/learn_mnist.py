"""A table of MNIST with wrong labels, ten epochs: plain training, SPR's presets, and a fixed half.

    python -m experiments.learn_mnist --data_dir=DIR [--seeds=3]
    python -m experiments.learn_mnist --small --data_dir=DIR    # one epoch
    python -m experiments.learn_mnist --read                    # report what is finished

Interrupted runs resume; finished ones are read.
"""

import sys
from argparse import Namespace
from typing import Any

from experiments.harness import study
from experiments.harness.runs import Run
from experiments.harness.selections import HALF_BY_PATH
from experiments.harness.study import Found, number, spread, table

NAME = "learn_mnist"
NOISE = {  # title -> config, rate
    "symmetric 0.4": ("mnist_sym", 0.4),
    "symmetric 0.8": ("mnist_sym", 0.8),
    "asymmetric 0.4": ("mnist_asym", 0.4),
}
METHODS = {  # title -> method, overrides
    "SPR, preset noise_model": ("spr", {"preset": "noise_model"}),
    "the same, half kept": ("spr", {"preset": "noise_model"} | HALF_BY_PATH),
    "plain cross-entropy": ("ce", {}),
    "SPR, preset paper": ("spr", {"preset": "paper"}),
}
COLUMNS = {  # title -> digits, unit
    "last epoch": (2, ""),
    "best on test": (2, ""),
    "kept": (4, ""),
    "of them correct": (4, ""),
    "of the correct kept": (4, ""),
    "training s": (0, ""),
    "selection": (1, " %"),
}


def cells(options: Namespace) -> study.Cells:
    """(noise, method) -> runs; the most informative ones come first."""
    found = {}
    for title, (method, fields) in METHODS.items():
        for noise, (config, rate) in NOISE.items():
            changed = fields | {"epochs": epochs(options), "noise.rate": rate}
            run = Run(f"configs/{config}.py", method, tuple(changed.items()))
            found[noise, title] = study.repeat(run, options)
    return found


def epochs(options: Namespace) -> int:
    return 1 if options.small else 10


def numbers(summary: dict[str, Any]) -> dict[str, float]:
    """Column -> number; a method without a selection has only some of them."""
    last, seconds = summary["last"], summary["seconds_train"]
    found = {
        "last epoch": 100 * last["test_top1"],
        "best on test": 100 * summary["best_on_test"]["test_top1"]["test_top1"],
        "training s": seconds,
    }
    if "clean_share" in last:
        selection = summary["seconds_select"]
        found |= {
            "kept": last["clean_share"],
            "of them correct": last["label_precision"],
            "of the correct kept": last["label_recall"],
            "selection": 100 * selection / (seconds + selection),
        }
    return found


def show(cell: Found, column: str) -> str:
    """A dash where runs are missing, an empty cell where a method has no such number."""
    found = [numbers(summary) for summary in cell.summaries]
    if not found:
        return "-"
    digits, unit = COLUMNS[column]
    values = [one[column] for one in found if column in one]
    return spread(values, digits) + unit if values else ""


def render(found: dict[tuple[str, str], Found]) -> str:
    rows = []
    for noise in NOISE:
        for title in METHODS:
            cell = found[noise, title]
            done, asked = len(cell.summaries), len(cell.runs)
            partly = f" [{done} of {asked} seeds]" if 0 < done < asked else ""
            rows.append([noise, title + partly, *(show(cell, column) for column in COLUMNS)])
    return table(["noise", "", *COLUMNS], rows)


def csv_rows(found: dict[tuple[str, str], Found]) -> list[list]:
    """A row for each finished run."""
    rows = [["noise", "method", "seed", *COLUMNS, "commit", "command"]]
    for names, cell in found.items():
        for run, result in zip(*cell, strict=True):
            if result.status == "finished":
                known = numbers(result.summary)
                values = (number(known[name], 4) if name in known else "" for name in COLUMNS)
                rows.append([*names, run.seed, *values, result.commit])
                rows[-1].append(study.command_of(run, NAME))
    return rows


def main(arguments: list[str] | None = None) -> int:
    options = study.parse(study.arguments(__doc__, NAME), arguments)
    found = study.conduct(cells, options)
    remarks = (
        f"C2F2, epochs: {epochs(options)}, {study.seeds_of(options)}; test accuracy in per cent. "
        "`noise_model` keeps labels whose error probability is below 0.1, and at least 0.9 of the "
        "labels that are probably correct; `paper` keeps half of each class. Runs may have shared "
        "the machine with others, and the first selection compiles: benchmark_epoch has times from "
        "an idle machine."
    )
    title = "Learning from MNIST with wrong labels"
    return study.report(options, found, title, [remarks, render(found)], csv_rows(found))


if __name__ == "__main__":
    sys.exit(main())
