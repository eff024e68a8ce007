"""Accuracy against the exponent q of the sparse penalty (a figure of the paper).

    python -m experiments.figure_sparse_norm --data_dir=DIR       # CIFAR-10, on an accelerator
    python -m experiments.figure_sparse_norm --small --seeds=3    # digits

The penalty is lambda sum_k p_k^q of the predicted probabilities p. At q = 1 it is constant, so that
the right end of the curve is SPR without it. The paper has a single peak, at q = 0.2.
"""

import argparse
import sys

from experiments import study
from experiments.figure_select_ratio import curve_rows, curve_table, draw_curves, peaks
from experiments.plot import new_figure, show_figure
from experiments.runs import Run
from experiments.study import Cells, Found

NAME = "figure_sparse_norm"
EXPONENTS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
PAPER_BEST = 0.2
NOISE = ("noise.rate", 0.4)
FULL = Run("configs/cifar10_sym.py", "spr", (NOISE, ("preset", "paper")))
SMALL = Run("configs/digits_sym.py", "spr", (NOISE, ("preset", "paper")))


def cells(options: argparse.Namespace) -> Cells:
    base = SMALL if options.small else FULL
    return {
        q: study.repeat(base._replace(overrides=(*base.overrides, ("method.q", q))), options)
        for q in EXPONENTS
    }


def draw(options: argparse.Namespace, found: dict[float, Found]) -> str:
    """The picture, as Markdown; none while there is nothing to draw."""
    if not any(cell.summaries for cell in found.values()):
        return ""
    figure, (panel,) = new_figure(1, width=5.5)
    draw_curves(panel, found)
    panel.axvline(PAPER_BEST, color="0.4", linestyle="--", label="best in the paper")
    panel.set(xlabel="exponent q of the sparse penalty", xscale="log")
    panel.set_xticks(EXPONENTS, list(map(str, EXPONENTS)))
    panel.minorticks_off()
    data = "digits, C2F2" if options.small else "CIFAR-10, ResNet-18"
    return show_figure(figure, options, f"{data}, symmetric noise 0.4; {study.seeds_of(options)}")


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0, 1 if a run failed, 75 if it was stopped and can go on."""
    options = study.arguments(__doc__, NAME).parse_args(arguments)
    options.name += "_small" * options.small
    found = study.conduct(cells(options), options)
    parts = [
        "# Accuracy against the exponent of the sparse penalty",
        study.head(found),
        draw(options, found),
        "\n".join(peaks(found)),
        f"In per cent; {study.seeds_of(options)}.",
        curve_table("q", found),
        study.commands(found, NAME),
    ]
    study.write_report(options, parts, curve_rows("q", found, NAME))
    return study.exit_status(study.results_of(found))


if __name__ == "__main__":
    sys.exit(main())
