"""The section on accuracy of `ablation_selection`: the digits, trained with different selections.

Every cell is SPR's training with another clean set, and only the clean set differs. Where a
fraction is kept, it is half of each class.
"""

import argparse
from collections.abc import Hashable, Sequence

from experiments.harness.runs import Run
from experiments.harness.selections import HALF_BY_PATH, half_by_path
from experiments.harness.study import Cells, Found, commands, measures, repeat, spread, table

CONFIG = "configs/digits_sym.py"  # 40 % symmetric noise
DEFECT = {"method.visit_order_defect": True}
PIECES = {size: half_by_path(per_class=size, pca_dim=10) for size in (10, 50, 0)}
CELLS = {  # clean set -> method, fields
    "entry, pieces of 10 per class, 10 components": ("spr", PIECES[10]),
    "entry, pieces of 50 per class, 10 components": ("spr", PIECES[50]),
    "entry, whole data, 10 components": ("spr", PIECES[0]),
    "entry, whole data, 64 components": ("spr", HALF_BY_PATH),
    "entry, pieces of 10, index defect": ("spr", PIECES[10] | DEFECT),
    "entry, whole data, 64 components, index defect": ("spr", HALF_BY_PATH | DEFECT),
    "a random half": ("spr", {"method.select.name": "random"}),
    "smallest loss of the network": ("small_loss", {}),
    "noise model, no fixed share": ("spr", {}),
    "the correct labels (oracle)": ("oracle", {}),
    "all labels": ("spr", {"method.select.name": "all"}),
}


def cells(options: argparse.Namespace) -> Cells:
    common = {"method.penalize": "clean"} | ({"epochs": 2} if options.small else {})
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


HEAD = ("test accuracy, last epoch", "best on test", "labels kept", "of them correct")


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
    return f"{text}\n\n{commands(found, name)}"
