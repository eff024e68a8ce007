"""Table 2: ANIMAL-10N and WebVision, with their own label noise, SPR and its competitors.

    python -m experiments.table2_real_world --data_dir=DIR [--seeds 3]
    python -m experiments.table2_real_world --dataset animal10n
    python -m experiments.table2_real_world --small    # the same methods on scikit-learn's digits
    python -m experiments.table2_real_world --read     # report what is finished

For accelerators; `python -m spr_jax.prepare` says how to get the images. The small table takes
about five minutes on two cores. An interrupted table resumes.
"""

import sys
from argparse import Namespace
from collections.abc import Mapping

from experiments import paper_results
from experiments.harness import study
from experiments.harness.runs import Run
from experiments.harness.study import table

NAME = "table2_real_world"
DATASETS = {
    "animal10n": "ANIMAL-10N, VGG19-BN",
    "webvision": "WebVision (mini), Inception-ResNet-v2",
}
TESTS = {"animal10n": ("test",), "webvision": ("webvision", "imagenet")}
SMALL_RATES = {"animal10n": 0.08, "webvision": 0.2}  # symmetric noise in their place


def cells(options: Namespace) -> study.Cells:
    """(data set, row) -> runs, for each method that the paper compares and we implement."""
    found = {}
    for dataset in study.choose(options.dataset, DATASETS, "data set"):
        names = [name for name in paper_results.TABLE2[dataset] if name in paper_results.METHOD_OF]
        rows = paper_results.variants(paper_results.METHOD_OF[name] for name in reversed(names))
        for row, (method, fields) in rows.items():
            run = Run(f"configs/{dataset}.py", method, tuple(fields.items()))
            if options.small:
                fields = fields | {"noise.rate": SMALL_RATES[dataset]}
                run = Run("configs/digits_sym.py", method, tuple(fields.items()))
            found[dataset, row] = study.repeat(run, options)
    return found


def paper_numbers(found: Mapping[tuple, study.Found]) -> dict[tuple, float]:
    """The paper's number of each cell, and of the competitors that are not implemented."""
    numbers = {}
    for dataset in dict.fromkeys(dataset for dataset, _ in found):
        printed = paper_results.TABLE2[dataset]
        rows = [row for other, row in found if other == dataset]
        for row, name in paper_results.counterparts(rows, printed).items():
            numbers[dataset, row] = printed[name]
    return numbers


def measures(dataset: str, small: bool) -> list[str]:
    """Accuracies of the last and the best epoch on each test set; with many classes also top-5."""
    found = []
    for test in ("test",) if small else TESTS[dataset]:
        found += [f"{test} accuracy, last epoch", f"{test} accuracy, best on {test}"]
        found += [f"{test} top-5 accuracy, last epoch"] * (test != "test")
    return found


def render(dataset, names: list[str], found, numbers: Mapping[tuple, float]) -> str:
    """Methods in rows; the paper's numbers, if there are any, next to ours."""
    rows = [row for other, row in dict.fromkeys([*found, *numbers]) if other == dataset]
    called = paper_results.counterparts(rows, paper_results.TABLE2[dataset])
    lines = []
    for row in rows:
        cell = found.get((dataset, row), study.Found([], []))
        ours = [study.shown(cell, measure) for measure in names]
        theirs = [called[row], numbers[dataset, row]] if numbers else []
        lines.append([row, *theirs, *ours])
    return table(["method", *["in the paper", "paper"] * bool(numbers), *names], lines)


def remarks(options: Namespace) -> str:
    """The facts that a reader needs to judge the numbers."""
    unit = f"Accuracy in per cent; {study.seeds_of(options)}."
    if options.small:
        return (
            f"{unit} These are scikit-learn's digits with symmetric noise, 8 % in place of "
            "ANIMAL-10N and 20 % in place of WebVision: they show that the methods of each "
            "comparison run and learn, and cannot be compared with the paper."
        )
    return (
        f"{unit} The paper's numbers are top-1; it does not say which epoch they belong to. "
        "ImageNet is the second test set of WebVision."
    )


def main(arguments: list[str] | None = None) -> int:
    parser = study.arguments(__doc__, NAME)
    choices = "animal10n, webvision [both]"
    parser.add_argument("--dataset", nargs="+", action="extend", help=choices)
    options = study.parse(parser, arguments)
    found = study.conduct(cells, options)
    numbers = {} if options.small else paper_numbers(found)
    sections, every = [], []
    for dataset in dict.fromkeys(dataset for dataset, _ in found):
        names = measures(dataset, options.small)
        every += names
        title = f"Digits in place of {DATASETS[dataset]}" if options.small else DATASETS[dataset]
        sections.append(f"## {title}\n\n{render(dataset, names, found, numbers)}")
    rows = study.csv_rows(["data set", "method"], list(dict.fromkeys(every)), found, numbers, NAME)
    title = "Table 2: real-world label noise"
    return study.report(options, found, title, [remarks(options), *sections], rows)


if __name__ == "__main__":
    sys.exit(main())
