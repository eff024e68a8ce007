"""The report of the detection benchmark: development and report sources apart, and the difference.

What was chosen on development sources tends to look better there; the difference says by how much.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.detection_cells import Row
from experiments.detection_verdict import (
    MEASURES,
    TIE,
    Group,
    coverage,
    group_of,
    kinds_of,
    levels_kept,
    mark,
    means,
    of_kinds,
    pairs,
    requirements,
    shown,
    standing,
)
from experiments.harness.plot import new_figure, save_figure, style
from experiments.harness.provenance import origin
from experiments.harness.study import number, table
from experiments.rival_detectors import DETECTORS, OURS, RIVALS
from experiments.sources import ROLES, role_of

NAME = "detection"


def of_role(rows: Sequence[Row], role: str) -> list[Row]:
    return [row for row in rows if role_of(row["cell"]["source"]) == role]


def verdict(rows: Sequence[Row]) -> str:
    """What was asked for, on report sources, on development sources, and the difference."""
    development, report = (requirements(of_role(rows, role)) for role in ROLES)
    other = {asked.what: asked.found for asked in development}
    lines = []
    for asked in report:
        before = other.get(asked.what)
        both = asked.found is not None and before is not None
        bound = f"{'at least' if asked.at_least else 'at most'} {asked.bound}"
        difference = f"{asked.found - before:+.3f}" if both else "-"
        line = [asked.what, bound, shown(asked.found), mark(asked), shown(before), difference]
        lines.append(line)
    return table(["", "asked", "report", "", "development", "difference"], lines)


def against_each(rows: Sequence[Row]) -> str:
    """Cells ahead, even and behind of each rival, by F1 and by AUROC."""
    head = ["rival"]
    parts = []
    for role in ROLES:
        of = means(of_role(rows, role))
        for measure, title in (("f1", "F1"), ("auroc", "AUROC")):
            head.append(f"{title}, {role}")
            parts.append(
                {name: standing(pairs(of, measure, name), TIE[measure]) for name in RIVALS}
                | {"best": standing(pairs(of, measure), TIE[measure])}
            )
    titles = {name: DETECTORS[name].title for name in RIVALS} | {"best": "the best of them"}
    present = [name for name in titles if any(sum(part[name]) for part in parts)]
    return table(head, [[titles[name], *(part[name] for part in parts)] for name in present])


def by_kind(rows: Sequence[Row]) -> str:
    """Means over the groups of each kind of noise and role: ours / the best rival of each cell."""
    head = ["noise", "sources", "cells", "F1", "AUROC", "average precision"]
    head += ["F1 ahead / even / behind", "intervals cover", "levels kept"]
    lines = []
    for kind in kinds_of(rows):
        for role in ROLES:
            chosen = of_role(of_kinds(rows, [kind]), role)
            of = means(chosen)
            if kind != "none" and of:
                compared = [_mean_pair(pairs(of, name)) for name in ("f1", "auroc", "ap")]
                stands = standing(pairs(of, "f1"), TIE["f1"])
                kept, claims = levels_kept(chosen)
                line = [kind, role, len(of), *compared, stands, shown(coverage(chosen))]
                lines.append([*line, f"{kept} of {claims}"])
    return table(head, lines)


def _mean_pair(both):
    if not both:
        return "-"
    mine, theirs = np.mean(both, axis=0)
    return f"{mine:.3f} / {theirs:.3f}"


def by_source(rows: Sequence[Row]) -> str:
    """Means over the groups of each source, and what is flagged where all labels are correct."""
    head = ["source", "role", "examples", "classes", "F1", "AUROC", "intervals cover"]
    head += ["correct labels flagged", "seconds"]
    lines = []
    for source in dict.fromkeys(row["cell"]["source"] for row in rows):
        chosen = [row for row in rows if row["cell"]["source"] == source]
        ours = [row for row in chosen if row["detector"] == OURS]
        of = means(chosen)
        clean = [row["flagged"] for row in of_kinds(ours, ["none"])]
        seconds = [row["seconds"] for row in ours if "seconds" in row]
        fact = chosen[0]
        line = [source, role_of(source), f"{fact['rows']:,}", fact["classes"]]
        line += [_mean_pair(pairs(of, name)) for name in ("f1", "auroc")]
        line += [shown(coverage(chosen)), f"{100 * clean[0]:.1f} %" if clean else "-"]
        lines.append([*line, number(float(np.median(seconds)), 2) if seconds else "-"])
    return table(head, lines)


def levels(rows: Sequence[Row]) -> str:
    """Claims of each option that were kept, by kind of noise, on all sources of a role."""
    lines = []
    for role in ROLES:
        for option in ("max_noise_in_clean", "max_false_alarms"):
            found = [
                "{} of {}".format(*levels_kept(of_kinds(of_role(rows, role), [kind]), option))
                for kind in kinds_of(rows)
            ]
            lines.append([role, f"`{option}`", *found])
    return table(["sources", "level", *kinds_of(rows)], lines)


def failures(rows: Sequence[Row]) -> str:
    found = {f"{row['detector']}: {row['failed']}" for row in rows if "failed" in row}
    return "Failed, and so found nothing: " + "; ".join(sorted(found)) + "." if found else ""


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw our F1 over the best rival's, a mark for each group."""
    figure, panels = new_figure(2, width=4.4, height=4.4)
    kinds = [kind for kind in kinds_of(rows) if kind != "none"]
    for panel, role in zip(panels, ROLES, strict=True):
        for look, kind in enumerate(kinds):
            both = pairs(means(of_role(of_kinds(rows, [kind]), role)), "f1")
            if both:
                mine, theirs = zip(*both, strict=True)
                panel.plot(theirs, mine, linestyle="", markersize=4, label=kind, **style(look))
        panel.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
        panel.set(xlabel="F1 of the best rival", ylabel=f"F1 of spr_jax, {role} sources")
    save_figure(figure, path, "Label errors found; above the line we are ahead")


