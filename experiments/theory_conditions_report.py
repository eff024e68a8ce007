"""The report of `theory_conditions`: tables and plots."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.ablation_selection_report import groups, matching
from experiments.harness.plot import new_figure, save_figure, style
from experiments.harness.study import number, table

Row = dict[str, Any]
SIMULATED = ("varied", "rate", "eta", "sigma", "size", "penalty", "asked", "draws")
SIMULATED += ("within", "exactly", "somewhere")
MEASURED = ("features", "piece", "pieces", "c_min", "eta", "mu", "sigma", "penalty", "asked")
MEASURED += ("c1", "c2", "c3", "separated", "base", "label_precision", "label_auroc")


def csv_rows(rows: Sequence[Row]) -> list[Sequence]:
    """Simulated and measured rows in one table; a cell without a value is empty."""
    columns = list(dict.fromkeys(MEASURED + SIMULATED))
    return [columns, *([_cell(row.get(name, "")) for name in columns] for row in rows)]


def _cell(value):
    return f"{value:.4g}" if isinstance(value, float) else value


def measured(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if "features" in row]


def simulated(rows: Sequence[Row], varied: str) -> list[Row]:
    return matching(rows, varied=varied)


def bound(value: float, digits: int = 2) -> str:
    return number(value, digits) if np.isfinite(value) else "none"


def measured_table(rows: Sequence[Row]) -> str:
    head = ["features", "piece", "C_min", "eta", "sigma", "lambda", "h", "C1", "C2", "C3"]
    head += ["separated", "correct labels", "correct among the kept", "AUROC"]
    lines = [
        [row["features"], row["piece"], *(number(row[key], 3) for key in ("c_min", "eta", "sigma"))]
        + [bound(row["penalty"]), bound(row["asked"])]
        + [f"{row[key]:.0%}" for key in ("c1", "c2", "c3", "separated")]
        + [number(row[key], 4) for key in ("base", "label_precision", "label_auroc")]
        for row in rows
    ]
    return table(head, lines)


def eta_table(rows: Sequence[Row]) -> str:
    head = ["wrong labels", "eta", "sigma", "h", "no correct label called wrong", "exactly"]
    lines = [
        [f"{row['rate']:.1%}", number(row["eta"], 3), row["sigma"], bound(row["asked"])]
        + [number(row.get(key), 3) for key in ("within", "exactly", "somewhere")]
        for row in rows
    ]
    return table([*head, "exactly, at some penalty"], lines)


# Plots.


def plot_simulation(rows: Sequence[Row], path: Path) -> None:
    """Draw recovery against eta, for labels; and against the shift, in units of C3's bound h."""
    figure, (against_eta, against_shift) = new_figure(2, width=5.2)
    mine = simulated(rows, "eta")
    for place, ((sigma,), group) in enumerate(groups(mine, "sigma").items()):
        group = sorted(group, key=lambda row: row["eta"])
        look = style(place)
        for key, dashes, what in (
            ("somewhere", "-", "some penalty"),
            ("exactly", ":", "theorem's"),
        ):
            points = [(row["eta"], row[key]) for row in group if key in row]
            name = f"{what}, sigma {sigma:g}"
            against_eta.plot(*zip(*points, strict=True), **look, linestyle=dashes, label=name)
    against_eta.axvline(0, color="0.5", linewidth=1)
    against_eta.set(
        xlabel="eta (C2 holds above 0)", ylabel="fraction of draws with all signs correct"
    )
    against_eta.set(title="Labels: every shift is 1")
    mine = simulated(rows, "shift")
    for place, ((eta,), group) in enumerate(groups(mine, "eta").items()):
        look = style(place + 3)
        for key, dashes, what in (
            ("somewhere", "-", "some penalty"),
            ("exactly", ":", "theorem's"),
        ):
            points = [(row["size"] / row["asked"], row[key]) for row in group]
            name = f"{what}, eta {eta:.2f}"
            against_shift.plot(*zip(*points, strict=True), **look, linestyle=dashes, label=name)
    if mine:
        against_shift.axvline(1, color="0.5", linewidth=1)
        promised = mine[0]["certainty"]
        against_shift.axhline(promised, color="black", linewidth=1, linestyle="--")
        against_shift.annotate(
            f"promised from here on: {promised:.3f}",
            *((1, promised), (1.02, 0.5)),
            **{"rotation": 90, "ha": "left", "va": "center", "fontsize": 9},
        )
    against_shift.set(xlabel="shift / h, the bound of C3", title="Shifts of other sizes")
    save_figure(figure, path, "Recovery of the noisy set under the theorem's own model")


