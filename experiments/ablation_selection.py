"""A report on what SPR's selection depends on: split, ranking, indices, components, training.

    python -m experiments.ablation_selection mnist_sym40.npz cifar10_sym40.npz --seeds 3 --report

Each file holds `features` [N, d], `given` and `true` labels [N], and its name begins with that of
the data set (`experiments.feature_files` makes such files). It is measured with its own labels,
from which the features were learned, and with labels redrawn from the true ones. The section on
accuracy trains on the digits (`ablation_selection_training.py`).

Measurements go line by line to OUT/rankings.jsonl, so an interrupted command resumes; --read makes
the report from the stored lines.
"""

import argparse
import json
import time
from collections.abc import Hashable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from tqdm import tqdm

from experiments import ablation_selection_report
from experiments.ablation_selection_training import cells, training_section
from experiments.harness.provenance import origin
from experiments.harness.study import (
    Found,
    arguments,
    conduct,
    exit_status,
    results_of,
    write_report,
)
from experiments.label_sets import (
    Case,
    Row,
    cases_of,
    check_files,
    dataset_of,
    labels_of,
    read_examples,
)
from experiments.rankings import (
    by_linear_loss,
    by_noise_model,
    by_residual,
    by_studentised_residual,
    in_pieces,
    keep_share,
    orthonormal,
    share_of_right,
    solve,
)
from spr_jax.detection.find import components_for
from spr_jax.devices import one_device_per_core
from spr_jax.training.log import read_rows
from spr_jax.training.selection_metrics import selection_quality

SPLITS = (10, 50, 500, None)  # examples of each class in a piece; None: whole data
FEW_SPLITS = (10, None)
DIM = 10  # components, where they are not the question
COMPONENTS = (5, 10, 16, 32, 64, 128)
RATES = {"symmetric": (0.4, 0.8), "asymmetric": (0.4,)}
REPEATS = 3  # timed calls, of which the fastest counts

HALF, RIGHT_SHARE = "half of each class", "right share of each class"


def name_of(per_class: int | None) -> str:
    return "whole data" if per_class is None else f"{per_class} per class"


def measure(features: np.ndarray, given: np.ndarray, true: np.ndarray, seed: int) -> list[Row]:
    """Measure all questions on one set of labels; a row for each selection."""
    right, num_classes = given == true, int(given.max()) + 1
    shares = {HALF: np.full(num_classes, 0.5), RIGHT_SHARE: share_of_right(right, given)}
    rows = []

    @cache
    def spr(piece, dim):
        return solve(features, given, piece, dim, seed=seed)

    def note(question, piece, dim, ranking, keep, clean, score=None):
        row = {"question": question, "piece": name_of(piece), "components": int(dim)}
        row |= {"ranking": ranking, "keep": keep, "base": float(right.mean())}
        row |= {"kept": float(clean.mean())}
        rows.append(row | selection_quality(clean, right, score))

    def note_ranking(question, piece, dim, ranking, keep, score):
        clean = keep_share(score, given, shares[keep])
        note(question, piece, dim, ranking, keep, clean, score)

    for piece in fitting(SPLITS, given):
        found = spr(piece, DIM)
        note_ranking("split", piece, DIM, "entry", HALF, found.entry_penalty)
        if piece is not None:
            note(
                "split", piece, DIM, "entry", "half of each piece", found.clean, found.entry_penalty
            )

    for piece in FEW_SPLITS:  # positions in a shuffled visiting order, taken for indices
        clean = spr(piece, DIM).clean
        visited = np.random.default_rng(seed).permutation(len(clean))
        note("defect", piece, DIM, "entry", "mapped back", clean)
        note("defect", piece, DIM, "entry", "index defect", clean[visited])

    for piece in FEW_SPLITS:
        dim = DIM if piece else components_for(len(given), num_classes=num_classes)
        scores = {"entry": spr(piece, dim).entry_penalty}
        scores |= rivals(features, given, piece, dim, seed)
        for ranking, score in scores.items():
            for keep in shares:
                note_ranking("ranking", piece, dim, ranking, keep, score)

    for piece in FEW_SPLITS:
        most = min(features.shape[1], piece * num_classes - 2 if piece else len(given))
        for dim in (dim for dim in COMPONENTS if dim <= most):
            note_ranking("components", piece, dim, "entry", HALF, spr(piece, dim).entry_penalty)
    return rows


