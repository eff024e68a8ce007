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
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from experiments.error_control_plots import PLOTS
from experiments.error_control_report import Row, render
from experiments.origin import REPORTS, origin
from spr_jax.devices import device_mesh, one_device_per_core
from spr_jax.evaluate import auroc
from spr_jax.files import load_arrays, replace_file
from spr_jax.label_errors import components_for
from spr_jax.levels import expected_auroc, flag_surest, is_explained, keep_cleanest
from spr_jax.metrics import read_rows
from spr_jax.noise import PAIRS, asymmetric, symmetric
from spr_jax.origin import commit
from spr_jax.solver import Options, clean_set, plan_pieces
from spr_jax.solver.knockoffs import Trial, knockoff_set
from spr_jax.solver.noise_model import LabelNoise, label_noise

LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2)
RATES = {"symmetric": (0.05, 0.2, 0.4, 0.6, 0.8), "asymmetric": (0.2, 0.3, 0.4)}
FEW_RATES = {"symmetric": (0.2,), "asymmetric": (0.3,)}  # with --small
HUMAN = ("aggre_label", "random_label1", "random_label2", "random_label3", "worse_label")
FIRST_SEED = 1000  # of redrawn labels; the model was developed with seeds below 100


class Case(NamedTuple):
    """A set of labels on the features of a file."""

    file: Path
    data: str  # set, whose pairs of classes asymmetric noise takes
    labels: str  # "own", "none", "symmetric 0.4", "worse_label"
    kind: str  # of their noise
    seed: int = 0

    def identity(self, most_rows: int) -> Row:
        return self._replace(file=self.file.stem)._asdict() | {"most_rows": most_rows}


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


def cases_of(
    file: Path, data: str, rates: dict, seeds: int, *, redraw: bool, human: bool
) -> list[Case]:
    """Of one file. Labels that are not drawn here are there only once."""
    cases = [Case(file, data, "own", kind_of(file.stem))]
    if redraw:
        cases.append(Case(file, data, "none", "none"))
        cases += [
            Case(file, data, f"{kind} {rate}", kind, FIRST_SEED + seed)
            for kind in (rates if data in PAIRS else ("symmetric",))
            for rate in rates[kind]
            for seed in range(seeds)
        ]
        if human and data == "cifar10":
            cases += [Case(file, data, name, "human") for name in HUMAN]
    return cases


# Measuring.


@lru_cache(maxsize=1)
def read_file(path: Path, most_rows: int) -> dict[str, np.ndarray]:
    """The arrays of a file, of at most so many rows, a random choice that is always the same."""
    arrays = load_arrays(path)
    chosen = np.random.default_rng(0).permutation(len(arrays["given"]))[:most_rows]
    return {name: array[np.sort(chosen)] for name, array in arrays.items()}


def labels_of(case: Case, arrays: dict[str, np.ndarray], human: Path | None) -> np.ndarray:
    true = arrays["true"].astype(np.int32)
    if case.labels == "own":
        return arrays["given"].astype(np.int32)
    if case.kind == "none":
        return true
    if case.kind == "human":
        if "index" not in arrays:
            raise ValueError(f"{case.file} has no `index`, by which human labels would be found.")
        return load_arrays(human)[case.labels][arrays["index"]].astype(np.int32)
    rate = float(case.labels.split()[1])
    if case.kind == "symmetric":
        return symmetric(true, rate, num_classes=int(true.max()) + 1, seed=case.seed)
    return asymmetric(true, rate, pairs=PAIRS[case.data], seed=case.seed)


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
    can_rank = 0 < wrong.sum() < len(wrong)
    return {
        "examples": len(given),
        "true": shares(wrong, given, num_classes),
        "rate": noise.rate.tolist(),
        "low": noise.low.tolist(),
        "high": noise.high.tolist(),
        "explained": is_explained(noise),
        "flagged": float(np.mean(noise.wrong > 0.5)),
        "auroc": {
            "entry": auroc(found.entry, wrong) if can_rank else None,
            "wrong": auroc(noise.wrong, wrong) if can_rank else None,
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
            for rule, choices in choices_of(noise, given, data, how).items()
            for level, (chosen, claims) in zip(LEVELS, choices, strict=True)
        ],
    }


