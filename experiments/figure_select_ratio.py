"""A figure of the paper: accuracy against the fraction of labels that is kept.

    python -m experiments.figure_select_ratio --data_dir=DIR       # CIFAR-10, on an accelerator
    python -m experiments.figure_select_ratio --small --seeds=3    # digits
    python -m experiments.figure_select_ratio --features --data_dir=DIR    # cifar10.npz there

CIFAR-10 with 80 % symmetric noise, supervised steps only, as in the paper: too few labels are kept
to learn from, or too many of them are wrong. Next to the fixed fractions stands the one that the
noise model chooses (auto); it is marked, as is the fraction of labels that are correct.
"""

import argparse
import sys
from collections.abc import Hashable, Mapping

from experiments.harness import study
from experiments.harness.plot import draw_means, new_figure, show_figure, star, style
from experiments.harness.runs import Run
from experiments.harness.study import Cells, Found, mean_and_std, spread, table

NAME = "figure_select_ratio"
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
RIGHT = 0.2  # fraction of labels that are correct
NOISE = ("noise.rate", 0.8)
FULL = Run("configs/cifar10_sym.py", "spr", (NOISE, ("method.cutmix", 0.0)))
SMALL = Run("configs/digits_sym.py", "spr", (NOISE, ("preset", "paper")))
# A selection by what the hidden layer says, after each epoch; supervised steps only.
ON_FEATURES = Run(
    study.FEATURES_CONFIG, "spr", (NOISE, ("preset", "paper"), ("method.cutmix", 0.0))
)
# Only the rule differs, and with it the number of components.
AUTO = (("method.select.name", "noise_model"),)

ACCURACIES = ("test accuracy, last epoch", "test accuracy, best on test")
MEASURES = (*ACCURACIES, "label precision, last epoch")


def cells(options: argparse.Namespace) -> Cells:
    base = ON_FEATURES if study.on_features(options) else SMALL if options.small else FULL
    fields = {share: (("method.select.keep", share),) for share in SHARES} | {"auto": AUTO}
    return {
        name: study.repeat(base._replace(overrides=base.overrides + changed), options)
        for name, changed in fields.items()
    }


def curve_of(found: Mapping[float, Found], measure: str) -> dict[float, list[float]]:
    """x -> values of the finished runs; an x without values is left out."""
    curve = {x: cell.values(measure) for x, cell in found.items()}
    return {x: values for x, values in curve.items() if values}


def draw_curves(panel, found: Mapping[float, Found]) -> None:
    for line, name in enumerate(ACCURACIES):
        draw_means(panel, curve_of(found, name), label=name.split(", ")[1], **style(line))
    panel.set_ylabel("test accuracy (%)")


def curve_parts(
    head: str, found: Mapping[Hashable, Found], options: argparse.Namespace
) -> list[str]:
    """The numbers of a curve: what they are, and their table."""
    rows = [[x, *(study.shown(cell, name) for name in MEASURES)] for x, cell in found.items()]
    return [f"In per cent; {study.seeds_of(options)}.", table([head, *MEASURES], rows)]


def curve_rows(head: str, found: Mapping[Hashable, Found], name: str) -> list[list]:
    """The lines of the CSV."""
    cells = {(x,): cell for x, cell in found.items()}
    return study.csv_rows([head], MEASURES, cells, {}, name)


def peaks(found: Mapping[float, Found]) -> list[str]:
    curves = {name: curve_of(found, name) for name in ACCURACIES}
    return [f"- {name}: {peak(curve)}." for name, curve in curves.items() if curve]


def peak(points: Mapping[float, list[float]]) -> str:
    """The highest point of a curve, and the points within a standard deviation of it."""
    means = {x: mean_and_std(values)[0] for x, values in points.items()}
    best = max(means, key=means.get)
    _, std = mean_and_std(points[best])
    near = [x for x in means if x != best and means[best] - means[x] <= (std or 0)]
    also = f"; not distinguishable from it: {', '.join(map(str, near))}" if near else ""
    return f"highest at {best} ({spread(points[best])} %{also})"


def data_of(options: argparse.Namespace) -> str:
    """Data and network, in words."""
    if study.on_features(options):
        return f"{study.FEATURES}, one hidden layer"
    return "digits, C2F2" if options.small else "CIFAR-10, ResNet-18"


def kept_share(found: Found) -> float | None:
    """Fraction of the labels that is kept in the last epoch; None while no run is finished."""
    return mean_and_std([summary["last"]["clean_share"] for summary in found.summaries])[0]


def draw(options: argparse.Namespace, found: dict[Hashable, Found]) -> str:
    """The picture, as Markdown; empty while there is nothing to draw."""
    if not any(cell.summaries for cell in found.values()):
        return ""
    figure, (panel,) = new_figure(1, width=5.5)
    draw_curves(panel, {share: found[share] for share in SHARES})
    panel.axvline(RIGHT, color="0.4", linestyle=":", label="fraction of correct labels")
    share = kept_share(found["auto"])
    if share is not None:
        panel.axvline(share, color="0.4", linestyle="--", label="fraction that auto keeps")
        for line, name in enumerate(ACCURACIES):
            mean, _ = mean_and_std(found["auto"].values(name))
            label = "auto, in the colour of its epoch"
            panel.plot(share, mean, linestyle="none", label=label, **star(line))
    panel.set(xlabel="fraction of labels that is kept", xlim=(0.05, 0.95), xticks=SHARES)
    data = data_of(options)
    return show_figure(figure, options, f"{data}, symmetric noise 0.8; {study.seeds_of(options)}")


def summary(found: dict[Hashable, Found]) -> str:
    """The peaks of both curves, and the result of the automatic choice."""
    lines = peaks({share: found[share] for share in SHARES})
    share = kept_share(found["auto"])
    if share is not None:
        reached = ", ".join(f"{name} {study.shown(found['auto'], name)} %" for name in ACCURACIES)
        lines.append(f"- auto keeps {share:.3f}, where {RIGHT} are correct: {reached}.")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    options = study.parse(study.arguments(__doc__, NAME, on_features=True), arguments)
    found = study.conduct(cells, options)
    parts = [draw(options, found), summary(found), *curve_parts("kept", found, options)]
    title = "Accuracy against the fraction of labels that is kept"
    return study.report(options, found, title, parts, curve_rows("kept", found, NAME))


if __name__ == "__main__":
    sys.exit(main())