def time_splits(features: np.ndarray, given: np.ndarray) -> list[Row]:
    """Measure the processor seconds of a call, which other work on the machine does not change."""
    rows = []
    for piece in fitting(SPLITS, given):
        seconds = []
        for _ in range(1 + REPEATS):  # the first may compile
            start = time.process_time()
            solve(features, given, piece, DIM)
            seconds.append(time.process_time() - start)
        row = {"question": "time", "piece": name_of(piece), "components": DIM}
        rows.append(row | {"seconds": min(seconds[1:])})
    return rows


def fitting(splits: Sequence[int | None], labels: np.ndarray) -> list[int | None]:
    """The splits whose pieces are smaller than the largest class."""
    largest = np.bincount(labels).max()
    return [size for size in splits if size is None or size < largest]


def rivals(features, given, piece, dim, seed) -> dict[str, np.ndarray]:
    """Other rankings on the same components; in pieces, those that need few examples."""
    plain = {"residual": by_residual, "studentised": by_studentised_residual}
    if piece is not None:
        pieces = features, given, piece, dim, seed
        return {name: in_pieces(ranking, *pieces) for name, ranking in plain.items()}
    basis = orthonormal(features, dim, intercept=True)
    found = {name: ranking(basis, given) for name, ranking in plain.items()}
    found["noise model"] = by_noise_model(features, given, dim)
    return found | {"linear loss": by_linear_loss(basis, given)}


def cases_of_file(path: Path, seeds: int) -> list[Case]:
    """The file's own labels, and redrawn ones."""
    cases = cases_of(path, dataset_of(path.stem), RATES, seeds, redraw=True, human=False)
    return [case for case in cases if case.labels != "none"]


def measure_all(options: argparse.Namespace) -> list[Row]:
    """The rows of all label sets, measured unless they are stored in OUT."""
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "rankings.jsonl"
    known = read_rows(store)
    cases = [case for path in options.files for case in cases_of_file(path, options.seeds)]
    rows = []
    for case in (bar := tqdm(cases, "Label sets")):
        name = {"features": case.file.stem, "labels": case.labels, "seed": case.seed}
        name |= {"most_rows": options.rows}
        bar.set_postfix_str(f"{case.file.stem}, {case.labels}")
        found = [row for row in known if name.items() <= row.items()]
        if not found and not options.read:
            arrays = read_examples(case.file, options.rows)
            given = labels_of(case, arrays, None)
            found = measure(arrays["features"], given, arrays["true"], case.seed)
            if case.labels == "own":  # time barely depends on the labels
                found += time_splits(arrays["features"], given)
            found = [name | row for row in found]
            with open(store, "a") as file:
                file.writelines(json.dumps(row) + "\n" for row in found)
        rows += found
    return rows


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = arguments(__doc__, "ablation_selection")
    parser.add_argument("files", nargs="+", type=Path, help="features and labels, .npz")
    parser.add_argument("--rows", type=int, default=20_000, help="most rows per file [%(default)s]")
    parser.add_argument("--report", action="store_true", help="write the report, not only print it")
    options = parser.parse_args(given)
    if options.small:
        options.seeds, options.rows = 1, min(options.rows, 1000)
    check_files(parser, options.files)
    return options


def main(given: Sequence[str] | None = None) -> int:
    options = parse_arguments(given)
    rows = measure_all(options)
    found: dict[Hashable, Found] = conduct(cells, options)
    parts = [ablation_selection_report.render(rows, origin("scikit-learn"))]
    parts.append(training_section(found, options.name))
    if options.report:
        write_report(options, parts, ablation_selection_report.csv_rows(rows))
        for name, plot in ablation_selection_report.PLOTS.items():
            plot(rows, options.reports / name)
    else:
        print("\n\n".join(parts))
    return exit_status(results_of(found))


if __name__ == "__main__":
    one_device_per_core()
    raise SystemExit(main())
