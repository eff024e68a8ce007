"""What error_control measured, in tables and sentences; every number comes from its rows."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from experiments.label_sets import Row
from experiments.markdown import table

SURE_AUROC = 0.95  # of the entry ranking, from which on an error of the rate is bounded
MOST_ERROR = {"symmetric": 0.03, "asymmetric": 0.05, "human": 0.05}
LEAST_COVERED, LEAST_KEPT = 0.85, 0.9
F1_GOALS = {"mnist": (0.968, 0.975), "cifar10": (0.764, 0.816)}  # cleanlab's filter; the aim
OURS = ("keep_cleanest", "flag_surest")  # the rules of the noise model
RULES = {  # name of a rule -> in tables and plots
    "keep_cleanest": "kept, noise model",
    "knockoffs": "kept, knockoffs",
    "released": "kept, knockoffs, released rule",
    "flag_surest": "flagged, noise model",
}


# Reading the rows.


def error(row: Row) -> float:
    return row["rate"][0] - row["true"][0]


def covers(row: Row) -> list[bool]:
    """Whether an interval holds the true share: that of all, then of each class."""
    bounds = zip(row["low"], row["true"], row["high"], strict=True)
    return [low <= true <= high for low, true, high in bounds]


def realised(choice: Row) -> float:
    """Share of mistakes among all that were taken."""
    return sum(choice["mistakes"]) / max(sum(choice["taken"]), 1)


def keeps(choice: Row) -> bool:
    return realised(choice) <= choice["asked"]


def class_keeps(choice: Row) -> list[bool]:
    """Of each class that claims the level, whether its own share of mistakes is within it."""
    parts = zip(choice["claims"], choice["taken"], choice["mistakes"], strict=True)
    return [wrong <= choice["asked"] * taken for claims, taken, wrong in parts if claims]


def claims_at(rows: Sequence[Row], rule: str) -> dict[float, list[Row]]:
    """Level -> what was taken by the runs in which any class claims to keep it."""
    found: dict[float, list[Row]] = {}
    for row in rows:
        for choice in row["levels"]:
            if choice["rule"] == rule:
                claims = found.setdefault(choice["asked"], [])
                if any(choice["claims"]):
                    claims.append(choice | {"share": sum(choice["taken"]) / row["examples"]})
    return dict(sorted(found.items()))


def by_setting(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """(features, labels) -> runs, which differ in their seed."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["run"]["file"], row["run"]["labels"]), []).append(row)
    return groups


def name_of(row: Row) -> str:
    run = row["run"]
    return f"{run['file']}, {run['labels']}" + (f", seed {run['seed']}" if run["seed"] else "")


def mean(values: Iterable[float | None], form: str = ".3f") -> str:
    known = [value for value in values if value is not None]
    return format(sum(known) / len(known), form) if known else ""


def ratio(passed: Iterable[bool]) -> str:
    passed = list(passed)
    return f"{sum(passed)} of {len(passed)} ({mean(passed, '.1%')})" if passed else "no runs"


# The summary.


class Line(NamedTuple):
    what: str
    goal: str = ""  # nothing was asked for if empty
    measured: str = "no runs"
    is_met: bool | None = None

    def cells(self) -> list[str]:
        met = {True: "yes", False: "**no**", None: "not measured" if self.goal else ""}
        return [self.what, self.goal, self.measured, met[self.is_met]]


def rate_line(what: str, rows: Sequence[Row], most: float, *, asked: bool = True) -> Line:
    goal = f"error at most {most}" if asked else ""
    if not rows:
        return Line(what, goal)
    within = [abs(error(row)) <= most for row in rows]
    worst = max(rows, key=lambda row: abs(error(row)))
    measured = f"{ratio(within)} within {most}; largest {error(worst):+.3f} ({name_of(worst)})"
    return Line(what, goal, measured, all(within) if asked else None)


def coverage_line(what: str, covered: Sequence[bool], *, asked: bool = True) -> Line:
    goal = f"at least {LEAST_COVERED:.0%}" if asked else ""
    is_met = bool(np.mean(covered) >= LEAST_COVERED) if asked and covered else None
    return Line(what, goal, ratio(covered), is_met)


