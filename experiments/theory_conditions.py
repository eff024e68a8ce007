"""A report on Theorem 1: its conditions on real features, and a simulation of its model.

    python -m experiments.theory_conditions --features mnist_sym20_e1.npz mnist_sym20_e2.npz \\
        --report

Each file of --features holds `features` [N, d], `given` and `true` labels [N]. The files behind
`reports/theory_conditions.md` hold the features that the training passes of a network recorded, one
file per epoch:

    np.savez("mnist_sym20_e1.npz", features=features, given=noisy_labels, true=true_labels)

`experiments.feature_files` makes files of this form from a run's last checkpoint. If no given label
is wrong, 40 % symmetric noise is drawn on the features. The simulation (`theory_simulation.py`)
needs no file. `theory.py` defines the conditions and computes them. Rows go to OUT/rows.jsonl, from
which --read makes the report again.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from experiments import theory_conditions_report
from experiments.ablation_selection import name_of
from experiments.harness.provenance import origin
from experiments.harness.study import report_arguments, write_report
from experiments.label_sets import check_files, read_examples
from experiments.rankings import orthonormal, solve, tables_of_pieces
from experiments.theory import conditions
from experiments.theory_simulation import FEW_RATES, RATES, simulate
from spr_jax.devices import one_device_per_core
from spr_jax.io.atomic import replace_file
from spr_jax.noise import symmetric
from spr_jax.training.log import read_rows
from spr_jax.training.selection_metrics import selection_quality

DIM = 10  # principal components, as in the paper
SPLITS = (10, 50, None)  # examples of each class in a piece; None: whole data
MOST_PIECES = 100  # per file, whose conditions are computed

Row = dict[str, Any]


def noise_of_fit(basis: np.ndarray, true: np.ndarray) -> float:
    """sigma: standard deviation of the true labels that the features leave unexplained."""
    targets = np.eye(int(true.max()) + 1)[true]
    rest = targets - basis @ (basis.T @ targets)
    return float(np.sqrt(np.sum(rest**2) / (len(rest) - basis.shape[1]) / rest.shape[1]))


def examine(features: np.ndarray, given: np.ndarray, true: np.ndarray) -> Row:
    """Compute the conditions of one piece. A shift is 1, so C3 holds where h is below 1."""
    basis = orthonormal(features, DIM, intercept=True)
    found, sigma = conditions(basis, given, true), noise_of_fit(basis, true)
    penalty = found.least_penalty(sigma)
    row = {"c_min": found.c_min, "eta": found.eta, "mu": found.mu, "sigma": sigma}
    return row | {"penalty": penalty, "asked": found.least_shift(penalty)}


def separated(entry: np.ndarray, wrong: np.ndarray) -> bool:
    """True if some threshold separates all wrong labels from all correct ones."""
    return bool(entry[wrong].min() > entry[~wrong].max()) if 0 < wrong.sum() < len(wrong) else True


def measure(name: str, arrays: dict[str, np.ndarray]) -> list[Row]:
    """Measure the conditions for each split of a file, and the quality of the selection."""
    features, given, true = (arrays[part] for part in ("features", "given", "true"))
    if not np.any(given != true):
        name += ", redrawn"
        given = symmetric(true, 0.4, num_classes=int(true.max()) + 1)
    right, rows = given == true, []
    for per_class in tqdm(SPLITS, name):
        found = solve(features, given, per_class, DIM)
        pieces = [np.arange(len(given))]
        if per_class is not None:
            pieces = tables_of_pieces(given, per_class)[:MOST_PIECES]
        pieces = [piece for piece in pieces if not right[piece].all()]
        examined = [examine(features[i], given[i], true[i]) for i in pieces]
        columns = {key: np.array([row[key] for row in examined]) for key in examined[0]}
        row = {key: np.median(values) for key, values in columns.items()}
        row |= {
            "c1": np.mean(columns["c_min"] > 0),
            "c2": np.mean(columns["eta"] > 0),
            "c3": np.mean(columns["asked"] < 1),
            "separated": np.mean([separated(found.entry_penalty[i], ~right[i]) for i in pieces]),
            "base": right.mean(),
        }
        row |= selection_quality(found.clean, right, found.entry_penalty)
        named = {"features": name, "piece": name_of(per_class), "pieces": len(pieces)}
        rows.append(named | {key: float(value) for key, value in row.items()})
    return rows


def run(options: argparse.Namespace) -> list[Row]:
    """Measure and store all rows: simulated ones, then those of the files."""
    rows = simulate(options.draws, FEW_RATES if options.small else RATES)
    for path in options.features:
        rows += measure(path.stem, read_examples(path, options.rows))
    options.out.mkdir(parents=True, exist_ok=True)
    with replace_file(options.out / "rows.jsonl") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return rows


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = report_arguments(__doc__, "theory_conditions")
    add = parser.add_argument
    add("--features", nargs="+", default=[], type=Path, help="features and labels, .npz")
    add("--rows", type=int, default=20_000, help="most rows per file [%(default)s]")
    add("--draws", type=int, default=500, help="draws of the noise [%(default)s]")
    add("--report", action="store_true", help="write the report, not only print it")
    options = parser.parse_args(given)
    if options.small:
        options.rows, options.draws = min(options.rows, 1000), min(options.draws, 20)
    check_files(parser, options.features)
    return options


def main(given: Sequence[str] | None = None) -> None:
    options = parse_arguments(given)
    rows = read_rows(options.out / "rows.jsonl") if options.read else run(options)
    text = theory_conditions_report.render(rows, origin())
    if not options.report:
        print(text)
        return
    write_report(options, [text], theory_conditions_report.csv_rows(rows))
    for name, plot in theory_conditions_report.PLOTS.items():
        plot(rows, options.reports / name)


if __name__ == "__main__":
    one_device_per_core()
    main()
