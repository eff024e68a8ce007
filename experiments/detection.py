"""Which detector finds the most label errors: ours beside cleanlab, small loss, neighbours, OLS.

    pip install -e '.[benchmark]'
    python -m experiments.detection mnist_sym40.npz cifar10_sym40.npz mnist_asym40_large.npz \
        --human cifar10n.npz --report

Files and sets of labels are as in `label_sets.py`; `experiments.features` makes such a file of a
finished run. All detectors see the same features, and those that need predictions the same ones,
out of fold. Each is used as it comes, and tells suspects by its own rule.

What is measured goes line by line to OUT/detection.jsonl, so that what was broken off goes on.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from experiments.detectors import DETECTORS, FOLDS, Evidence, Verdict, out_of_fold
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
from experiments.markdown import table
from experiments.origin import origin
from experiments.plot import new_figure, save_figure, style
from experiments.study import choose, number, positive, report_arguments, write_report
from spr_jax.devices import one_device_per_core
from spr_jax.evaluate import auroc
from spr_jax.metrics import read_rows

NAME = "detection"
RATES = {"symmetric": (0.05, 0.2, 0.4), "asymmetric": (0.2, 0.4)}
FEW_RATES = {"symmetric": (0.2,), "asymmetric": (0.4,)}  # with --small
OURS = "spr_jax"
MEASURES = {"precision": "precision", "recall": "recall", "f1": "F1", "auroc": "AUROC"}
EVEN = 0.002  # a difference that is none: of the order of another draw of the labels


def measure(names: Sequence[str], features, given, true, seed: int) -> Row:
    """Every detector on one set of labels; seconds are of a second call, which compiles nothing."""
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
    """Of the suspects: how many are wrong, how many of the wrong they are; and of the ranking."""
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
    """Of all files; labels without errors have nothing to be found."""
    rates = FEW_RATES if options.small else RATES
    for file in options.files:
        how = {"redraw": is_redrawn(file.stem), "human": options.human is not None}
        for case in cases_of(file, dataset_of(file.stem), rates, 1, **how):
            if case.kind != "none":
                yield case


# The report.


def title_of(row: Row) -> str:
    """Of a set of labels: "mnist_sym40, symmetric 0.2"."""
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
    """The best of the others by one measure, chosen by one who knows the truth."""
    rivals = {name: found[measure] for name, found in row["detectors"].items() if name != OURS}
    return max(rivals.items(), key=lambda pair: pair[1]) if rivals else None


def said_of(row: Row, measure: str) -> str:
    """0.977 against 0.968 (cleanlab, as it comes): ahead."""
    rival, mine = best_rival(row, measure), row["detectors"][OURS][measure]
    if rival is None:
        return number(mine, 3)
    name, value = rival
    verdict = "even" if abs(mine - value) <= EVEN else "ahead" if mine > value else "behind"
    return f"{mine:.3f} against {value:.3f} ({DETECTORS[name].title}): **{verdict}**"


def summary(rows: Sequence[Row]) -> str:
    """Ours against the best of the others, which is another one from line to line."""
    head = ["labels", "wrong", "F1", "AUROC"]
    lines = [
        [
            title_of(row),
            f"{100 * row['wrong_share']:.1f} %",
            said_of(row, "f1"),
            said_of(row, "auroc"),
        ]
        for row in rows
        if OURS in row["detectors"]
    ]
    return table(head, lines)


def details(row: Row) -> str:
    """All detectors on one set of labels; the best of a column is bold."""
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
    """Of ours on the largest set, also of the first call in a process, which compiles."""
    most = max(row["examples"] for row in rows)
    largest = [row["detectors"][OURS] for row in rows if row["examples"] == most]
    return (
        f"{most:,} examples take spr_jax {largest[0]['seconds']:.2f} s after their features are "
        f"there; the first call with so many {largest[0]['seconds_first']:.1f} s, as it compiles."
    )


def draw(rows: Sequence[Row], path: Path) -> None:
    """F1 and AUROC, a line for each set of labels, a mark for each detector."""
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
        "Suspects are those of each detector's own rule, with no option set; precision, recall and "
        "F1 are of these, AUROC of its ranking. Predictions are of a linear softmax model on the "
        f"features, {FOLDS} folds, and their time counts for those that need them. SPR's path is "
        "the paper's rule, which keeps half whatever the noise is. A file's own labels are those "
        "that its network learned from; others are drawn anew, or people's (CIFAR-10N).",
        "Ours against the best of the others, which is another one from line to line and is known "
        f"only to one who knows the truth; even: within {EVEN}.",
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
    add("--human", type=Path, help="cifar10n.npz, labels of people for CIFAR-10")
    add("--detectors", nargs="+", metavar="NAME", help=f"some of {', '.join(DETECTORS)} [all]")
    add("--rows", type=positive, default=60_000, help="at most, of a file [%(default)s]")
    add("--report", action="store_true", help="write it, do not only show it")
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
