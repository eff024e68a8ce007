"""Accuracy against the share of labels that is kept (a figure of the paper).

    python -m experiments.figure_select_ratio --data_dir=DIR       # CIFAR-10, on an accelerator
    python -m experiments.figure_select_ratio --small --seeds=3    # digits

CIFAR-10 with 80 % symmetric noise, supervised steps only, as the paper has it: too few are kept to
learn from, or too many are wrong. Beside the shares that are fixed, the one that the noise model
chooses (select=auto); it is marked, as is the share of labels that are right.
"""

import argparse
import sys
from collections.abc import Hashable, Mapping

from experiments import study
from experiments.markdown import table
from experiments.plot import draw_means, new_figure, show_figure, star, style
from experiments.runs import Run
from experiments.study import Cells, Found, mean_and_std, spread

NAME = "figure_select_ratio"
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
RIGHT = 0.2  # share of labels that are right
NOISE = ("noise.rate", 0.8)
# The paper lets the sparse penalty not grow at this rate.
FULL = Run("configs/cifar10_sym.py", "spr", (NOISE, ("method.cutmix", 0.0), ("method.growth", 1.0)))
SMALL = Run("configs/digits_sym.py", "spr", (NOISE, ("preset", "paper")))
# What differs is the rule alone. It reads more components, as in the preset exact.
AUTO = (("method.select", "auto"), ("method.pca_dim", 64))

ACCURACIES = ("test accuracy, last epoch", "test accuracy, best on test")
MEASURES = (*ACCURACIES, "label precision, last epoch")


def cells(options: argparse.Namespace) -> Cells:
    base = SMALL if options.small else FULL
    fields = {share: (("method.keep", share),) for share in SHARES} | {"auto": AUTO}
    return {
        name: study.repeat(base._replace(overrides=base.overrides + changed), options)
        for name, changed in fields.items()
    }


def curve_of(found: Mapping[float, Found], measure: str) -> dict[float, list[float]]:
    """Place -> values of the finished runs; without the places that have none."""
    curve = {place: cell.values(measure) for place, cell in found.items()}
    return {place: values for place, values in curve.items() if values}


def draw_curves(panel, found: Mapping[float, Found]) -> None:
    for line, name in enumerate(ACCURACIES):
        draw_means(panel, curve_of(found, name), label=name.split(", ")[1], **style(line))
    panel.set_ylabel("test accuracy (%)")


def curve_table(head: str, found: Mapping[Hashable, Found]) -> str:
    rows = [
        [place, *(study.shown(cell, name) for name in MEASURES)] for place, cell in found.items()
    ]
    return table([head, *MEASURES], rows)


def curve_rows(head: str, found: Mapping[Hashable, Found], name: str) -> list[list]:
    """For the CSV."""
    cells = {(place,): cell for place, cell in found.items()}
    return study.csv_rows([head], MEASURES, cells, {}, name)


def peaks(found: Mapping[float, Found]) -> list[str]:
    curves = {name: curve_of(found, name) for name in ACCURACIES}
    return [f"- {name}: {peak(curve)}." for name, curve in curves.items() if curve]


def peak(points: Mapping[float, list[float]]) -> str:
    """Where a curve is highest, and where it is not told apart from that."""
    means = {place: mean_and_std(values)[0] for place, values in points.items()}
    best = max(means, key=means.get)
    _, std = mean_and_std(points[best])
    near = [place for place in means if place != best and means[best] - means[place] <= (std or 0)]
    also = f"; not told apart from it: {', '.join(map(str, near))}" if near else ""
    return f"highest at {best} ({spread(points[best])} %{also})"


def kept_share(found: Found) -> float | None:
    """That is kept in the last epoch."""
    return mean_and_std([summary["last"]["clean_share"] for summary in found.summaries])[0]


def draw(options: argparse.Namespace, found: dict[Hashable, Found]) -> str:
    """The picture, as Markdown; none while there is nothing to draw."""
    if not any(cell.summaries for cell in found.values()):
        return ""
    figure, (panel,) = new_figure(1, width=5.5)
    draw_curves(panel, {share: found[share] for share in SHARES})
    panel.axvline(RIGHT, color="0.4", linestyle=":", label="share of right labels")
    share = kept_share(found["auto"])
    if share is not None:
        panel.axvline(share, color="0.4", linestyle="--", label="share that auto keeps")
        for line, name in enumerate(ACCURACIES):
            mean, _ = mean_and_std(found["auto"].values(name))
            label = "auto, in the colour of its epoch"
            panel.plot(share, mean, linestyle="none", label=label, **star(line))
    panel.set(xlabel="share of labels that is kept", xlim=(0.05, 0.95), xticks=SHARES)
    data = "digits, C2F2" if options.small else "CIFAR-10, ResNet-18"
    return show_figure(figure, options, f"{data}, symmetric noise 0.8; {study.seeds_of(options)}")


def seen(found: dict[Hashable, Found]) -> str:
    lines = peaks({share: found[share] for share in SHARES})
    share = kept_share(found["auto"])
    if share is not None:
        told = ", ".join(f"{name} {study.shown(found['auto'], name)} %" for name in ACCURACIES)
        lines.append(f"- auto keeps {share:.3f}, where {RIGHT} are right: {told}.")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0, 1 if a run failed, 75 if it was stopped and can go on."""
    options = study.arguments(__doc__, NAME).parse_args(arguments)
    options.name += "_small" * options.small
    found = study.conduct(cells(options), options)
    parts = [
        "# Accuracy against the share of labels that is kept",
        study.head(found),
        draw(options, found),
        seen(found),
        f"In per cent; {study.seeds_of(options)}.",
        curve_table("kept", found),
        study.commands(found, NAME),
    ]
    study.write_report(options, parts, curve_rows("kept", found, NAME))
    return study.exit_status(study.results_of(found))


if __name__ == "__main__":
    sys.exit(main())
