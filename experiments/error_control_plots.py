"""The plots of error_control: estimated against true rates, realised against asked levels."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from experiments.error_control_summary import RULE_TITLES, claims_at, realised
from experiments.harness.plot import new_figure, save_figure, style
from experiments.label_sets import Row

KINDS = ("symmetric", "asymmetric", "human", "none", "unknown")  # of noise
PANELS = {
    "Wrong labels among the kept": ("keep_cleanest", "knockoffs", "released"),
    "Correct labels among the flagged": ("flag_surest",),
}
FLOOR = 2e-4  # where a fraction of zero is drawn
ASIDE = 1.075  # factor between rules at the same level


def panels_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """A panel for each file with redrawn labels, and one for all others."""
    redrawn = {row["run"]["file"] for row in rows if row["run"]["labels"] != "own"}
    panels: dict[str, list[Row]] = {}
    for row in rows:
        file = row["run"]["file"]
        panels.setdefault(file if file in redrawn else "other files, own labels", []).append(row)
    return panels


def side_by_side(values: Iterable[float], step: float = 0.009) -> list[float]:
    """The values, moved apart where they nearly coincide."""
    values = list(values)
    near = [[j for j, other in enumerate(values) if abs(other - value) < step] for value in values]
    places = [group.index(i) - (len(group) - 1) / 2 for i, group in enumerate(near)]
    return [value + step * place for value, place in zip(values, places, strict=True)]


def plot_rates(rows: Sequence[Row], path: Path) -> None:
    """Draw every run as a point with its interval."""
    groups = panels_of(rows)
    figure, panels = new_figure(len(groups), height=4.6)
    for panel, (title, group) in zip(panels, groups.items(), strict=True):
        panel.plot([0, 1], [0, 1], color="0.6", linewidth=1, zorder=0, label="estimated = true")
        for number, kind in enumerate(KINDS):
            if mine := [row for row in group if row["run"]["kind"] == kind]:
                low, rate, high = ([row[of][0] for row in mine] for of in ("low", "rate", "high"))
                panel.errorbar(
                    side_by_side(row["true"][0] for row in mine),
                    rate,
                    [np.subtract(rate, low), np.subtract(high, rate)],
                    **style(number),
                    **{"linestyle": "none", "markersize": 5, "alpha": 0.75},
                    **{"capsize": 2, "elinewidth": 1, "label": kind},
                )
        panel.set(title=title, xlabel="true fraction of wrong labels", xlim=(-0.03, 0.92))
        panel.set(ylim=(-0.03, 1.0), aspect="equal")
    panels[0].set_ylabel("estimated fraction, with its interval")
    save_figure(figure, path)


def plot_levels(rows: Sequence[Row], path: Path) -> None:
    """Draw every run that claims a level as a faint point, and join the means."""
    figure, panels = new_figure(len(PANELS), height=4.6)
    for panel, (title, rules) in zip(panels, PANELS.items(), strict=True):
        levels = list(claims_at(rows, rules[0]))
        limits = np.array([levels[0] / 1.4, levels[-1] * 1.4])
        panel.plot(limits, limits, color="0.4", linewidth=1, zorder=0, label="realised = asked")
        panel.fill_between(limits, limits, 1.3, color="0.93", zorder=-1, label="level not kept")
        for number, rule in enumerate(rules):
            shift = ASIDE ** (number - (len(rules) - 1) / 2)
            draw_rule(panel, claims_at(rows, rule), shift, RULE_TITLES[rule], style(number))
        panel.set(xscale="log", yscale="log", title=title, xlabel="asked fraction of mistakes")
        panel.set(xlim=limits, ylim=(FLOOR * 0.8, 1.3))
        panel.set_xticks(levels, [f"{level:g}" for level in levels])
        panel.minorticks_off()
        ticks = (FLOOR, 0.001, 0.01, 0.1, 1)
        panel.set_yticks(ticks, ["0", *(f"{tick:g}" for tick in ticks[1:])])
    panels[0].set_ylabel("realised fraction (small: single runs; large: means)")
    save_figure(figure, path)


def draw_rule(panel, claims: dict[float, list[Row]], shift: float, title: str, look: dict) -> None:
    shares = {asked * shift: list(map(realised, some)) for asked, some in claims.items() if some}
    points = [(x, max(share, FLOOR)) for x, found in shares.items() for share in found]
    means = [(x, np.mean(found)) for x, found in shares.items()]
    if points:
        faint = {"linestyle": "none", "markersize": 4, "markeredgewidth": 0, "alpha": 0.25}
        panel.plot(*zip(*points, strict=True), **look, **faint)
        large = {"markersize": 8, "markeredgecolor": "white", "label": title.split(", ", 1)[1]}
        panel.plot(*zip(*means, strict=True), **look, **large)


PLOTS = {"error_control_rate.png": plot_rates, "error_control_levels.png": plot_levels}
