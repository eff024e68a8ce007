"""Are the estimates of label noise right, and are the levels kept that they promise?

    python -m experiments.error_control mnist_sym40.npz cifar10_sym40.npz \
        --human cifar10n.npz --out runs/error_control --report

Each file holds `features` [N, d], `given` and `true` labels [N], and for human labels `index` [N]
into the data set. Every file is measured with its own labels. On the features of files that are
named DATASET_sym40.npz, as in `features/` of the shared data, or of all with --redraw, labels are
also drawn anew from the true ones: symmetric and asymmetric noise of several rates and seeds, and
none; on CIFAR-10, the labels of people (--human, CIFAR-10N).

Finished runs are lines of OUT/runs.jsonl, so that what was broken off goes on, and a report is
made again without measuring.
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.metrics import roc_auc_score
from tqdm import tqdm

from experiments.markdown import table
from experiments.origin import REPORTS, origin
from spr_jax.devices import device_mesh, one_device_per_core
from spr_jax.files import replace_file
from spr_jax.label_errors import components_for
from spr_jax.levels import expected_auroc, flag_surest, is_explained, keep_cleanest
from spr_jax.metrics import read_rows
from spr_jax.noise import PAIRS, asymmetric, symmetric
from spr_jax.origin import commit
from spr_jax.solver import Options, clean_set, plan_pieces
from spr_jax.solver.knockoffs import Trial, knockoff_set
from spr_jax.solver.noise_model import label_noise

LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2)
RATES = {"symmetric": (0.05, 0.2, 0.4, 0.6, 0.8), "asymmetric": (0.2, 0.3, 0.4)}
FEW_RATES = {"symmetric": (0.2,), "asymmetric": (0.3,)}  # with --small
HUMAN = ("aggre_label", "random_label1", "random_label2", "random_label3", "worse_label")
FIRST_SEED = 1000  # of redrawn labels; the model was developed with seeds below 100
SURE_AUROC = 0.95  # of the entry ranking, from which on an error of the rate is bounded
MOST_ERROR = {"symmetric": 0.03, "asymmetric": 0.05, "human": 0.05}
LEAST_COVERED, LEAST_KEPT = 0.85, 0.9
F1_GOALS = {"mnist": (0.968, 0.975), "cifar10": (0.764, 0.816)}  # cleanlab's filter; the aim
RULES = {  # name of a rule -> in tables and plots
    "keep_cleanest": "kept, noise model",
    "knockoffs": "kept, knockoffs",
    "released": "kept, knockoffs, released rule",
    "flag_surest": "flagged, noise model",
}

Row = dict[str, Any]  # of one run, as in runs.jsonl


class Run(NamedTuple):
    file: Path
    data: str  # set, whose pairs of classes asymmetric noise takes
    labels: str  # "own", "none", "symmetric 0.4", "worse_label"
    kind: str  # of their noise
    seed: int = 0

    def identity(self, rows: int) -> Row:
        return self._replace(file=self.file.stem)._asdict() | {"most_rows": rows}


# What to run.


def dataset_of(stem: str) -> str:
    """Of a file named DATASET_..., if it is known."""
    return next((name for name in PAIRS if stem.startswith(name)), "")


def kind_of(stem: str) -> str:
    """Noise of a file's own labels, from a name such as mnist_asym40_e1."""
    named = re.search(r"_(none|sym|asym)\d*(_|$)", stem)
    kinds = {"none": "none", "sym": "symmetric", "asym": "asymmetric"}
    return kinds[named[1]] if named else "unknown"


def is_redrawn(stem: str) -> bool:
    return re.fullmatch(rf"({'|'.join(PAIRS)})_sym40", stem) is not None


def runs_of(
    file: Path, data: str, rates: dict, seeds: int, *, redraw: bool, human: bool
) -> list[Run]:
    """Of one file. Labels that are not drawn here are there only once."""
    runs = [Run(file, data, "own", kind_of(file.stem))]
    if redraw:
        runs.append(Run(file, data, "none", "none"))
        for kind in rates if data in PAIRS else ("symmetric",):
            runs += [
                Run(file, data, f"{kind} {rate}", kind, FIRST_SEED + seed)
                for rate in rates[kind]
                for seed in range(seeds)
            ]
        if human and data == "cifar10":
            runs += [Run(file, data, name, "human") for name in HUMAN]
    return runs


