"""A comparison of label-error detectors: ours, cleanlab, small loss, neighbours, OLS residuals.

    pip install -e '.[benchmark]'
    python -m experiments.detection mnist_sym40.npz cifar10_sym40.npz mnist_asym40_large.npz \
        --human cifar10n.npz --report

Files and sets of labels are as in `label_sets.py`; `experiments.features` makes such a file from a
finished run, `experiments.feature_files` those named DATASET_sym40. All detectors see the same
features, and those that need predictions the same out-of-fold ones. Each has its default settings
and calls suspects by its own rule.

Measurements go line by line to OUT/detection.jsonl, so an interrupted command resumes.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from experiments.harness.plot import new_figure, save_figure, style
from experiments.harness.provenance import origin
from experiments.harness.study import (
    choose,
    number,
    positive,
    report_arguments,
    table,
    write_report,
)
from experiments.label_sets import (
    HUMAN,
    Case,
    Row,
    cases_of,
    check_files,
    dataset_of,
    is_redrawn,
    measure_all,
)
from experiments.rival_detectors import DETECTORS, FOLDS, Evidence, Verdict, out_of_fold
from spr_jax.devices import one_device_per_core
from spr_jax.training.log import read_rows
from spr_jax.training.selection_metrics import auroc

NAME = "detection"
RATES = {"symmetric": (0.05, 0.2, 0.4), "asymmetric": (0.2, 0.4)}
FEW_RATES = {"symmetric": (0.2,), "asymmetric": (0.4,)}  # with --small
OURS = "spr_jax"
MEASURES = {"precision": "precision", "recall": "recall", "f1": "F1", "auroc": "AUROC"}
TIE = 0.002  # a smaller difference is a tie: redrawing the labels changes results by this much


def measure(names: Sequence[str], features, given, true, seed: int) -> Row:
    """Measure every detector on one set of labels; the time is that of a second, compiled call."""
    wrong = given != true
    start = time.perf_counter()
    evidence = Evidence(features, given, out_of_fold(features, given))
    predicting = time.perf_counter() - start
    found = {}
    for name in names:
        seconds = []
        for _ in range(2):
            start = time.perf_counter()
            verdict = DETECTORS[name].judge(evidence)
            seconds.append(time.perf_counter() - start)
        found[name] = quality(verdict, wrong) | {"seconds_first": seconds[0]}
        found[name]["seconds"] = seconds[1] + predicting * DETECTORS[name].needs_predictions
    return {
        "examples": len(given),
        "features": features.shape[1],
        "wrong_share": float(wrong.mean()),
        "seconds_predicting": predicting,
        "detectors": found,
    }


def quality(verdict: Verdict, wrong: np.ndarray) -> Row:
    """Precision, recall and F1 of the suspects, and AUROC of the ranking."""
    hits = float(np.sum(verdict.suspect & wrong))
    suspects, errors = int(verdict.suspect.sum()), int(wrong.sum())
    return {
        "suspects": suspects,
        "precision": hits / max(suspects, 1),
        "recall": hits / max(errors, 1),
        "f1": 2 * hits / max(suspects + errors, 1),
        "auroc": auroc(verdict.suspicion, wrong),
    }


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """The label sets of all files that contain errors."""
    rates = FEW_RATES if options.small else RATES
    for file in options.files:
        how = {"redraw": is_redrawn(file.stem), "human": options.human is not None}
        for case in cases_of(file, dataset_of(file.stem), rates, 1, **how):
            if case.kind != "none":
                yield case


def title_of(row: Row) -> str:
    """The title of a set of labels: "mnist_sym40, symmetric 0.2"."""
    run = row["run"]
    names = dict(
        zip(HUMAN, ("aggregate", "random 1", "random 2", "random 3", "worst"), strict=True)
    )
    labels = run["labels"]
    if run["kind"] == "human":
        labels = f"people, {names[labels]}"
    if labels == "own":
        labels = f"its own, {run['kind']}"
    return f"{run['file']}, {labels}"


def best_rival(row: Row, measure: str) -> tuple[str, float] | None:
    """The best other detector by one measure, chosen with knowledge of the truth."""
    rivals = {name: found[measure] for name, found in row["detectors"].items() if name != OURS}
    return max(rivals.items(), key=lambda pair: pair[1]) if rivals else None


def comparison(row: Row, measure: str) -> str:
    """0.977 against 0.968 (cleanlab, default): ahead."""
    rival, mine = best_rival(row, measure), row["detectors"][OURS][measure]
    if rival is None:
        return number(mine, 3)
    name, value = rival
    verdict = "even" if abs(mine - value) <= TIE else "ahead" if mine > value else "behind"
    return f"{mine:.3f} against {value:.3f} ({DETECTORS[name].title}): **{verdict}**"


def summary(rows: Sequence[Row]) -> str:
    """Compare ours with the best other detector, which differs from row to row."""
    head = ["labels", "wrong", "F1", "AUROC"]
    lines = [
        [
            title_of(row),
            f"{100 * row['wrong_share']:.1f} %",
            comparison(row, "f1"),
            comparison(row, "auroc"),
        ]
        for row in rows
        if OURS in row["detectors"]
    ]
    return table(head, lines)


def details(row: Row) -> str:
    """A table of all detectors on one set of labels; the best of each column is bold."""
    found = row["detectors"]
    best = {name: max(result[name] for result in found.values()) for name in MEASURES}
    lines = []
    for name, result in found.items():
        values = [
            f"**{result[key]:.3f}**" if result[key] == best[key] else f"{result[key]:.3f}"
            for key in MEASURES
        ]
        line = [DETECTORS[name].title, f"{result['suspects']:,}", *values]
        lines.append([*line, f"{result['seconds']:.2f}"])
    head = ["detector", "suspects", *MEASURES.values(), "seconds"]
    facts = f"{row['examples']:,} examples, {row['features']} features, "
    facts += (
        f"{100 * row['wrong_share']:.1f} % wrong; predictions {row['seconds_predicting']:.1f} s"
    )
    return f"### {title_of(row)}\n\n{facts}\n\n{table(head, lines)}"


def times(rows: Sequence[Row]) -> str:
    """The time of our detector on the largest set, and that of its first call, which compiles."""
    most = max(row["examples"] for row in rows)
    largest = [row["detectors"][OURS] for row in rows if row["examples"] == most]
    return (
        f"{most:,} examples take spr_jax {largest[0]['seconds']:.2f} s, not counting feature "
        f"extraction; the first call of this size, which compiles, "
        f"{largest[0]['seconds_first']:.1f} s."
    )


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw F1 and AUROC, a line for each set of labels, a mark for each detector."""
    figure, panels = new_figure(2, width=4.4, height=1.6 + 0.27 * len(rows))
    places = np.arange(len(rows))[::-1]
    for panel, measure in zip(panels, ("f1", "auroc"), strict=True):
        for look, name in enumerate(DETECTORS):
            drawn = [
                (row["detectors"][name][measure], place)
                for row, place in zip(rows, places, strict=True)
                if name in row["detectors"]
            ]
            if drawn:
                size = 9 if name == OURS else 5
                panel.plot(
                    *zip(*drawn, strict=True),
                    linestyle="",
                    markersize=size,
                    label=DETECTORS[name].title,
                    **style(look),
                )
        panel.set(xlabel=MEASURES[measure], yticks=places)
        panel.set_yticklabels([] if measure == "auroc" else map(title_of, rows))
    save_figure(figure, path, "Label errors found; further right is better")


