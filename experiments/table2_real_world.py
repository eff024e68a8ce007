"""Table 2: ANIMAL-10N and WebVision, whose labels are wrong by nature, SPR beside its competitors.

    python -m experiments.table2_real_world --data_dir=DIR [--seeds 3]
    python -m experiments.table2_real_world --dataset animal10n
    python -m experiments.table2_real_world --small    # the same methods on scikit-learn's digits
    python -m experiments.table2_real_world --read     # what is finished

For accelerators; `python -m spr_jax.prepare` says how the images are had. The small table takes
about five minutes on two cores. A table that was broken off goes on.
"""

import sys
from argparse import Namespace
from collections.abc import Mapping

from experiments import paper, study
from experiments.markdown import table
from experiments.runs import Run

NAME = "table2_real_world"
DATASETS = {
    "animal10n": "ANIMAL-10N, VGG19-BN",
    "webvision": "WebVision (mini), Inception-ResNet-v2",
}
TESTS = {"animal10n": ("test",), "webvision": ("webvision", "imagenet")}
SMALL_RATES = {"animal10n": 0.08, "webvision": 0.2}  # symmetric noise in their place


def cells(options: Namespace) -> study.Cells:
    """(data set, row) -> runs, for what the paper compares on it and we have."""
    found = {}
    for dataset in study.choose(options.dataset, DATASETS, "data set"):
        names = [name for name in paper.TABLE2[dataset] if name in paper.METHOD_OF]
        rows = paper.variants(paper.METHOD_OF[name] for name in reversed(names))
        for row, (method, fields) in rows.items():
            run = Run(f"configs/{dataset}.py", method, tuple(fields.items()))
            if options.small:
                fields = fields | {"noise.rate": SMALL_RATES[dataset]}
                run = Run("configs/digits_sym.py", method, tuple(fields.items()))
            found[dataset, row] = study.repeat(run, options)
    return found


def paper_numbers(found: Mapping[tuple, study.Found]) -> dict[tuple, float]:
    """The paper's number of each cell, and of the competitors that have no implementation."""
    numbers = {}
    for dataset in dict.fromkeys(dataset for dataset, _ in found):
        printed = paper.TABLE2[dataset]
        rows = [row for other, row in found if other == dataset]
        for row, name in paper.counterparts(rows, printed).items():
            numbers[dataset, row] = printed[name]
    return numbers


def measures(dataset: str, small: bool) -> list[str]:
    """Each accuracy of the last epoch and of the best; of many classes also the top-5."""
    found = []
    for test in ("test",) if small else TESTS[dataset]:
        found += [f"{test} accuracy, last epoch", f"{test} accuracy, best on {test}"]
        found += [f"{test} top-5 accuracy, last epoch"] * (test != "test")
    return found


def render(dataset, names: list[str], found, numbers: Mapping[tuple, float]) -> str:
    """Methods in rows; if there are any, the paper's numbers beside ours."""
    rows = [row for other, row in dict.fromkeys([*found, *numbers]) if other == dataset]
    called = paper.counterparts(rows, paper.TABLE2[dataset])
    lines = []
    for row in rows:
        cell = found.get((dataset, row), study.Found([], []))
        ours = [study.shown(cell, measure) for measure in names]
        theirs = [called[row], numbers[dataset, row]] if numbers else []
        lines.append([row, *theirs, *ours])
    return table(["method", *["in the paper", "paper"] * bool(numbers), *names], lines)


def remarks(options: Namespace) -> str:
    """What a reader has to know of the numbers."""
    told = f"Accuracy in per cent; {study.seeds_of(options)}."
    if options.small:
        return (
            f"{told} These are scikit-learn's digits with symmetric noise, 8 % in the place of "
            "ANIMAL-10N and 20 % in that of WebVision: they show that the methods of each "
            "comparison run and learn, and cannot be compared with the paper."
        )
    return (
        f"{told} The paper's numbers are top-1; it does not say of which epoch. Iterative-CV and "
        "DivideMix are not implemented. ImageNet is the second test set of WebVision."
    )


def main(arguments: list[str] | None = None) -> int:
    parser = study.arguments(__doc__, NAME)
    choices = "animal10n, webvision [both]"
    parser.add_argument("--dataset", nargs="+", action="extend", help=choices)
    options = parser.parse_args(arguments)
    try:
        wanted = cells(options)
    except ValueError as error:
        parser.error(str(error))
    options.name += "_small" * options.small
    found = study.conduct(wanted, options)
    numbers = {} if options.small else paper_numbers(found)
    sections, every = [], []
    for dataset in dict.fromkeys(dataset for dataset, _ in found):
        names = measures(dataset, options.small)
        every += names
        title = (
            f"Digits in the place of {DATASETS[dataset]}" if options.small else DATASETS[dataset]
        )
        sections.append(f"## {title}\n\n{render(dataset, names, found, numbers)}")
    parts = ["# Table 2: labels wrong by nature", study.head(found), remarks(options), *sections]
    rows = study.csv_rows(["data set", "method"], list(dict.fromkeys(every)), found, numbers, NAME)
    study.write_report(options, [*parts, study.commands(found, NAME)], rows)
    return study.exit_status(study.results_of(found))


if __name__ == "__main__":
    sys.exit(main())
