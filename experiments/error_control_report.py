"""The report of error_control: its summary, tables and explanations, all from its rows."""

from collections.abc import Sequence

import numpy as np

from experiments.error_control_summary import (
    OURS,
    RULE_TITLES,
    by_setting,
    claims_at,
    class_keeps,
    covers,
    keeps,
    mean,
    name_of,
    realised,
    summary_lines,
)
from experiments.harness.study import table
from experiments.label_sets import Row


def rate_table(rows: Sequence[Row]) -> str:
    head = ["features", "labels", "runs", "wrong", "estimated", "largest error", "interval's width"]
    head += [
        "covered",
        "worst class error",
        "AUROC entry penalty",
        "AUROC error probability",
        "expected AUROC",
    ]
    lines = []
    for setting, group in by_setting(rows).items():
        errors = [np.subtract(row["rate"], row["true"]) for row in group]  # of all, then by class
        lines.append(
            [
                *setting,
                len(group),
                mean(row["true"][0] for row in group),
                mean(row["rate"][0] for row in group),
                format(max((found[0] for found in errors), key=abs), "+.3f"),
                mean(row["high"][0] - row["low"][0] for row in group),
                f"{sum(covers(row)[0] for row in group)}/{len(group)}",
                format(max(np.abs(found[1:]).max() for found in errors), ".3f"),
                *(mean(row["auroc"][of] for row in group) for of in ("entry", "wrong", "expected")),
            ]
        )
    return table(head, lines)


def uncovered_table(rows: Sequence[Row]) -> str:
    lines = [
        [name_of(row), f"{row['true'][0]:.3f}", f"{row['rate'][0]:.3f}"]
        + [f"{row['low'][0]:.3f} to {row['high'][0]:.3f}"]
        for row in rows
        if not covers(row)[0]
    ]
    return table(["run", "wrong", "estimated", "interval"], lines) if lines else "None."


def level_table(rows: Sequence[Row]) -> str:
    head = ["what", "asked", "runs that claim", "of them keep it", "mean realised"]
    head += ["largest realised", "mean fraction taken", "classes that claim", "of them keep it"]
    num_classes = sum(len(row["true"]) - 1 for row in rows)
    lines = []
    for rule, title in RULE_TITLES.items():
        for asked, claims in claims_at(rows, rule).items():
            shares = list(map(realised, claims))
            classes = sum(map(class_keeps, claims), [])
            lines.append(
                [
                    title,
                    f"{asked:g}",
                    f"{len(claims)} of {len(rows)}",
                    mean(map(keeps, claims), ".1%"),
                    mean(shares, ".4f"),
                    f"{max(shares):.4f}" if shares else "",
                    format(sum(choice["share"] for choice in claims) / len(rows), ".3f"),
                    f"{len(classes) / num_classes:.0%}",
                    mean(classes, ".1%"),
                ]
            )
    return table(head, lines)


def broken_table(rows: Sequence[Row]) -> str:
    """Settings in which the noise model claimed a level that it did not keep."""
    levels, lines = claims_at(rows, OURS[0]), []
    for setting, group in by_setting(rows).items():
        for rule in OURS:
            claims = claims_at(group, rule)
            if not all(map(keeps, sum(claims.values(), []))):
                cells = (broken_cell(claims.get(level, [])) for level in levels)
                lines.append([*setting, RULE_TITLES[rule], *cells])
    head = ["features", "labels", "what", *(f"asked {level:g}" for level in levels)]
    return table(head, lines) if lines else "None."


def broken_cell(claims: Sequence[Row]) -> str:
    """The number of runs that claim a level and break it, and the largest fraction of mistakes."""
    broken = [choice for choice in claims if not keeps(choice)]
    if not broken:
        return f"0/{len(claims)}" if claims else ""
    worst = max(broken, key=realised)
    share = f"{realised(worst):.3f}, {sum(worst['mistakes'])} of {sum(worst['taken']):,}"
    return f"{len(broken)}/{len(claims)} ({share})"


def f1_table(rows: Sequence[Row]) -> str:
    head = [
        "features",
        "labels",
        "runs",
        "wrong",
        "default flags",
        "best threshold on the error probability",
    ]
    head += ["best threshold on the entry ranking", "half kept"]
    kinds = "default", "best_wrong", "best_entry", "half"
    lines = [
        [*setting, len(group), mean(row["true"][0] for row in group)]
        + [mean(row["f1"][kind] for row in group) for kind in kinds]
        for setting, group in by_setting(rows).items()
        if group[0]["f1"]["default"] is not None
    ]
    return table(head, lines)


def render(rows: Sequence[Row], head: str) -> str:
    """The report, a pure function of the rows."""
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    sizes = ", ".join(f"{size:,}" for size in sorted({row["examples"] for row in rows}))
    seeds = len({row["run"]["seed"] for row in rows} - {0})
    minutes = sum(row["seconds"] for row in rows) / 60
    return f"""# Label noise: estimated rates and promised levels

{head}
- Measured at: {commits}; {len(rows)} runs, {minutes:.0f} minutes

{table(["", "goal", "measured", "met"], [line.cells() for line in summary_lines(rows)])}

A run is one set of labels on the features of one file ({sizes} examples; a fixed random choice of
larger files). Labels: `own`, which the network was trained on; redrawn on the same features (seeds
each: {seeds}); `none`, the true ones; CIFAR-10N (`aggre_label` to `worse_label`). Networks have
seen their own labels and no others. AUROC is that of the ranking by entry penalty and needs the
truth; a user sees only the AUROC expected from the error probabilities. Levels are claimed class by
class; a run claims one if any class does, and keeps it if the fraction of mistakes among all
examples taken is within it. Runs on one file share its features, and differ less than runs on other
data would. The constants of `solver/label_noise.py` and `detection/error_control.py` were chosen on
mnist_sym40, cifar10_sym40, CIFAR-10N and the mnist_*_e* files, with other seeds: for own, true and
human labels, this is not an independent test.

## Estimated and true rate

![Estimated against true fraction of wrong labels](error_control_rate.png)

In the plot, runs of nearly equal true rates stand side by side. The table has means over the seeds;
the largest error is that of a single run, the worst class error that of a single class. Intervals
are meant to cover the true rate in 90 % of runs.

{rate_table(rows)}

Not covered:

{uncovered_table(rows)}

## Asked and realised level

![Realised against asked level](error_control_levels.png)

Kept: fraction of wrong labels among the kept. Flagged: fraction of correct labels among the
flagged. Realised fractions are over the runs that claim the level, the fraction taken is over all
runs (0 where nothing is claimed). Knockoffs have their default `Trial`, on the whole data; the
released rule lets the data choose a level up to the one asked for. Knockoffs are designed to keep a
level in the mean over draws, the noise model in most of them: so for knockoffs look at the mean
realised fraction, too.

{level_table(rows)}

Settings in which the noise model claimed a level and did not keep it: how many of the claiming runs
broke it, and the largest realised fraction.

{broken_table(rows)}

## F1 of flagged labels

Default flags: error probability above 0.5. The best thresholds are chosen with knowledge of the
truth. The goals are the results of cleanlab's default filter at 40 % symmetric noise, from an
earlier measurement; cleanlab was not run here.

{f1_table(rows)}
"""
