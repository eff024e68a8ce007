"""A study: the runs behind a table or a figure, and the report that is made from them.

A study is a dict of cells: the name of a cell (its row, its column ...) -> its runs, which differ
in their seed only. `conduct` starts the runs that are not finished and reads the others, so a table
script is a dict of cells and a few lines that lay them out, and an interrupted table resumes.
`report` keeps the results of finished runs beside the report, so it resumes on any machine.
"""

import argparse
import csv
import statistics
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax

from experiments.harness import kept
from experiments.harness.provenance import REPORTS, command_line
from experiments.harness.runs import (
    SAVED,
    Result,
    Run,
    complaints,
    in_shell,
    launch,
    load_config,
    read,
)
from spr_jax.io.atomic import check_folder, replace_file
from spr_jax.registry import suggestion

Cells = dict[Hashable, list[Run]]
FEATURES = "frozen features of CIFAR-10"
FEATURES_CONFIG = "configs/cifar10_features.py"
# A quarter of the config's network and more epochs: plain training memorizes wrong labels, and a
# run takes a quarter of an hour on two cores.
FAST_CONFIG = "configs/cifar10_fast.py"
FAST_FIELDS = {"backbone.widths": (32, 64, 128), "epochs": 16}
FAST = f"a network of the airbench family, {FAST_FIELDS['epochs']} epochs"
# Figures that draw more of a run than its summary: they run it again where its folder is gone.
NEED_FOLDERS = ("figure_features", "figure_precision")
MOST_SHOWN = 20  # commands; a longer list is folded


class Found(NamedTuple):
    """A cell that was run or read: its runs, and how far each of them got."""

    runs: list[Run]
    results: list[Result]

    @property
    def summaries(self) -> list[dict[str, Any]]:
        return [result.summary for result in self.results if result.status == "finished"]

    def values(self, measure: str) -> list[float]:
        """One of the `measures` of every finished run that has it."""
        found = map(measures, self.summaries)
        return [values[measure] for values in found if measure in values]


def new_parser(doc: str) -> argparse.ArgumentParser:
    """A parser that reports a mistake in one sentence."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0], allow_abbrev=False)
    parser.error = fail
    return parser


def report_arguments(doc: str, name: str) -> argparse.ArgumentParser:
    """The options of every command that ends in a report called `name`."""
    parser = new_parser(doc)
    parser.set_defaults(name=name, study=name)
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs", name), help="folder of the runs [%(default)s]")
    add("--small", action="store_true", help="minutes on two cores: other data or fewer epochs")
    add("--read", action="store_true", help="start nothing; report what is finished")
    add("--reports", type=Path, default=REPORTS, help="folder to write the report to")
    return parser


def arguments(
    doc: str, name: str, *, on_features: bool = False, fast: bool = False
) -> argparse.ArgumentParser:
    """The options that all studies share; some are also made on frozen features, or fast."""
    parser = report_arguments(doc, name)
    add = parser.add_argument
    if fast:
        add("--fast", action="store_true", help=f"on CIFAR-10 by {FAST}, for two cores")
    if on_features:
        add("--features", action="store_true", help=f"on {FEATURES}, as table1_features has them")
    add("--data_dir", default="", help="where data sets are kept")
    add("--seeds", type=positive, default=1, help="runs per cell [%(default)s]")
    add("--jobs", type=int, default=1, help="runs at a time [%(default)s]")
    return parser


def parse(parser: argparse.ArgumentParser, given: Sequence[str] | None) -> argparse.Namespace:
    """The user's options; a study that is small, fast or on features has a report of its own."""
    options = parser.parse_args(given)
    variants = {"small": options.small, "features": on_features(options), "fast": is_fast(options)}
    chosen = [name for name, given in variants.items() if given]
    if len(chosen) > 1:
        names = " and ".join(f"--{name}" for name in chosen)
        fail(f"{names} exclude each other; give one of them.")
    options.name = "_".join([options.name, *chosen])
    return options


def on_features(options: argparse.Namespace) -> bool:
    """Whether the study is made on frozen features instead of images."""
    return getattr(options, "features", False)


def is_fast(options: argparse.Namespace) -> bool:
    """Whether the study is made with the fast network."""
    return getattr(options, "fast", False)


def positive(text: str) -> int:
    """The type of an option that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1.")
    return int(text)


def choose(given: Sequence[str] | None, known: Iterable[str], what: str) -> list[str]:
    """The known names that the user gave, or all of them; in their usual order."""
    known = list(known)
    for name in given or ():
        if name not in known:
            raise ValueError(f"Unknown {what} {name!r}; {suggestion(name, known)}")
    return [name for name in known if not given or name in given]


def repeat(run: Run, options: argparse.Namespace) -> list[Run]:
    """One run per seed, with the user's data folder unless the data set is embedded."""
    overrides = run.overrides
    if options.data_dir and "data_dir" in load_config(run.config, run.method).dataset:
        overrides += (("dataset.data_dir", options.data_dir),)
    return [run._replace(overrides=overrides, seed=seed) for seed in range(options.seeds)]


def seeds_of(options: argparse.Namespace) -> str:
    """The number of seeds behind the numbers of a report, in words."""
    several = f"mean and standard deviation of {options.seeds} seeds"
    return several if options.seeds > 1 else "one seed"


