"""A study: the runs behind a table or a figure, and the report that is made of them.

A study is a dict of cells: what a cell is called (its row, its column ...) -> its runs, which
differ in their seed. `conduct` starts what is not finished, and reads the rest. So a table script
is a dict of cells and a few lines that lay them out, and a broken-off table goes on.
"""

import argparse
import csv
import statistics
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax

from experiments.origin import REPORTS, command_line
from experiments.runs import SAVED, Result, Run, complaints, in_shell, launch, load_config, read
from spr_jax.files import check_folder, replace_file
from spr_jax.registry import suggestion

Cells = dict[Hashable, list[Run]]
MANY = 20  # commands that a reader of the report need not see at once


class Found(NamedTuple):
    """A cell that was run: its runs with how far they came."""

    runs: list[Run]
    results: list[Result]

    @property
    def summaries(self) -> list[dict[str, Any]]:
        return [result.summary for result in self.results if result.status == "finished"]

    def values(self, measure: str) -> list[float]:
        """One of the `measures`, of every finished run that has it."""
        found = map(measures, self.summaries)
        return [values[measure] for values in found if measure in values]


def new_parser(doc: str) -> argparse.ArgumentParser:
    """It says in one sentence what is wrong."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0], allow_abbrev=False)
    parser.error = _fail
    return parser


def report_arguments(doc: str, name: str) -> argparse.ArgumentParser:
    """The options of all that ends in a report."""
    parser = new_parser(doc)
    parser.set_defaults(name=name)
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs", name), help="folder of the runs [%(default)s]")
    add("--small", action="store_true", help="minutes on two cores, on other data or fewer epochs")
    add("--read", action="store_true", help="start nothing: render what is finished")
    add("--reports", type=Path, default=REPORTS, help="folder that the report is written to")
    return parser


def arguments(doc: str, name: str) -> argparse.ArgumentParser:
    """The options that all studies share."""
    parser = report_arguments(doc, name)
    add = parser.add_argument
    add("--data_dir", default="", help="where data sets are kept")
    add("--seeds", type=positive, default=1, help="runs of each cell [%(default)s]")
    add("--jobs", type=int, default=1, help="runs at a time [%(default)s]")
    return parser


def positive(text: str) -> int:
    """The type of an option that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on.")
    return int(text)


def choose(given: Sequence[str] | None, known: Iterable[str], what: str) -> list[str]:
    """Those of the known names that the user gave, or all; in their usual order."""
    known = list(known)
    for name in given or ():
        if name not in known:
            raise ValueError(f"Unknown {what} {name!r}; {suggestion(name, known)}")
    return [name for name in known if not given or name in given]


def repeat(run: Run, options: argparse.Namespace) -> list[Run]:
    """One run for each seed, with the user's data unless its data set is embedded."""
    overrides = run.overrides
    if options.data_dir and "data_dir" in load_config(run.config, run.method).dataset:
        overrides += (("dataset.data_dir", options.data_dir),)
    return [run._replace(overrides=overrides, seed=seed) for seed in range(options.seeds)]


def seeds_of(options: argparse.Namespace) -> str:
    """What the numbers of a report are of, in words."""
    several = f"mean and standard deviation of {options.seeds} seeds"
    return several if options.seeds > 1 else "one seed"


def conduct(cells: Cells, options: argparse.Namespace) -> dict[Hashable, Found]:
    """Run what is not finished, unless it is only to be read."""
    jax.config.update("jax_platforms", "cpu")  # accelerators are for the runs
    try:
        out = check_folder(options.out)
        runs = [run for cell in cells.values() for run in cell]
        found = {run: read(run, out) for run in runs}
        if not options.read:
            found = launch(runs, out, options.jobs)
    except ValueError as error:
        _fail(str(error))
    return {name: Found(runs, [found[run] for run in runs]) for name, runs in cells.items()}


def results_of(found: dict[Hashable, Found]) -> list[Result]:
    return [result for cell in found.values() for result in cell.results]


def measures(summary: dict[str, Any]) -> dict[str, float]:
    """What a finished run is judged by, in per cent; how an epoch was chosen is in the name."""
    last, found = summary["last"], {}
    for name, best in summary["best_on_test"].items():
        test = name.removesuffix("_top1")
        found[f"{test} accuracy, last epoch"] = 100 * last[name]
        found[f"{test} accuracy, best on {test}"] = 100 * best[name]
        if f"{test}_top5" in last:
            found[f"{test} top-5 accuracy, last epoch"] = 100 * last[f"{test}_top5"]
    for share in ("precision", "recall"):
        if f"label_{share}" in last:
            found[f"label {share}, last epoch"] = 100 * last[f"label_{share}"]
    return found


