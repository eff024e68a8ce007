"""What each part of SPR+ adds, at symmetric noise of 0.4.

    python -m experiments.ablation_spr_plus --data_dir=DIR [--seeds 3]  # CIFAR-10, ResNet-18
    python -m experiments.ablation_spr_plus --small                     # digits
    python -m experiments.ablation_spr_plus --features --data_dir=DIR   # cifar10.npz of spr-encode
    python -m experiments.ablation_spr_plus --read                      # report what is finished

The first row is the method as its recipe has it, with a running average of the weights. Every other
row turns one part off or, where the recipe leaves it out, on. On two cores --small takes ten
minutes, --features about three minutes a run. An interrupted table resumes.
"""

import sys
from argparse import Namespace
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from experiments.harness import study
from experiments.harness.runs import Run, config_of
from experiments.harness.study import table
from experiments.table3_ablation import MEASURES

NAME = "ablation_spr_plus"
WHOLE = "SPR+"
REFERENCES = {"SPR": "spr", "CE": "ce"}  # rows of other methods


class Part(NamedTuple):
    """One option, and what it is with and without the part."""

    field: str
    on: Any  # where the recipe leaves it out
    off: Any


PARTS = {
    "selection": Part("method.select.name", "noise_model", "all"),  # else every label is clean
    "balanced classes": Part("method.balance", True, False),
    "relabeling": Part("method.relabel_above", 0.9, 1.0),
    "MixUp": Part("method.mixup", 4.0, 0.0),
    "agreement of views": Part("method.consistency", 1.0, 0.0),
    "strong views": Part("method.strong", "rand_augment", "none"),
    "running average": Part("ema", 0.999, 0.0),
    "mirrored tests": Part("tta", "mirror", "none"),
}
# File, what all rows have, what SPR+ has beside its recipe. The average reaches back about one
# epoch of digits, and two or more of the others.
NOISE = {"noise.rate": 0.4, "preset": "noise_model"}
FULL = "configs/cifar10_sym.py", NOISE, {"ema": 0.999, "tta": "mirror"}
SMALL = "configs/digits_sym.py", NOISE, {"ema": 0.95}
ON_FEATURES = study.FEATURES_CONFIG, NOISE, {"ema": 0.999}
SENSELESS = ("mirrored tests",)  # for digits, which differ from their mirror images, and vectors


def cells(options: Namespace) -> study.Cells:
    """(row,) -> runs."""
    file, common, own = SMALL if options.small else FULL
    if study.on_features(options):
        file, common, own = ON_FEATURES
    whole = Run(file, "spr_plus", tuple((common | own).items()))
    found = {(WHOLE,): whole}
    config = config_of(whole)
    for name, part in PARTS.items():
        if file != FULL[0] and name in SENSELESS:
            continue
        has_part = value_of(config, part.field) != part.off
        changed = common | own | {part.field: part.off if has_part else part.on}
        row = f"without {name}" if has_part else f"with {name}"
        found[(row,)] = Run(file, "spr_plus", tuple(changed.items()))
    for row, method in REFERENCES.items():
        found[(row,)] = Run(file, method, tuple(common.items()))
    return {row: study.repeat(run, options) for row, run in found.items()}


def value_of(config: ConfigDict, field: str) -> Any:
    """The value of a field such as "method.mixup"."""
    for name in field.split("."):
        config = config[name]
    return config


def render(found: dict) -> str:
    """A row for each choice of parts, with its distance to the whole."""
    whole = found[(WHOLE,)].values(MEASURES[0])
    lines = []
    for (row,), cell in found.items():
        mean, other = (
            study.mean_and_std(values)[0] for values in (cell.values(MEASURES[0]), whole)
        )
        known = row != WHOLE and mean is not None and other is not None
        change = f"{mean - other:+.2f}" if known else "-"
        lines.append([row, change, *(study.shown(cell, measure) for measure in MEASURES)])
    return table(["", "change", *MEASURES], lines)


def remarks(options: Namespace) -> str:
    """The facts that a reader needs to judge the numbers."""
    text = (
        f"In per cent; {study.seeds_of(options)}; `change` is that of the accuracy after the last "
        "epoch. The first row is the method as its recipe in `configs/recipes.py` has it, with a "
        "running average of the weights. In every other row of it one part is off or, where the "
        "recipe leaves it out, on: one option. Without selection every label is called clean, so "
        "that confident relabeling alone corrects labels. SPR and CE are references of the same "
        "length, without an average. The label precision is that of the given labels that are "
        "called clean."
    )
    if options.small:
        return (
            f"{text} These are scikit-learn's digits, 1,438 training and 359 test images of 8x8 "
            "pixels without augmentation. A test image is 0.28 per cent: differences of one seed "
            "below one per cent say little, and none says what a part adds on photographs."
        )
    if study.on_features(options):
        return (
            f"{text} This is a network of one hidden layer on {study.FEATURES}; labels are judged "
            "by the features themselves."
        )
    return text


def main(arguments: list[str] | None = None) -> int:
    options = study.parse(study.arguments(__doc__, NAME, on_features=True), arguments)
    found = study.conduct(cells, options)
    data = "frozen features" if study.on_features(options) else "CIFAR-10"
    title = f"Parts of SPR+, {'digits' if options.small else data} with symmetric noise 0.4"
    rows = study.csv_rows(["row"], MEASURES, found, {}, NAME)
    return study.report(options, found, title, [remarks(options), render(found)], rows)


if __name__ == "__main__":
    sys.exit(main())