def conduct(
    make_cells: Callable[[argparse.Namespace], Cells], options: argparse.Namespace
) -> dict[Hashable, Found]:
    """Run the cells that are neither finished nor kept; with --read, only look at them."""
    jax.config.update("jax_platforms", "cpu")  # accelerators are for the runs
    try:
        cells, out = make_cells(options), check_folder(options.out)
        runs = [run for cell in cells.values() for run in cell]
        path = kept_file(options)
        found = kept.results(runs, path, out) if path else {}
        rest = [run for run in runs if run not in found]
        if options.read:
            found |= {run: read(run, out) for run in rest}
        else:
            found |= launch(rest, out, options.jobs)
    except ValueError as error:
        fail(str(error))
    return {name: Found(runs, [found[run] for run in runs]) for name, runs in cells.items()}


def kept_file(options: argparse.Namespace) -> Path | None:
    """The file beside the report that keeps results; None for a command that needs the folders."""
    if getattr(options, "study", None) in (None, *NEED_FOLDERS):
        return None
    return options.reports / f"{options.name}.runs.jsonl"


def results_of(found: dict[Hashable, Found]) -> list[Result]:
    return [result for cell in found.values() for result in cell.results]


def measures(summary: dict[str, Any]) -> dict[str, float]:
    """The results of a finished run in per cent; a name says how the epoch was chosen."""
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
    """None where there are too few values: no mean of none, no deviation of one."""
    mean = statistics.fmean(values) if values else None
    return mean, statistics.stdev(values) if len(values) > 1 else None


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def spread(values: Sequence[float], digits: int = 2) -> str:
    """97.31 ± 0.12; a single value has no deviation."""
    mean, std = mean_and_std(values)
    return number(mean, digits) + ("" if std is None else f" ± {std:.{digits}f}")


def shown(cell: Found, measure: str) -> str:
    """The spread of one measure, and the number of runs behind it if some are missing."""
    values = cell.values(measure)
    partly = f" [{len(values)} of {len(cell.runs)}]" if 0 < len(values) < len(cell.runs) else ""
    return spread(values) + partly


def table(head: Sequence[str], rows: Sequence[Sequence]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def head(results: Sequence[Result], command: str) -> str:
    """The command, and commits, machines and versions of the runs, as a Markdown block."""
    done = [result for result in results if result.status == "finished"]
    lines = [f"- Command: `{command}`", f"- Runs: {len(done)} of {len(results)} finished"]
    for name in ("commit", "machine", "versions"):
        different = sorted({result.origin[name] for result in done})
        lines += [f"- {name.capitalize()}: {one}" for one in different]
    return "\n".join(lines)


def command_of(run: Run, name: str) -> str:
    """The command that repeats a run, without the folder in which its author keeps data."""
    shown = tuple(pair for pair in run.overrides if pair[0] != "dataset.data_dir")
    return in_shell(run._replace(overrides=shown), Path("runs", name))


def commands(found: dict[Hashable, Found], name: str) -> str:
    """The commands of every cell, missing ones first, as Markdown."""
    done, missing = [], []
    for runs, results in found.values():
        for run, result in zip(runs, results, strict=True):
            (done if result.status == "finished" else missing).append(command_of(run, name))
    parts = complaints(results_of(found))
    parts += _listed("Commands for the missing runs (`-`)", missing, fold=len(missing) > MOST_SHOWN)
    parts += _listed("Commands of the finished runs", done, fold=True)
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
    """The head of a table, and a row for each cell: its name, measures and commands.

    `paper` has the paper's numbers for some of the cells, and for rows that only the paper has.
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


def report(
    options: argparse.Namespace,
    found: dict[Hashable, Found],
    title: str,
    parts: Sequence[str],
    rows: Sequence[Sequence],
) -> int:
    """Write the report of a study: title, origin of its runs, the parts, and all commands.

    The results of its finished runs are kept beside it.

    Args:
      options: those of `parse`, and so the name of the report and its folder.
      found: the cells of `conduct`.
      title: a line.
      parts: paragraphs, tables and pictures in Markdown; empty ones are left out.
      rows: lines of the CSV, the first its head.

    Returns:
      The exit status: 0; 1 if a run failed; 75 if runs are missing and the same command resumes.
    """
    results = results_of(found)
    first = [f"# {title}", head(results, command_line())]
    write_report(options, [*first, *parts, commands(found, options.study)], rows)
    if path := kept_file(options):
        try:
            kept.merge(path, [pair for cell in found.values() for pair in zip(*cell, strict=True)])
        except ValueError as error:
            fail(str(error))
    return exit_status(results)


def write_report(
    options: argparse.Namespace, parts: Sequence[str], rows: Sequence[Sequence]
) -> None:
    """Write the parts to NAME.md and the rows, head first, to NAME.csv; print the text."""
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
    """0; 1 if a run failed; 75 if runs are missing, and the same command resumes."""
    statuses = {result.status for result in results}
    return SAVED if statuses & {"interrupted", "missing"} else int(statuses != {"finished"})


def fail(sentence: str) -> NoReturn:
    """End the command with exit status 2 and one sentence."""
    module = sys.modules["__main__"].__spec__.name
    print(f"python -m {module}: {sentence}", file=sys.stderr)
    sys.exit(2)