def plot_conditions(rows: Sequence[Row], path: Path) -> None:
    """Draw eta, h and AUROC of each file, a line per split."""
    mine = measured(rows)
    figure, panels = new_figure(3, width=4.6, height=5)
    files = [file for (file,) in groups(mine, "features")]
    titles = {
        "eta": "eta (C2: above 0)",
        "asked": "h (C3: below 1; none where C2 fails)",
        "label_auroc": "AUROC of the entry ranking",
    }
    for panel, (key, title) in zip(panels, titles.items(), strict=True):
        for place, ((piece,), group) in enumerate(groups(mine, "piece").items()):
            points = [(files.index(row["features"]), row[key]) for row in group]
            points = [(x, y) for x, y in points if np.isfinite(y)]
            look = style(place) | {"linestyle": "", "markersize": 8, "label": piece}
            panel.plot(*(zip(*points, strict=True) if points else ([], [])), **look)
        panel.set_xticks(range(len(files)), files, rotation=60, ha="right", fontsize=8)
        panel.set(title=title, xlim=(-0.5, len(files) - 0.5))
    for panel, limit in zip(panels, (0, 1), strict=False):
        panel.axhline(limit, color="0.3", linewidth=1)
    panels[1].set_yscale("log")
    save_figure(figure, path, "The conditions on the features of networks (medians over pieces)")


PLOTS: dict[str, Callable] = {
    "theory_conditions_simulation.png": plot_simulation,
    "theory_conditions_features.png": plot_conditions,
}


def render(rows: Sequence[Row], head: str) -> str:
    """The report, a pure function of the rows."""
    parts = [f"# The conditions of Theorem 1\n\n{head}", THEOREM, simulation_section(rows)]
    if measured(rows):
        parts.append(features_section(measured(rows)))
    return "\n\n".join(parts)


THEOREM = """For the element-wise penalty, with the design X~ = I - H of each column of the labels:

- C1: C_min, the smallest eigenvalue of X~_S' X~_S, is above 0.
- C2: eta = 1 - ||X~_{S^c}' X~_S (X~_S' X~_S)^-1||_inf is above 0.
- lambda is at least 2 sigma sqrt(mu) / eta sqrt(log(c n)).
- C3: every shift is above h, which is proportional to lambda. The shift of a wrong label is 1.

Then with a probability above 1 - 2 / (c n) no correct label is called wrong (C1, C2), and all wrong
ones are found (with C3). For features that determine the class and nothing else, with a fraction r
of every class mislabeled, C_min is 1 - r and eta is 1 - r / (1 - r): C2 says that most labels of
each class are correct."""


def simulation_section(rows: Sequence[Row]) -> str:
    draws = max(row["draws"] for row in simulated(rows, "eta"))
    return f"""## Under the theorem's own model

![Recovery against eta and against the shift](theory_conditions_simulation.png)

Five classes of 40 examples, features that nearly determine the class, Gaussian noise of deviation
sigma, {draws:.0f} draws each. Recovered means that the signs of all entries are correct. The
"theorem's" penalty is the smallest that it allows; "some penalty" is chosen with knowledge of the
truth.

{eta_table(simulated(rows, "eta"))}"""


def features_section(rows: Sequence[Row]) -> str:
    return f"""## On the features of networks

![eta, h and AUROC of every file](theory_conditions_features.png)

Ten principal components and the constant. C_min to h are medians over pieces, C1 to C3 fractions of
the pieces in which they hold (C3: with the smallest penalty, below a shift of 1). sigma is the
deviation of the true labels that the features leave unexplained. "Separated": some threshold on
SPR's entry penalties separates all wrong labels of the piece from all correct ones. The last
columns are over all examples, half of each piece kept.

{measured_table(rows)}"""
