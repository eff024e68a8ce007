"""How our detector stands against others: cells ahead, even and behind, and what was asked of it.

Rows are those of `detection_cells`, one for each cell and detector. Comparisons are between means
over seeds; a result counts for a group, which is a source, a kind of noise and a rate.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.detection_cells import Row
from experiments.harness.study import table
from experiments.noise_kinds import HUMAN
from experiments.rival_detectors import DETECTORS, OURS, RIVALS
from spr_jax.training.log import read_rows

MEASURES = ("f1", "auroc", "ap", "top", "flagged")
TIE = {"f1": 0.01, "ap": 0.01, "top": 0.01, "auroc": 0.005}
HARD = ("hard", "border")
BEFORE = "before"  # rows of an earlier version of our detector
PEOPLE = dict(zip(HUMAN.values(), (0.64, 0.76, 0.85), strict=True))  # rate -> F1 asked for


class Group(NamedTuple):
    source: str
    kind: str
    rate: float


class Standing(NamedTuple):
    ahead: int
    even: int
    behind: int

    @property
    def not_behind(self) -> float:
        return (self.ahead + self.even) / max(sum(self), 1)

    def __str__(self) -> str:
        return f"{self.ahead} / {self.even} / {self.behind}"


class Asked(NamedTuple):
    """Something that was asked for, and what was found; None where nothing was measured."""

    what: str
    bound: float
    found: float | None
    at_least: bool = True

    @property
    def is_met(self) -> bool | None:
        if self.found is None:
            return None
        return self.found >= self.bound if self.at_least else self.found <= self.bound


Means = dict[Group, dict[str, dict[str, float]]]  # group -> detector -> measure -> mean


def group_of(row: Row) -> Group:
    return Group(*(row["cell"][name] for name in Group._fields))


def means(rows: Iterable[Row]) -> Means:
    """The mean over seeds of every measure that a group and detector have."""
    collected = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        for name in MEASURES:
            if row.get(name) is not None:
                collected[group_of(row)][row["detector"]][name].append(row[name])
    return {
        group: {
            detector: {name: float(np.mean(values)) for name, values in found.items()}
            for detector, found in by_detector.items()
        }
        for group, by_detector in collected.items()
    }


def best_rival(found: Mapping[str, dict], measure: str, told: bool = True) -> float | None:
    """The highest value of the others, which only knowledge of the truth can choose."""
    values = [
        found[name][measure]
        for name in RIVALS
        if measure in found.get(name, {}) and (told or not DETECTORS[name].told)
    ]
    return max(values, default=None)


def pairs(of: Means, measure: str, rival: str = "", told: bool = True) -> list[tuple[float, float]]:
    """Ours and a rival's, or the best of the rivals, in every group that has both."""
    both = []
    for found in of.values():
        theirs = found.get(rival, {}).get(measure) if rival else best_rival(found, measure, told)
        if measure in found.get(OURS, {}) and theirs is not None:
            both.append((found[OURS][measure], theirs))
    return both


def standing(both: Sequence[tuple[float, float]], tie: float) -> Standing:
    """Cells in which the first is ahead, even (within `tie`) or behind."""
    ahead = sum(mine > theirs + tie + 1e-12 for mine, theirs in both)
    behind = sum(mine < theirs - tie - 1e-12 for mine, theirs in both)
    return Standing(ahead, len(both) - ahead - behind, behind)


def lowest_ratio(both: Sequence[tuple[float, float]]) -> float | None:
    """The lowest mine / theirs; where theirs is 0 nothing can be lost."""
    return min((mine / theirs for mine, theirs in both if theirs > 0), default=None)


def of_kinds(rows: Iterable[Row], kinds: Iterable[str]) -> list[Row]:
    kinds = tuple(kinds)
    return [row for row in rows if row["cell"]["kind"] in kinds]


def kinds_of(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row["cell"]["kind"] for row in rows))