def render(rows: Sequence[Row], missing: Sequence[str] = ()) -> list[str]:
    """The parts of the report, in Markdown."""
    return [
        "# Which detector finds the most label errors",
        origin("scikit-learn", "cleanlab"),
        "Every detector has its default settings and calls suspects by its own rule; F1 describes "
        "the suspects, AUROC and average precision the ranking. Detectors that need predictions "
        "get those of a linear softmax model on standardized features, out of fold, whose "
        "regularization is chosen by the likelihood of the given labels; those that need "
        "neighbours get features as given or standardized, whichever lets neighbours agree more. "
        "A cell is a source, a kind of noise and a rate, its numbers are means over seeds. The "
        "best rival differs from cell to cell and can be chosen only with knowledge of the truth; "
        f"even: within {TIE['f1']} (F1) or {TIE['auroc']} (AUROC). Constants and rules of spr_jax "
        "were chosen on the development sources alone "
        "([which](../../docs/measuring.md#the-detector-noise-model-ranking-flags-intervals)).",
        verdict(rows),
        f"![{NAME}]({NAME}.png)",
        "## Against each rival",
        "Cells ahead / even / behind.",
        against_each(rows),
        "## By kind of noise",
        "Ours / the best rival of each cell.",
        by_kind(rows),
        "## Levels",
        "Levels that were kept, of those that were claimed: wrong labels in the clean set at most "
        "0.05 and 0.1 (where the labels are noisier than that), correct ones among the suspects at "
        "most 0.1 and 0.2.",
        levels(rows),
        "## By source",
        by_source(rows),
        f"Without a file, and so not measured: {', '.join(missing)}." if missing else "",
        failures(rows),
    ]


def csv_rows(rows: Sequence[Row]) -> list[list]:
    """A line for each group: ours, then F1, AUROC and average precision of every rival."""
    rivals = [name for name in RIVALS if any(row["detector"] == name for row in rows)]
    compared = [(measure, name) for name in rivals for measure in ("f1", "auroc", "ap")]
    head = [*Group._fields, "role", "seeds", *MEASURES, "estimated rate", "covers"]
    lines = [[*head, *(f"{measure} {name}" for measure, name in compared), "commit"]]
    of = means(rows)
    for group, found in of.items():
        ours = [row for row in rows if row["detector"] == OURS and group_of(row) == group]
        rates = [row["rate"] for row in ours if "rate" in row]
        mine = [number(found.get(OURS, {}).get(measure), 4) for measure in MEASURES]
        mine += [number(float(np.mean(rates)) if rates else None, 4), number(coverage(ours), 2)]
        theirs = [number(found.get(name, {}).get(measure), 4) for measure, name in compared]
        commits = " ".join(sorted({row["commit"] for row in ours if "commit" in row}))
        lines.append([*group, role_of(group.source), len(ours), *mine, *theirs, commits])
    return lines