def render(rows: Sequence[Row]) -> list[str]:
    return [
        "# Which detector finds the most label errors",
        origin("scikit-learn", "cleanlab"),
        "Every detector has its default settings and calls suspects by its own rule; precision, "
        "recall and F1 describe the suspects, AUROC the ranking. Predictions come from a linear "
        f"softmax model on the features, {FOLDS} folds, and their time counts for the detectors "
        "that need them. SPR's path is the paper's rule, which keeps half whatever the noise is. "
        "A file's own labels are those that its network learned from; others are redrawn, or come "
        "from people (CIFAR-10N).",
        "Ours against the best other detector, which differs from row to row and can be chosen "
        f"only with knowledge of the truth; even: within {TIE}.",
        summary(rows),
        f"![{NAME}]({NAME}.png)",
        times(rows) if OURS in rows[0]["detectors"] else "",
        *map(details, rows),
    ]


def csv_rows(rows: Sequence[Row]) -> list[list]:
    columns = ["suspects", *MEASURES, "seconds", "seconds_first"]
    head = ["file", "labels", "noise", "examples", "wrong share", "detector", *columns, "commit"]
    lines = [head]
    for row in rows:
        run = row["run"]
        name = [
            run["file"],
            run["labels"],
            run["kind"],
            row["examples"],
            number(row["wrong_share"], 4),
        ]
        for detector, found in row["detectors"].items():
            values = [found["suspects"], *(number(found[column], 4) for column in columns[1:])]
            lines.append([*name, detector, *values, row["commit"]])
    return lines


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = report_arguments(__doc__, NAME)
    add = parser.add_argument
    add("files", nargs="+", type=Path, help="features and labels, .npz")
    add("--human", type=Path, help="cifar10n.npz, human labels of CIFAR-10")
    add("--detectors", nargs="+", metavar="NAME", help=f"some of {', '.join(DETECTORS)} [all]")
    add("--rows", type=positive, default=60_000, help="most rows per file [%(default)s]")
    add("--report", action="store_true", help="write the report, not only print it")
    options = parser.parse_args(given)
    try:
        options.detectors = choose(options.detectors, DETECTORS, "detector")
    except ValueError as error:
        parser.error(str(error))
    if any("cleanlab" in name for name in options.detectors) and not find_spec("cleanlab"):
        parser.error(
            "cleanlab is not installed; pip install -e '.[benchmark]', or name other --detectors."
        )
    if options.small:
        options.rows = min(options.rows, 1000)
    check_files(parser, options.files)
    return options


def main(given: Sequence[str] | None = None) -> None:
    options = parse_arguments(given)
    store = options.out / f"{NAME}.jsonl"
    if options.read:
        rows = read_rows(store)
    else:
        judge = partial(measure, options.detectors)
        rows = measure_all(judge, list(cases(options)), store, options.rows, options.human)
    parts = render(rows)
    if not options.report:
        print("\n\n".join(parts))
        return
    write_report(options, parts, csv_rows(rows))
    draw(rows, options.reports / f"{NAME}.png")


if __name__ == "__main__":
    one_device_per_core()
    main()
