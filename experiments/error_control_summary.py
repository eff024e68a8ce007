"""The summary of error_control: what its rows say about each goal; every number is computed."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from experiments.label_sets import Row

SURE_AUROC = 0.95  # of the entry ranking, above which the error of the rate is bounded
MOST_ERROR = {"symmetric": 0.03, "asymmetric": 0.05, "human": 0.05}
LEAST_COVERED, LEAST_KEPT = 0.85, 0.9
F1_GOALS = {"mnist": (0.968, 0.975), "cifar10": (0.764, 0.816)}  # cleanlab's filter, the target
OURS = ("keep_cleanest", "flag_surest")  # the rules of the noise model
RULE_TITLES = {  # name of a rule -> in tables and plots
    "keep_cleanest": "kept, noise model",
    "knockoffs": "kept, knockoffs",
    "released": "kept, knockoffs, released rule",
    "flag_surest": "flagged, noise model",
}


def error(row: Row) -> float:
    return row["rate"][0] - row["true"][0]


def covers(row: Row) -> list[bool]:
    """True where an interval covers the true rate: that of all examples, then of each class."""
    bounds = zip(row["low"], row["true"], row["high"], strict=True)
    return [low <= true <= high for low, true, high in bounds]


def realised(choice: Row) -> float:
    """Fraction of mistakes among the examples that were taken."""
    return sum(choice["mistakes"]) / max(sum(choice["taken"]), 1)


def keeps(choice: Row) -> bool:
    return realised(choice) <= choice["asked"]


def class_keeps(choice: Row) -> list[bool]:
    """True for each class that claims the level and whose fraction of mistakes is within it."""
    parts = zip(choice["claims"], choice["taken"], choice["mistakes"], strict=True)
    return [wrong <= choice["asked"] * taken for claims, taken, wrong in parts if claims]


def claims_at(rows: Sequence[Row], rule: str) -> dict[float, list[Row]]:
    """Level -> the choices of the runs in which any class claims to keep it."""
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


class Line(NamedTuple):
    what: str
    goal: str = ""  # empty: no goal was set
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
    """Count settings, not runs: a setting that fails tends to fail with every seed."""
    groups = {name: sum(claims_at(g, rule).values(), []) for name, g in by_setting(rows).items()}
    kept = {name: all(map(keeps, claims)) for name, claims in groups.items() if claims}
    broken = "; ".join(", ".join(name) for name, is_kept in kept.items() if not is_kept)
    return Line(what, measured=ratio(kept.values()) + (f"; not: {broken}" if broken else ""))


def f1_line(rows: Sequence[Row], data: str) -> Line:
    least, aim = F1_GOALS[data]
    file = f"{data}_sym40"
    what, goal = f"F1 of the default flags, {file}", f"at least {least} (target {aim})"

    def found(labels):
        return [row["f1"]["default"] for row in by_setting(rows).get((file, labels), [])]

    own, drawn = found("own"), found("symmetric 0.4")
    if not own:
        return Line(what, goal)
    measured = f"{own[0]:.3f}; target {'reached' if own[0] >= aim else 'missed'}"
    if drawn:
        measured += f"; redrawn symmetric 0.4: {min(drawn):.3f} to {max(drawn):.3f}"
    return Line(what, goal, measured, own[0] >= least)


def summary_lines(rows: Sequence[Row]) -> list[Line]:
    """First the goals, then what has no goal but should be known."""
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