def choices_of(noise: LabelNoise, given: np.ndarray, data: tuple, how: dict) -> dict[str, Iterable]:
    """Rule -> at each level, (which examples it takes [N], which classes claim the level [c])."""

    def knockoffs(rule):
        def keep(level):  # what does not depend on the level is computed once
            tried = knockoff_set(*data, level=level, trial=Trial(rule=rule), **how)
            return tried.clean, tried.attained

        return zip(*jax.device_get(jax.vmap(keep)(jnp.asarray(LEVELS))), strict=True)

    return {
        "keep_cleanest": [keep_cleanest(noise, given, level)[:2] for level in LEVELS],
        "knockoffs": knockoffs("fixed"),
        "released": knockoffs("released"),
        "flag_surest": [flag_surest(noise, given, level)[:2] for level in LEVELS],
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


def f1(flagged: np.ndarray, wrong: np.ndarray) -> float | None:
    """Of the flags, for wrong labels; there is none if no label is wrong."""
    if not wrong.any():
        return None
    return float(2 * np.sum(flagged & wrong) / (flagged.sum() + wrong.sum()))


def best_f1(score: np.ndarray, wrong: np.ndarray) -> float | None:
    """Of the best threshold, chosen by one who knows the truth. Ties go together."""
    if not wrong.any():
        return None
    order = np.argsort(-score, kind="stable")
    hits, flags = np.cumsum(wrong[order]), np.arange(1, len(wrong) + 1)
    ends_tie = np.append(np.diff(score[order]) != 0, True)
    return float(np.max((2 * hits / (flags + wrong.sum()))[ends_tie]))


def measure_all(cases: Sequence[Case], out: Path, most_rows: int, human: Path | None) -> list[Row]:
    """The rows of all cases, in their order; those that are in `out` are read."""
    out.mkdir(parents=True, exist_ok=True)
    path, here = out / "runs.jsonl", commit()
    rows = read_rows(path)
    with replace_file(path) as file:  # without a line that was cut off
        file.writelines(json.dumps(row) + "\n" for row in rows)
    known = {json.dumps(row["run"]): row for row in rows}
    names = [case.identity(most_rows) for case in cases]
    for case, name in zip(bar := tqdm(cases, "Runs"), names, strict=True):
        bar.set_postfix_str(f"{case.file.stem}, {case.labels}")
        if json.dumps(name) in known:
            continue
        arrays = read_file(case.file, most_rows)
        given, true = labels_of(case, arrays, human), arrays["true"].astype(np.int32)
        start = time.perf_counter()
        row = measure(arrays["features"].astype(np.float32), given, true, case.seed)
        row = {"run": name, "commit": here, "seconds": time.perf_counter() - start} | row
        known[json.dumps(name)] = row
        with open(path, "a") as file:
            file.write(json.dumps(row) + "\n")
    return [known[json.dumps(name)] for name in names]


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
    cases = []
    for file in options.files:
        redraw = options.redraw or is_redrawn(file.stem)
        data = options.dataset or dataset_of(file.stem)
        rates = FEW_RATES if options.small else RATES
        human = options.human is not None
        cases += cases_of(file, data, rates, options.seeds, redraw=redraw, human=human)
    rows = measure_all(cases, options.out, options.rows, options.human)
    report = render(rows, origin("scipy"))
    print(report)
    if options.report:
        with replace_file(REPORTS / "error_control.md") as file:
            file.write(report)
        for name, plot in PLOTS.items():
            plot(rows, REPORTS / name)


if __name__ == "__main__":
    one_device_per_core()
    main()
