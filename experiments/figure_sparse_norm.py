"""A figure of the paper: accuracy against the exponent q of the sparse penalty.

    python -m experiments.figure_sparse_norm --data_dir=DIR       # CIFAR-10, on an accelerator
    python -m experiments.figure_sparse_norm --small --seeds=3    # digits
    python -m experiments.figure_sparse_norm --features --data_dir=DIR    # cifar10.npz there

The penalty is lambda sum_k p_k^q of the predicted probabilities p. At q = 1 it is constant, so the
right end of the curve is SPR without a penalty. The paper has a single peak, at q = 0.2.
"""

import argparse
import sys

from experiments.figure_select_ratio import curve_parts, curve_rows, data_of, draw_curves, peaks
from experiments.harness import study
from experiments.harness.plot import new_figure, show_figure
from experiments.harness.runs import Run
from experiments.harness.study import Cells, Found

NAME = "figure_sparse_norm"
EXPONENTS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
PAPER_BEST = 0.2
NOISE = ("noise.rate", 0.4)
FULL = Run("configs/cifar10_sym.py", "spr", (NOISE, ("preset", "paper")))
SMALL = Run("configs/digits_sym.py", "spr", (NOISE, ("preset", "paper")))

ON_FEATURES = Run(study.FEATURES_CONFIG, "spr", (NOISE, ("preset", "paper")))


def cells(options: argparse.Namespace) -> Cells:
    base = ON_FEATURES if study.on_features(options) else SMALL if options.small else FULL
    return {
        q: study.repeat(
            base._replace(overrides=(*base.overrides, ("method.penalty_q", q))), options
        )
        for q in EXPONENTS
    }


def draw(options: argparse.Namespace, found: dict[float, Found]) -> str:
    """The picture, as Markdown; empty while there is nothing to draw."""
    if not any(cell.summaries for cell in found.values()):
        return ""
    figure, (panel,) = new_figure(1, width=5.5)
    draw_curves(panel, found)
    panel.axvline(PAPER_BEST, color="0.4", linestyle="--", label="best in the paper")
    panel.set(xlabel="exponent q of the sparse penalty", xscale="log")
    panel.set_xticks(EXPONENTS, list(map(str, EXPONENTS)))
    panel.minorticks_off()
    data = data_of(options)
    return show_figure(figure, options, f"{data}, symmetric noise 0.4; {study.seeds_of(options)}")


def main(arguments: list[str] | None = None) -> int:
    options = study.parse(study.arguments(__doc__, NAME, on_features=True), arguments)
    found = study.conduct(cells, options)
    parts = [draw(options, found), "\n".join(peaks(found)), *curve_parts("q", found, options)]
    title = "Accuracy against the exponent of the sparse penalty"
    return study.report(options, found, title, parts, curve_rows("q", found, NAME))


if __name__ == "__main__":
    sys.exit(main())
