"""Table 3: what selection, sparse penalty and CutMix each add, on CIFAR-10 with symmetric noise.

    python -m experiments.table3_ablation --data_dir=DIR [--seeds 3]
    python -m experiments.table3_ablation --small --data_dir=DIR    # a small network, few epochs
    python -m experiments.table3_ablation --fast --data_dir=DIR     # a fast network, 16 epochs
    python -m experiments.table3_ablation --features --data_dir=DIR # cifar10.npz of spr-encode
    python -m experiments.table3_ablation --read                    # report what is finished

Every row is SPR with something left out, so all of them share data, steps and schedule. For
accelerators; on two cores --small takes about 40 minutes, --fast a quarter of an hour a run,
--features about a minute. An interrupted table resumes.
"""

import sys
from argparse import Namespace

from experiments import paper_results
from experiments.harness import study
from experiments.harness.runs import Run
from experiments.harness.study import table

NAME = "table3_ablation"
MEASURES = (
    "test accuracy, last epoch",
    "test accuracy, best on test",
    "label precision, last epoch",
    "label recall, last epoch",
)
LEFT_OUT = {  # part -> what leaves it out
    "SPR": {"method.select.name": "all"},  # every label is called clean
    "lq": {"method.penalty_weight": 0.0},
    "CutMix": {"method.cutmix": 0.0},
}
FULL = "configs/cifar10_sym.py", {"epochs": 180, "noise.rate": 0.4}
# C2F2 on CIFAR-10, with the options of SPR that CIFAR-10 has. An epoch of ResNet-18 that is an
# eighth as wide would take about three times as long.
SMALL = (
    "configs/mnist_sym.py",
    {
        "epochs": 6,
        "noise.rate": 0.4,
        "dataset.name": "cifar10",
        "method.cutmix": 0.5,
        "method.penalty_growth": 1.02,
    },
)


FAST = study.FAST_CONFIG, study.FAST_FIELDS | {"noise.rate": 0.4}
# Rows of the fast table beside the paper's: SPR's noise model in place of its selection, and the
# correct labels in place of any.
LIKELIHOOD = "CE + SPR by likelihood"
BOUND_ALONE = "CE + the true clean set"
BOUND = "CE + the true clean set + lq + CutMix"
# Its training on vectors has no penalty of its own.
ON_FEATURES = study.FEATURES_CONFIG, {"noise.rate": 0.4, "method.penalty_weight": 1.2}


def cells(options: Namespace) -> study.Cells:
    """(preset, row) -> runs."""
    file, fields = SMALL if options.small else FAST if study.is_fast(options) else FULL
    if study.on_features(options):
        file, fields = ON_FEATURES
    few = options.small or study.is_fast(options)
    found = {}
    for preset in ("paper", "noise_model"):
        for row in paper_results.TABLE3:
            if few and preset == "paper" and "SPR" not in row:
                continue  # without a selection the presets hardly differ
            changed = fields | {"preset": preset} | left_out(row)
            run = Run(file, "spr", tuple(changed.items()))
            found[preset, row] = study.repeat(run, options)
    if study.is_fast(options):
        ours = fields | {"preset": "noise_model"}
        alone = ours | LEFT_OUT["lq"] | LEFT_OUT["CutMix"]
        for row, method, changed in (
            (LIKELIHOOD, "spr", alone | {"method.weights": "likelihood"}),
            (BOUND_ALONE, "oracle", alone),
            (BOUND, "oracle", ours),
        ):
            run = Run(file, method, tuple(changed.items()))
            found["noise_model", row] = study.repeat(run, options)
    return found


def left_out(row: str) -> dict:
    """The overrides for all parts that a row does not name."""
    parts = row.split(" + ")
    return {
        field: value
        for part, overrides in LEFT_OUT.items()
        if part not in parts
        for field, value in overrides.items()
    }


def render(found, numbers) -> str:
    """A row for each choice of parts; the paper's numbers, if there are any, next to ours."""
    lines = []
    for (preset, row), cell in found.items():
        theirs = [numbers[preset, row]] if numbers else []
        lines.append([row, preset, *theirs, *(study.shown(cell, each) for each in MEASURES)])
    return table(["", "preset", *["paper"] * bool(numbers), *MEASURES], lines)


def remarks(options: Namespace) -> str:
    """The facts that a reader needs to judge the numbers."""
    rows = (
        f"In per cent; {study.seeds_of(options)}. CE is cross-entropy on all labels; without SPR "
        "CutMix takes every label as given (the released code predicts a random half of them: "
        "`method.select.name=random`), and the label precision is the fraction of correct labels."
    )
    if options.small:
        return (
            f"{rows} This is C2F2 instead of ResNet-18, for {SMALL[1]['epochs']} epochs instead of "
            "180, on all of CIFAR-10: it orders the parts, and its numbers cannot be compared "
            "with the paper's."
        )
    if study.is_fast(options):
        return (
            f"{rows} This is {study.FAST} (widths {study.FAST_FIELDS['backbone.widths']}), instead "
            "of ResNet-18 and 180 epochs: its numbers cannot be compared with the paper's. The "
            "last two rows learn from exactly the correct labels; by likelihood, all labels are "
            "learned from, through the transitions between classes that SPR's noise model finds."
        )
    if study.on_features(options):
        return (
            f"{rows} This is a network of one hidden layer on {study.FEATURES}, with mixup in "
            "place of CutMix: its numbers cannot be compared with the paper's, whose networks "
            "learn from the images. The presets differ in more than the selection: noise_model "
            "weighs examples by their probability to be correct and judges them by the features "
            "themselves, paper keeps half of each class by what the hidden layer says."
        )
    return f"{rows} The paper does not say which epoch its numbers belong to."


def main(arguments: list[str] | None = None) -> int:
    options = study.parse(study.arguments(__doc__, NAME, on_features=True, fast=True), arguments)
    found = study.conduct(cells, options)
    is_papers = not (options.small or options.features or options.fast)
    numbers = {key: paper_results.TABLE3[key[1]] for key in found} if is_papers else {}
    title = "Table 3: ablation, CIFAR-10 with symmetric noise 0.4"
    title += ", frozen features" * options.features + ", fast network" * options.fast
    rows = study.csv_rows(["preset", "parts"], MEASURES, found, numbers, NAME)
    return study.report(options, found, title, [remarks(options), render(found, numbers)], rows)


if __name__ == "__main__":
    sys.exit(main())