# Measuring.


@lru_cache(maxsize=1)
def read_file(path: Path, most_rows: int) -> dict[str, np.ndarray]:
    """The arrays of a file, of at most so many rows, a random choice that is always the same."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if name != "logits"}
    chosen = np.random.default_rng(0).permutation(len(arrays["given"]))[:most_rows]
    return {name: array[np.sort(chosen)] for name, array in arrays.items()}


def labels_of(run: Run, arrays: dict[str, np.ndarray], human: Path | None) -> np.ndarray:
    true = arrays["true"].astype(np.int32)
    if run.labels == "own":
        return arrays["given"].astype(np.int32)
    if run.kind == "none":
        return true
    if run.kind == "human":
        if "index" not in arrays:
            raise ValueError(f"{run.file} has no `index`, by which human labels would be found.")
        with np.load(human, allow_pickle=False) as file:
            return file[run.labels][arrays["index"]].astype(np.int32)
    rate = float(run.labels.split()[1])
    if run.kind == "symmetric":
        return symmetric(true, rate, num_classes=int(true.max()) + 1, seed=run.seed)
    return asymmetric(true, rate, pairs=PAIRS[run.data], seed=run.seed)


def measure(features: np.ndarray, given: np.ndarray, true: np.ndarray, seed: int = 0) -> Row:
    """All that is recorded of one set of labels; options as in `find_label_errors`."""
    num_classes = int(max(given.max(), true.max())) + 1
    wrong = given != true
    dim = components_for(len(given), num_classes=num_classes)
    noise = jax.device_get(label_noise(features, given, num_classes=num_classes, pca_dim=dim))
    mesh = device_mesh()
    how = {
        "plan": plan_pieces(given, num_classes=num_classes, multiple_of=mesh.size),
        "options": Options(pca_dim=dim, intercept=True),
        "mesh": mesh,
    }
    data = jnp.asarray(features), jnp.asarray(given), jax.random.key(seed)
    found = jax.device_get(clean_set(*data, **how))

    def knockoffs(rule):
        def keep(level):  # what does not depend on the level is computed once
            tried = knockoff_set(*data, level=level, trial=Trial(rule=rule), **how)
            return tried.clean, tried.attained

        return jax.device_get(jax.vmap(keep)(jnp.asarray(LEVELS)))

    choices = [("keep_cleanest", *keep_cleanest(noise, given, level)[:2]) for level in LEVELS]
    for name, rule in (("knockoffs", "fixed"), ("released", "released")):
        choices += [(name, *choice) for choice in zip(*knockoffs(rule), strict=True)]
    choices += [("flag_surest", *flag_surest(noise, given, level)[:2]) for level in LEVELS]
    asked = LEVELS * len(RULES)
    return {
        "examples": len(given),
        "true": shares(wrong, given, num_classes),
        "rate": noise.rate.tolist(),
        "low": noise.low.tolist(),
        "high": noise.high.tolist(),
        "explained": is_explained(noise),
        "flagged": float(np.mean(noise.wrong > 0.5)),
        "auroc": {
            "entry": auroc(wrong, found.entry),
            "wrong": auroc(wrong, noise.wrong),
            "expected": expected_auroc(noise.wrong),
        },
        "f1": {
            "default": f1(noise.wrong > 0.5, wrong),
            "best_entry": best_f1(found.entry, wrong),
            "best_wrong": best_f1(noise.wrong, wrong),
            "half": f1(~found.clean, wrong),
        },
        "levels": [
            {"rule": rule, "asked": level, "claims": np.asarray(claims).tolist()}
            | counts(chosen, ~wrong if rule == "flag_surest" else wrong, given, num_classes)
            for level, (rule, chosen, claims) in zip(asked, choices, strict=True)
        ],
    }


def shares(values: np.ndarray, labels: np.ndarray, num_classes: int) -> list[float]:
    """Mean of all, then of each class; zero for a class that does not occur."""
    sums = np.bincount(labels, values, num_classes)
    sizes = np.bincount(labels, minlength=num_classes)
    return [float(values.mean()), *(sums / np.maximum(sizes, 1)).tolist()]


def counts(chosen: np.ndarray, mistake: np.ndarray, labels: np.ndarray, num_classes: int) -> Row:
    """Of each class, how many were taken and how many of these by mistake."""
    return {
        "taken": np.bincount(labels[chosen], minlength=num_classes).tolist(),
        "mistakes": np.bincount(labels[chosen & mistake], minlength=num_classes).tolist(),
    }


def auroc(wrong: np.ndarray, score: np.ndarray) -> float | None:
    return float(roc_auc_score(wrong, score)) if 0 < wrong.mean() < 1 else None


def f1(flagged: np.ndarray, wrong: np.ndarray) -> float | None:
    """Of the flags, for wrong labels; there is none if no label is wrong."""
    both = 2 * np.sum(flagged & wrong) / max(flagged.sum() + wrong.sum(), 1)
    return float(both) if wrong.any() else None


def best_f1(score: np.ndarray, wrong: np.ndarray) -> float | None:
    """Of the best threshold, chosen by one who knows the truth. Ties go together."""
    if not wrong.any():
        return None
    order = np.argsort(-score, kind="stable")
    hits, flags = np.cumsum(wrong[order]), np.arange(1, len(wrong) + 1)
    ends_tie = np.append(np.diff(score[order]) != 0, True)
    return float(np.max((2 * hits / (flags + wrong.sum()))[ends_tie]))


def measure_all(runs: Sequence[Run], out: Path, most_rows: int, human: Path | None) -> list[Row]:
    """The rows of all runs, in their order; those that are in `out` are read."""
    out.mkdir(parents=True, exist_ok=True)
    path, here = out / "runs.jsonl", commit()
    rows = read_rows(path)
    with replace_file(path) as file:  # without a line that was cut off
        file.writelines(json.dumps(row) + "\n" for row in rows)
    known = {json.dumps(row["run"]): row for row in rows}
    for run in (bar := tqdm(runs, "Runs")):
        name = run.identity(most_rows)
        bar.set_postfix_str(f"{run.file.stem}, {run.labels}")
        if json.dumps(name) in known:
            continue
        arrays = read_file(run.file, most_rows)
        given, true = labels_of(run, arrays, human), arrays["true"].astype(np.int32)
        start = time.perf_counter()
        row = measure(arrays["features"].astype(np.float32), given, true, run.seed)
        row = {"run": name, "commit": here, "seconds": time.perf_counter() - start} | row
        known[json.dumps(name)] = row
        with open(path, "a") as file:
            file.write(json.dumps(row) + "\n")
    return [known[json.dumps(run.identity(most_rows))] for run in runs]


# Reading the rows.


def error(row: Row) -> float:
    return row["rate"][0] - row["true"][0]


def covers(row: Row) -> list[bool]:
    """Whether an interval holds the true share: that of all, then of each class."""
    bounds = zip(row["low"], row["true"], row["high"], strict=True)
    return [low <= true <= high for low, true, high in bounds]


def is_sure(row: Row) -> bool:
    """Whether the entry ranking is good. Where no label is wrong there is nothing to rank."""
    return row["auroc"]["entry"] is not None and row["auroc"]["entry"] >= SURE_AUROC


def realised(choice: Row) -> float:
    """Share of mistakes among all that were taken."""
    return sum(choice["mistakes"]) / max(sum(choice["taken"]), 1)


def keeps(choice: Row) -> bool:
    return realised(choice) <= choice["asked"]


def of_claims(row: Row, rule: str, asked: Iterable[float] = LEVELS) -> list[Row]:
    """What was taken at these levels, if any class claims to keep them."""
    return [
        choice
        for choice in row["levels"]
        if choice["rule"] == rule and choice["asked"] in asked and any(choice["claims"])
    ]


def claims_at(rows: Sequence[Row], rule: str) -> dict[float, list[Row]]:
    """What was taken at each level, of all runs that claim it."""
    return {level: [c for row in rows for c in of_claims(row, rule, [level])] for level in LEVELS}


def class_keeps(choice: Row) -> list[bool]:
    """Of each class that claims the level, whether its own share of mistakes is within it."""
    parts = zip(choice["claims"], choice["taken"], choice["mistakes"], strict=True)
    return [wrong <= choice["asked"] * taken for claims, taken, wrong in parts if claims]


def by_setting(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
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
    return f"{sum(passed)} of {len(passed)} ({np.mean(passed):.1%})" if passed else "no runs"


# The report.


class Line(NamedTuple):
    """Of the summary."""

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


def level_line(rows: Sequence[Row], rule: str, what: str, *, asked: bool = True) -> Line:
    """Met if every level is kept often enough."""
    goal = f"at least {LEAST_KEPT:.0%} at every level" if asked else ""
    kept = {level: list(map(keeps, claims)) for level, claims in claims_at(rows, rule).items()}
    kept = {level: some for level, some in kept.items() if some}
    if not kept:
        return Line(what, goal, "no claims")
    worst = min(kept, key=lambda level: np.mean(kept[level]))
    measured = f"{ratio(sum(kept.values(), []))}; least at {worst:g}: {ratio(kept[worst])}"
    return Line(what, goal, measured, bool(np.mean(kept[worst]) >= LEAST_KEPT) if asked else None)


def setting_line(rows: Sequence[Row], rule: str, what: str) -> Line:
    """A setting that fails fails with every seed; the share of runs does not show this."""
    groups = {name: sum(claims_at(g, rule).values(), []) for name, g in by_setting(rows).items()}
    kept = {name: all(map(keeps, claims)) for name, claims in groups.items() if claims}
    broken = "; ".join(", ".join(name) for name, is_kept in kept.items() if not is_kept)
    return Line(what, measured=ratio(kept.values()) + (f"; not: {broken}" if broken else ""))


def f1_line(rows: Sequence[Row], data: str) -> Line:
    least, aim = F1_GOALS[data]
    what, goal = f"F1 of the default flags, {data}_sym40", f"at least {least} (aim {aim})"
    rows = [row for row in rows if row["run"]["file"] == f"{data}_sym40"]
    own = [row["f1"]["default"] for row in rows if row["run"]["labels"] == "own"]
    drawn = [row["f1"]["default"] for row in rows if row["run"]["labels"] == "symmetric 0.4"]
    if not own:
        return Line(what, goal)
    measured = f"{own[0]:.3f}" + ("; aim reached" if own[0] >= aim else "; aim missed")
    if drawn:
        measured += f"; redrawn symmetric 0.4: {min(drawn):.3f} to {max(drawn):.3f}"
    return Line(what, goal, measured, own[0] >= least)


def summary_lines(rows: Sequence[Row]) -> list[Line]:
    """First what must be reached, then what was not asked for but should be known."""
    sure = [row for row in rows if is_sure(row)]
    unsure = [row for row in rows if row["auroc"]["entry"] is not None and not is_sure(row)]

    def of_kind(rows, kind):
        return [row for row in rows if row["run"]["kind"] == kind]

    lines = [
        rate_line(f"Rate, {kind}, AUROC >= {SURE_AUROC}", of_kind(sure, kind), most)
        for kind, most in MOST_ERROR.items()
    ]
    lines += [
        coverage_line("Interval of the rate covers, all runs", [covers(row)[0] for row in rows]),
        level_line(rows, "keep_cleanest", "Level kept, of runs that claim it: `keep_cleanest`"),
        level_line(rows, "flag_surest", "Level kept, of runs that claim it: `flag_surest`"),
        *(f1_line(rows, data) for data in F1_GOALS),
    ]
    lines += [
        rate_line(f"Rate, {kind}, AUROC < {SURE_AUROC}", of_kind(unsure, kind), most, asked=False)
        for kind, most in MOST_ERROR.items()
    ]
    classes = [covered for row in rows for covered in covers(row)[1:]]
    return lines + [
        rate_line("Rate, no wrong labels", of_kind(rows, "none"), 0.03, asked=False),
        interval_line(f"Interval covers, AUROC >= {SURE_AUROC}", sure),
        interval_line(f"Interval covers, AUROC < {SURE_AUROC}", unsure),
        coverage_line("Intervals of single classes cover", classes, asked=False),
        setting_line(rows, "keep_cleanest", "Settings with every level kept: `keep_cleanest`"),
        setting_line(rows, "flag_surest", "Settings with every level kept: `flag_surest`"),
        *(
            level_line(sure, rule, f"Level kept, AUROC >= {SURE_AUROC}: `{rule}`", asked=False)
            for rule in ("keep_cleanest", "flag_surest")
        ),
        level_line(rows, "knockoffs", "Level kept: knockoffs", asked=False),
        level_line(rows, "released", "Level kept: knockoffs, released rule", asked=False),
    ]


def rate_table(rows: Sequence[Row]) -> str:
    head = ["features", "labels", "runs", "wrong", "estimated", "largest error", "interval's width"]
    head += ["covered", "worst class error", "AUROC entry", "AUROC `wrong`", "expected AUROC"]
    lines = []
    for (file, labels), group in by_setting(rows).items():
        class_errors = [np.subtract(row["rate"], row["true"])[1:] for row in group]
        lines.append(
            [
                file,
                labels,
                len(group),
                mean(row["true"][0] for row in group),
                mean(row["rate"][0] for row in group),
                format(max((error(row) for row in group), key=abs), "+.3f"),
                mean(row["high"][0] - row["low"][0] for row in group),
                f"{sum(covers(row)[0] for row in group)}/{len(group)}",
                format(max(np.abs(errors).max() for errors in class_errors), ".3f"),
                *(mean(row["auroc"][of] for row in group) for of in ("entry", "wrong", "expected")),
            ]
        )
    return table(head, lines)


def level_table(rows: Sequence[Row]) -> str:
    head = ["what", "asked", "runs that claim", "of them keep it", "mean realised"]
    head += ["largest realised", "mean share taken", "classes that claim", "of them keep it"]
    lines = []
    for rule, title in RULES.items():
        for asked in LEVELS:
            claims = [(choice, row) for row in rows for choice in of_claims(row, rule, [asked])]
            shares_taken = [sum(choice["taken"]) / row["examples"] for choice, row in claims]
            classes = sum((class_keeps(choice) for choice, _ in claims), [])
            worst = max((realised(choice) for choice, _ in claims), default=None)
            num_classes = sum(len(row["true"]) - 1 for row in rows)
            lines.append(
                [
                    title,
                    f"{asked:g}",
                    f"{len(claims)} of {len(rows)}",
                    f"{np.mean([keeps(choice) for choice, _ in claims]):.1%}" if claims else "",
                    mean((realised(choice) for choice, _ in claims), ".4f"),
                    "" if worst is None else f"{worst:.4f}",
                    format(sum(shares_taken) / len(rows), ".3f"),
                    f"{len(classes) / num_classes:.0%}",
                    f"{np.mean(classes):.1%}" if classes else "",
                ]
            )
    return table(head, lines)


def broken_table(rows: Sequence[Row]) -> str:
    """Settings in which the noise model claimed a level that it did not keep."""
    lines = []
    for (file, labels), group in by_setting(rows).items():
        for rule in ("keep_cleanest", "flag_surest"):
            claims = claims_at(group, rule)
            if not all(map(keeps, sum(claims.values(), []))):
                lines.append([file, labels, RULES[rule], *map(broken_cell, claims.values())])
    head = ["features", "labels", "what", *(f"asked {level:g}" for level in LEVELS)]
    return table(head, lines) if lines else "None."


def broken_cell(claims: Sequence[Row]) -> str:
    """How many of the runs that claim a level break it, and the largest share of mistakes."""
    broken = [choice for choice in claims if not keeps(choice)]
    if not broken:
        return f"0/{len(claims)}" if claims else ""
    worst = max(broken, key=realised)
    share = f"{realised(worst):.3f}, {sum(worst['mistakes'])} of {sum(worst['taken']):,}"
    return f"{len(broken)}/{len(claims)} ({share})"


def uncovered_table(rows: Sequence[Row]) -> str:
    lines = [
        [name_of(row), f"{row['true'][0]:.3f}", f"{row['rate'][0]:.3f}"]
        + [f"{row['low'][0]:.3f} to {row['high'][0]:.3f}"]
        for row in rows
        if not covers(row)[0]
    ]
    return table(["run", "wrong", "estimated", "interval"], lines) if lines else "None."


def f1_table(rows: Sequence[Row]) -> str:
    head = ["features", "labels", "runs", "wrong", "default flags", "best threshold on `wrong`"]
    head += ["best threshold on the entry ranking", "half kept"]
    lines = [
        [file, labels, len(group), mean(row["true"][0] for row in group)]
        + [
            mean(row["f1"][of] for row in group)
            for of in ("default", "best_wrong", "best_entry", "half")
        ]
        for (file, labels), group in by_setting(rows).items()
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


# Plots. Colours of Okabe and Ito, which colour-blind people can tell apart.

BLUE, VERMILION, GREEN, PURPLE, BLACK = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000"
KIND_STYLES = {
    "symmetric": (BLUE, "o"),
    "asymmetric": (VERMILION, "s"),
    "human": (GREEN, "^"),
    "none": (BLACK, "D"),
    "unknown": (PURPLE, "v"),
}
RULE_STYLES = {
    "keep_cleanest": (BLUE, "o", 0.93),
    "knockoffs": (VERMILION, "s", 1.0),
    "released": (GREEN, "^", 1.075),
    "flag_surest": (BLUE, "o", 1.0),
}
FLOOR = 2e-4  # where a share of zero is drawn


def panels_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """A panel for each file with redrawn labels, and one for all others."""
    redrawn = {row["run"]["file"] for row in rows if row["run"]["labels"] != "own"}
    panels: dict[str, list[Row]] = {}
    for row in rows:
        file = row["run"]["file"]
        panels.setdefault(file if file in redrawn else "other files, own labels", []).append(row)
    return panels


def side_by_side(values: Iterable[float], step: float = 0.009) -> list[float]:
    """Moved apart where they are nearly the same."""
    values = list(values)
    near = [[j for j, other in enumerate(values) if abs(other - value) < step] for value in values]
    places = [group.index(i) - (len(group) - 1) / 2 for i, group in enumerate(near)]
    return [value + step * place for value, place in zip(values, places, strict=True)]


def plot_rates(rows: Sequence[Row], path: Path) -> None:
    """Every run a point with its interval."""
    panels = panels_of(rows)
    figure, axes = new_figure(len(panels))
    for axis, (title, group) in zip(axes, panels.items(), strict=True):
        axis.plot([0, 1], [0, 1], color="0.6", linewidth=1, zorder=0, label="estimated = true")
        for kind, (colour, marker) in KIND_STYLES.items():
            mine = [row for row in group if row["run"]["kind"] == kind]
            if not mine:
                continue
            true, rate = (
                side_by_side(row["true"][0] for row in mine),
                [row["rate"][0] for row in mine],
            )
            low = [row["rate"][0] - row["low"][0] for row in mine]
            high = [row["high"][0] - row["rate"][0] for row in mine]
            style = {"color": colour, "fmt": marker, "markersize": 5, "alpha": 0.75}
            axis.errorbar(true, rate, [low, high], **style, capsize=2, linewidth=1, label=kind)
        axis.set(title=title, xlabel="true share of wrong labels", xlim=(-0.03, 0.92))
        axis.set(ylim=(-0.03, 1.0), aspect="equal")
    axes[0].set_ylabel("estimated share, with its interval")
    save_figure(figure, axes, path)


def plot_levels(rows: Sequence[Row], path: Path) -> None:
    """Every claiming run a faint point, means joined."""
    figure, axes = new_figure(2)
    panels = {
        "Wrong labels among the kept": ("keep_cleanest", "knockoffs", "released"),
        "Right labels among the flagged": ("flag_surest",),
    }
    for axis, (title, rules) in zip(axes, panels.items(), strict=True):
        limits = np.array([LEVELS[0] / 1.4, LEVELS[-1] * 1.4])
        axis.plot(limits, limits, color="0.4", linewidth=1, zorder=0, label="realised = asked")
        axis.fill_between(limits, limits, 1.3, color="0.93", zorder=-1, label="level not kept")
        for rule in rules:
            colour, marker, shift = RULE_STYLES[rule]
            claims = claims_at(rows, rule).items()
            at = {asked: list(map(realised, choices)) for asked, choices in claims}
            for asked, found in at.items():
                axis.plot(
                    np.full(len(found), asked * shift),
                    np.maximum(found, FLOOR),
                    **{"marker": marker, "color": colour, "alpha": 0.25},
                    **{"markersize": 4, "linestyle": "", "markeredgewidth": 0},
                )
            means = [(asked * shift, np.mean(found)) for asked, found in at.items() if found]
            if means:
                style = {"marker": marker, "color": colour, "markeredgecolor": "white"}
                label = RULES[rule].split(", ", 1)[1]
                axis.plot(*zip(*means, strict=True), **style, markersize=8, label=label)
        axis.set(xscale="log", yscale="log", title=title, xlabel="asked share of mistakes")
        axis.set(xlim=limits, ylim=(FLOOR * 0.8, 1.3))
        axis.set_xticks(LEVELS, [f"{level:g}" for level in LEVELS], minor=False)
        axis.minorticks_off()
        ticks = (FLOOR, 0.001, 0.01, 0.1, 1)
        axis.set_yticks(ticks, ["0", *(f"{tick:g}" for tick in ticks[1:])])
    axes[0].set_ylabel("realised share (small: single runs; large: means)")
    save_figure(figure, axes, path)


def new_figure(num_panels: int):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = (max(4.2 * num_panels, 5), 4.6)
    figure, axes = pyplot.subplots(
        1, num_panels, figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    return figure, axes[0]


def save_figure(figure, axes, path: Path) -> None:
    from matplotlib import pyplot

    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    handles = {}
    for axis in axes:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles))
    with replace_file(path, binary=True) as file:
        figure.savefig(file, format="png", dpi=130)
    pyplot.close(figure)


PLOTS: dict[str, Callable] = {
    "error_control_rate.png": plot_rates,
    "error_control_levels.png": plot_levels,
}


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--human", type=Path, help="cifar10n.npz, labels of people for CIFAR-10")
    parser.add_argument("--dataset", choices=PAIRS, help="of all files [from their names]")
    parser.add_argument("--redraw", action="store_true", help="labels on the features of all files")
    parser.add_argument("--seeds", type=int, default=3, help="of redrawn labels [%(default)s]")
    parser.add_argument("--rows", type=int, default=20_000, help="at most, of a file [%(default)s]")
    parser.add_argument("--small", action="store_true", help="one seed, few rates, 1,000 rows")
    parser.add_argument("--out", type=Path, default=Path("runs/error_control"))
    parser.add_argument("--report", action="store_true", help="write reports/error_control.md")
    options = parser.parse_args(arguments)
    if options.small:
        options.seeds, options.rows = 1, min(options.rows, 1000)
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    runs = []
    for file in options.files:
        redraw = options.redraw or is_redrawn(file.stem)
        data = options.dataset or dataset_of(file.stem)
        rates = FEW_RATES if options.small else RATES
        human = options.human is not None
        runs += runs_of(file, data, rates, options.seeds, redraw=redraw, human=human)
    rows = measure_all(runs, options.out, options.rows, options.human)
    report = render(rows, origin("scikit-learn"))
    print(report)
    if options.report:
        with replace_file(REPORTS / "error_control.md") as file:
            file.write(report)
        for name, plot in PLOTS.items():
            plot(rows, REPORTS / name)


if __name__ == "__main__":
    one_device_per_core()
    main()
