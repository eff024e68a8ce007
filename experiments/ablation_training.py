"""What a selection is worth to the network: the digits, trained with one selection and another.

The section on accuracy of `ablation_selection`: every cell is SPR's training with another clean
set, so that the clean set is all that differs. Half of each class is kept wherever a share is.
"""

import argparse
from collections.abc import Hashable, Sequence

from experiments.markdown import table
from experiments.runs import Run
from experiments.study import Cells, Found, commands, measures, repeat, spread

CONFIG = "configs/digits_sym.py"  # 40 % symmetric noise
HALF = {"method.select": "class"}  # of each class, over the whole data
DEFECT = {"method.visit_order_defect": True}
PIECES = {size: {"method.per_class": size, "method.pca_dim": 10, **HALF} for size in (10, 50, 0)}
CELLS = {  # clean set -> method, fields
    "entry, pieces of 10 a class, 10 components": ("spr", PIECES[10]),
    "entry, pieces of 50 a class, 10 components": ("spr", PIECES[50]),
    "entry, whole data, 10 components": ("spr", PIECES[0]),
    "entry, whole data, 64 components": ("spr", HALF),
    "entry, pieces of 10, index defect": ("spr", PIECES[10] | DEFECT),
    "entry, whole data, 64 components, index defect": ("spr", HALF | DEFECT),
    "a random half": ("spr", {"method.select": "random"}),
    "least loss of the network": ("small_loss", {}),
    "noise model, no fixed share": ("spr", {}),
    "the right labels (oracle)": ("oracle", {}),
    "all labels": ("spr", {"method.select": "none"}),
}


def cells(options: argparse.Namespace) -> Cells:
    common = {"method.sparse_over": "clean"} | ({"epochs": 2} if options.small else {})
    return {
        title: repeat(Run(CONFIG, method, tuple((fields | common).items())), options)
        for title, (method, fields) in CELLS.items()
    }


def training_table(found: dict[Hashable, Found]) -> str:
    """Accuracies and the last selection, in per cent."""
    rows = []
    for title, cell in found.items():
        columns = [columns_of(summary) for summary in cell.summaries]
        means = map(spread, zip(*columns, strict=True)) if columns else ["-"] * len(HEAD)
        rows.append([title, len(columns), *means])
    return table(["clean set", "runs", *HEAD], rows)


HEAD = ("test accuracy, last epoch", "best on test", "labels kept", "of them right")


def columns_of(summary: dict) -> Sequence[float]:
    accuracies = list(measures(summary).values())[:2]
    last = summary["last"]
    return *accuracies, 100 * last["clean_share"], 100 * last["label_precision"]


def training_section(found: dict[Hashable, Found], name: str) -> str:
    text = f"""## Accuracy: the digits, trained

Scikit-learn's digits with 40 % symmetric noise, C2F2, `{CONFIG}`: steps, penalty and optimizer are
the same in every row, and the clean set differs. In per cent, mean and deviation over the runs. The
selection is the one after the last epoch.

{training_table(found)}"""
    epochs = [summary["epochs"] for cell in found.values() for summary in cell.summaries]
    is_whole = all(cell.summaries for cell in found.values()) and min(epochs) > 2
    return "\n\n".join([text, *[SEEN] * is_whole, commands(found, name)])


SEEN = """Where a ranking keeps half, nearly all of it is right on these easy data, and accuracies
are within about a point, too close for two seeds to order; small losses do as well as entries. The
index defect costs about ten points: its half is a random one, which at the end is better than all
labels, and at its best epoch no better."""