def mean_and_std(values: Sequence[float]) -> tuple[float | None, float | None]:
    """None where there are too few: no mean of nothing, no deviation of one."""
    mean = statistics.fmean(values) if values else None
    return mean, statistics.stdev(values) if len(values) > 1 else None


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def spread(values: Sequence[float], digits: int = 2) -> str:
    """97.31 ± 0.12; the deviation only of several."""
    mean, std = mean_and_std(values)
    return number(mean, digits) + ("" if std is None else f" ± {std:.{digits}f}")


def shown(cell: Found, measure: str) -> str:
    """The spread of one measure; how many runs it is of, if some are missing."""
    values = cell.values(measure)
    partly = f" [{len(values)} of {len(cell.runs)}]" if 0 < len(values) < len(cell.runs) else ""
    return spread(values) + partly


def head(found: dict[Hashable, Found]) -> str:
    """Command, commits, machines and versions of the runs, as a Markdown block."""
    results = results_of(found)
    done = [result for result in results if result.status == "finished"]
    lines = [f"- Command: `{command_line()}`", f"- Runs: {len(done)} of {len(results)} finished"]
    for name in ("commit", "machine", "versions"):
        seen = sorted({result.origin[name] for result in done})
        lines += [f"- {name.capitalize()}: {one}" for one in seen]
    return "\n".join(lines)


def command_of(run: Run, name: str) -> str:
    """That makes a run again; where its maker keeps data is not told."""
    told = tuple(pair for pair in run.overrides if pair[0] != "dataset.data_dir")
    return in_shell(run._replace(overrides=told), Path("runs", name))


def commands(found: dict[Hashable, Found], name: str) -> str:
    """What is missing, and how every cell is made again, as Markdown."""
    done, missing = [], []
    for runs, results in found.values():
        for run, result in zip(runs, results, strict=True):
            (done if result.status == "finished" else missing).append(command_of(run, name))
    parts = complaints(results_of(found))
    parts += _listed("What is missing (`-`) is made by", missing, fold=len(missing) > MANY)
    parts += _listed("The commands of what is there", done, fold=True)
    return "\n\n".join(parts)


def _listed(title, lines, fold):
    if not lines:
        return []
    code = "\n".join(f"    {line}" for line in lines)
    if not fold:
        return [title, code]
    return [f"<details><summary>{title}</summary>", code, "</details>"]


def csv_rows(
    head: Sequence[str],
    names: Sequence[str],
    found: Mapping[tuple, Found],
    paper: Mapping[tuple, float],
    name: str,
) -> list[list]:
    """The head of a table, and a row for each cell: what it is called, its measures, its commands.

    `paper` has numbers for some of the cells, and for some that only the paper has.
    """
    columns = [f"{measure}, {of} (%)" for measure in names for of in ("mean", "std")]
    rows = [[*head, "paper (%)", "runs finished", "runs", *columns, "commits", "command"]]
    for key in dict.fromkeys([*found, *paper]):
        cell = found.get(key, Found([], []))
        row = [*key, number(paper.get(key)), len(cell.summaries), len(cell.runs)]
        for measure in names:
            row += [number(value, 4) for value in mean_and_std(cell.values(measure))]
        commits = {result.commit for result in cell.results if result.status == "finished"}
        lines = [command_of(run, name) for run in cell.runs]
        rows.append([*row, " ".join(sorted(commits)), "\n".join(lines)])
    return rows


def write_report(
    options: argparse.Namespace, parts: Sequence[str], rows: Sequence[Sequence]
) -> None:
    """NAME.md of the parts and NAME.csv of the rows, the first its head; the text is shown."""
    options.reports.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join(part for part in parts if part) + "\n"
    with replace_file(options.reports / f"{options.name}.md") as file:
        file.write(text)
    write_csv(options.reports / f"{options.name}.csv", rows)
    print(text)


def write_csv(path: Path, rows: Sequence[Sequence]) -> None:
    with replace_file(path) as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def exit_status(results: Iterable[Result]) -> int:
    """0; 1 if a run failed; 75 if they were stopped, and the same command goes on."""
    statuses = {result.status for result in results}
    return SAVED if statuses & {"interrupted", "missing"} else int(statuses != {"finished"})


def _fail(sentence: str) -> NoReturn:
    module = sys.modules["__main__"].__spec__.name
    print(f"python -m {module}: {sentence}", file=sys.stderr)
    sys.exit(2)