def coverage(rows: Iterable[Row]) -> float | None:
    """Fraction of our intervals that cover the true fraction of wrong labels."""
    return _mean([row["covers"] for row in rows if row["detector"] == OURS and "covers" in row])


def levels_kept(rows: Iterable[Row], option: str = "") -> tuple[int, int]:
    """Levels kept, and levels claimed: by taking anything, where that is not trivial."""
    claims = [
        level["mistaken"] <= level["level"] + 1e-9
        for row in rows
        if row["detector"] == OURS
        for level in row.get("levels", ())
        if level["taken"] and not level["trivial"] and option in ("", level["option"])
    ]
    return sum(claims), len(claims)


def requirements(rows: Sequence[Row]) -> list[Asked]:
    """What issue 18 asks for, in its order, as far as these rows can tell."""
    of = means(rows)
    f1, fair, area = pairs(of, "f1"), pairs(of, "f1", told=False), pairs(of, "auroc")
    singly = [standing(both, TIE["f1"]) for name in RIVALS if (both := pairs(of, "f1", name))]
    hard = pairs(means(of_kinds(rows, HARD)), "f1")
    noisy = [kind for kind in kinds_of(rows) if kind != "none"]
    covered = [coverage(of_kinds(rows, [kind])) for kind in kinds_of(rows)]
    clean = [row["flagged"] for row in of_kinds(rows, ["none"]) if row["detector"] == OURS]
    kept = [levels_kept(of_kinds(rows, [kind])) for kind in noisy]
    since = pairs(means(of_kinds(rows, ("symmetric", "pairs"))), "f1", BEFORE)
    asked = [
        Asked("F1 not behind the best rival, fraction of cells", 0.85, _not_behind(f1, "f1")),
        Asked("the same, rivals that are told the rate left out", 0.85, _not_behind(fair, "f1")),
        Asked(
            "F1 not behind each single rival, lowest fraction",
            0.95,
            min((found.not_behind for found in singly), default=None),
        ),
        Asked("F1 relative to the best rival, lowest", 0.5, lowest_ratio(f1)),
        Asked("the same where noise is hard", 0.9, lowest_ratio(hard)),
        Asked(
            "F1 gained on the version before, symmetric and pairs, mean",
            0.0,
            _mean([mine - before for mine, before in since]),
        ),
        Asked("AUROC not behind the best rival, fraction", 0.9, _not_behind(area, "auroc")),
        Asked("intervals that cover", 0.85, coverage(rows)),
        Asked("the same, lowest kind of noise", 0.75, _lowest(covered)),
        Asked("correct labels flagged, mean of sources", 0.015, _mean(clean), False),
        Asked("the same, highest source", 0.015, max(clean, default=None), False),
        Asked(
            "levels kept where claimed, lowest kind of noise",
            0.9,
            _lowest([good / claims for good, claims in kept if claims]),
        ),
    ]
    return asked + [
        Asked(f"F1 on people's labels, {rate:.0%} wrong", bound, found[OURS]["f1"])
        for rate, bound in PEOPLE.items()
        for group, found in of.items()
        if group.kind == "human" and group.rate == rate and OURS in found
    ]


def against_rivals(rows: Sequence[Row], store: str | Path) -> str:
    """A table of what `rows` of a new rule reach against the rivals' rows in a store."""

    def cell_of(row):
        return (*row["cell"].values(), row["most_rows"])

    seen = set(map(cell_of, rows))
    stored = read_rows(Path(store))
    rivals = [row for row in stored if row["detector"] != OURS and cell_of(row) in seen]
    lines = [
        [asked.what, asked.bound, shown(asked.found), mark(asked)]
        for asked in requirements([*rows, *rivals])
    ]
    return table(["asked", "bound", "found", ""], lines)


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def mark(asked: Asked) -> str:
    return {True: "met", False: "**not met**", None: "-"}[asked.is_met]


def _not_behind(both, measure):
    return standing(both, TIE[measure]).not_behind if both else None


def _mean(values):
    return float(np.mean(values)) if values else None


def _lowest(values):
    return min((value for value in values if value is not None), default=None)