def interval_line(what: str, rows: Sequence[Row]) -> Line:
    widths = (row["high"][0] - row["low"][0] for row in rows)
    covered = ratio(covers(row)[0] for row in rows)
    return Line(what, measured=f"{covered}; mean width {mean(widths)}" if rows else covered)


def level_line(what: str, rows: Sequence[Row], rule: str, *, asked: bool = True) -> Line:
    """Met if every level is kept often enough."""
    goal = f"at least {LEAST_KEPT:.0%} at every level" if asked else ""
    claims_of = claims_at(rows, rule).items()
    kept = {level: list(map(keeps, claims)) for level, claims in claims_of if claims}
    if not kept:
        return Line(what, goal, "no claims")
    worst = min(kept, key=lambda level: np.mean(kept[level]))
    measured = f"{ratio(sum(kept.values(), []))}; least at {worst:g}: {ratio(kept[worst])}"
    return Line(what, goal, measured, bool(np.mean(kept[worst]) >= LEAST_KEPT) if asked else None)


def setting_line(what: str, rows: Sequence[Row], rule: str) -> Line:
    """A setting that fails fails with every seed; the share of runs does not show this."""
    groups = {name: sum(claims_at(g, rule).values(), []) for name, g in by_setting(rows).items()}
    kept = {name: all(map(keeps, claims)) for name, claims in groups.items() if claims}
    broken = "; ".join(", ".join(name) for name, is_kept in kept.items() if not is_kept)
    return Line(what, measured=ratio(kept.values()) + (f"; not: {broken}" if broken else ""))


def f1_line(rows: Sequence[Row], data: str) -> Line:
    least, aim = F1_GOALS[data]
    file = f"{data}_sym40"
    what, goal = f"F1 of the default flags, {file}", f"at least {least} (aim {aim})"

    def found(labels):
        return [row["f1"]["default"] for row in by_setting(rows).get((file, labels), [])]

    own, drawn = found("own"), found("symmetric 0.4")
    if not own:
        return Line(what, goal)
    measured = f"{own[0]:.3f}; aim {'reached' if own[0] >= aim else 'missed'}"
    if drawn:
        measured += f"; redrawn symmetric 0.4: {min(drawn):.3f} to {max(drawn):.3f}"
    return Line(what, goal, measured, own[0] >= least)


def summary_lines(rows: Sequence[Row]) -> list[Line]:
    """First what must be reached, then what was not asked for but should be known."""
    ranked = [row for row in rows if row["auroc"]["entry"] is not None]  # some labels are wrong
    sure = [row for row in ranked if row["auroc"]["entry"] >= SURE_AUROC]
    unsure = [row for row in ranked if row["auroc"]["entry"] < SURE_AUROC]
    above, below = f"AUROC >= {SURE_AUROC}", f"AUROC < {SURE_AUROC}"
    classes = [covered for row in rows for covered in covers(row)[1:]]

    def of_kind(rows, kind):
        return [row for row in rows if row["run"]["kind"] == kind]

    return [
        *(
            rate_line(f"Rate, {kind}, {above}", of_kind(sure, kind), most)
            for kind, most in MOST_ERROR.items()
        ),
        coverage_line("Interval of the rate covers, all runs", [covers(row)[0] for row in rows]),
        *(level_line(f"Level kept, of runs that claim it: `{r}`", rows, r) for r in OURS),
        *(f1_line(rows, data) for data in F1_GOALS),
        *(
            rate_line(f"Rate, {kind}, {below}", of_kind(unsure, kind), most, asked=False)
            for kind, most in MOST_ERROR.items()
        ),
        rate_line("Rate, no wrong labels", of_kind(rows, "none"), 0.03, asked=False),
        interval_line(f"Interval covers, {above}", sure),
        interval_line(f"Interval covers, {below}", unsure),
        coverage_line("Intervals of single classes cover", classes, asked=False),
        *(setting_line(f"Settings with every level kept: `{r}`", rows, r) for r in OURS),
        *(level_line(f"Level kept, {above}: `{r}`", sure, r, asked=False) for r in OURS),
        level_line("Level kept: knockoffs", rows, "knockoffs", asked=False),
        level_line("Level kept: knockoffs, released rule", rows, "released", asked=False),
    ]


# Tables.


def rate_table(rows: Sequence[Row]) -> str:
    head = ["features", "labels", "runs", "wrong", "estimated", "largest error", "interval's width"]
    head += ["covered", "worst class error", "AUROC entry", "AUROC `wrong`", "expected AUROC"]
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
    head += ["largest realised", "mean share taken", "classes that claim", "of them keep it"]
    num_classes = sum(len(row["true"]) - 1 for row in rows)
    lines = []
    for rule, title in RULES.items():
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
                lines.append([*setting, RULES[rule], *cells])
    head = ["features", "labels", "what", *(f"asked {level:g}" for level in levels)]
    return table(head, lines) if lines else "None."


def broken_cell(claims: Sequence[Row]) -> str:
    """How many of the runs that claim a level break it, and the largest share of mistakes."""
    broken = [choice for choice in claims if not keeps(choice)]
    if not broken:
        return f"0/{len(claims)}" if claims else ""
    worst = max(broken, key=realised)
    share = f"{realised(worst):.3f}, {sum(worst['mistakes'])} of {sum(worst['taken']):,}"
    return f"{len(broken)}/{len(claims)} ({share})"


def f1_table(rows: Sequence[Row]) -> str:
    head = ["features", "labels", "runs", "wrong", "default flags", "best threshold on `wrong`"]
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
    """The report; a pure function of the rows."""
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    sizes = ", ".join(f"{size:,}" for size in sorted({row["examples"] for row in rows}))
    seeds = len({row["run"]["seed"] for row in rows} - {0})
    minutes = sum(row["seconds"] for row in rows) / 60
    return f"""# Label noise: estimated rates, and levels that were promised

{head}
- Measured at: {commits}; {len(rows)} runs, {minutes:.0f} minutes

{table(["", "must reach", "measured", "met"], [line.cells() for line in summary_lines(rows)])}

A run is one set of labels on the features of one file ({sizes} examples; of larger files a random
choice, always the same). Labels: `own`, which the network was trained on; drawn anew on the same
features (seeds each: {seeds}); `none`, the true ones; CIFAR-10N (`aggre_label` to `worse_label`).
Networks have seen their own labels and no others. AUROC is of the ranking by entry, and needs the
truth; a user sees only the expected AUROC of the chances. Levels are claimed class by class; a
run claims one if any class does, and keeps it if the share of mistakes among all that was taken is
within it. Runs on one file share its features, and differ less than runs on other data would. The
constants of `noise_model.py` and `levels.py` were chosen on mnist_sym40, cifar10_sym40, CIFAR-10N
and the mnist_*_e* files, with other seeds: for own, true and human labels, this is no fresh test.

## Estimated and true rate

![Estimated against true share of wrong labels](error_control_rate.png)

In the plot, runs of nearly equal true shares stand side by side. In the table are means over the
seeds; the largest error is that of a single run, the worst class error that of a single class.
Intervals are meant to cover in 90 % of runs.

{rate_table(rows)}

Not covered:

{uncovered_table(rows)}

## Asked and realised level

![Realised against asked level](error_control_levels.png)

Kept: share of wrong labels among what is kept. Flagged: share of right labels among what is
flagged. Realised shares are of runs that claim the level, the share taken is of all runs (none
where nothing is claimed). Knockoffs have their default `Trial`, on the whole data; the released
rule lets the data choose a level up to the one asked for. Knockoffs are made to keep a level in
the mean over draws, the noise model in most of them: so for knockoffs look at the mean realised
share, too.

{level_table(rows)}

Settings in which the noise model claimed a level and did not keep it: how many of the claiming runs
broke it, and the largest realised share.

{broken_table(rows)}

## F1 of flagged labels

Default flags: chance of being wrong above 0.5. The best thresholds are chosen by one who knows the
truth. The numbers to reach are those of cleanlab's default filter at 40 % symmetric noise, from an
earlier measurement; it was not run here.

{f1_table(rows)}
"""
