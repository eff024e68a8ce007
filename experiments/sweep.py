"""A table and plots of a grid over any fields of a config.

    python -m experiments.sweep --config=configs/mnist_sym.py --out=runs/sweep --jobs=2 \\
        --grid noise.rate=0.2,0.4,0.6,0.8 --grid method=spr,ce --grid seed=0,1,2

`--zip a=1,2 b=3,4` changes fields together, `--set epochs=2` sets a field of all runs, `--dry_run`
lists the runs. Writes sweep.csv, sweep.md and a plot for each field to the folder of the runs. The
same command resumes an interrupted sweep.
"""

import argparse
import itertools
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax

from experiments.harness import study
from experiments.harness.plot import draw_means, new_figure, save_figure, style
from experiments.harness.runs import (
    Result,
    Run,
    complaints,
    config_of,
    fields_of,
    folder,
    in_shell,
    launch,
    load_config,
    read,
)
from experiments.harness.study import mean_and_std, measures, number, spread, table
from spr_jax.io.atomic import check_folder, replace_file
from spr_jax.registry import suggestion
from spr_jax.training.config import check

EXPECTED = "test accuracy, last epoch"


class Axis(NamedTuple):
    """Fields that change together; most often a single one."""

    fields: tuple[str, ...]
    values: list[tuple[str, ...]]  # as they were written


class Row(NamedTuple):
    """Runs that differ only in their seed."""

    point: dict[str, Any]  # the swept fields
    found: dict[str, list[float]]  # measure -> a percentage for each finished run
    commits: list[str]
    open: list[Run]  # not finished
    num_runs: int


def parse_axis(texts: Sequence[str]) -> Axis:
    """noise.rate=0.2,0.4; several of them are zipped."""
    columns = {}
    for field, text in map(parse_setting, texts):
        if not text:
            raise ValueError(f"{field} has no values; write {field}=VALUE,VALUE.")
        if field in columns:
            raise ValueError(f"{field} is given twice.")
        columns[field] = text.split(",")
    lengths = {field: len(values) for field, values in columns.items()}
    if len(set(lengths.values())) > 1:
        each = ", ".join(f"{field} has {length}" for field, length in lengths.items())
        raise ValueError(f"Zipped fields need equally many values, and {each}.")
    return Axis(tuple(columns), list(zip(*columns.values(), strict=True)))


def parse_setting(text: str) -> tuple[str, str]:
    field, equals, value = text.partition("=")
    if not (field and equals):
        raise ValueError(f"Cannot read {text!r}; write FIELD=VALUE.")
    return field.removeprefix("config."), value


def make_runs(config: str, axes: Sequence[Axis], fixed: Sequence[tuple[str, str]]) -> dict:
    """Every run of the grid, checked -> its values of the swept fields."""
    file, _, method = config.partition(":")
    fixed = [("method", method)] * bool(method) + [*fixed]
    swept = [field for axis in axes for field in axis.fields]
    given = swept + [field for field, _ in fixed]
    for field in given:
        if given.count(field) > 1:
            raise ValueError(f"{field} is given twice.")
    runs, homes = {}, set()
    for values in itertools.product(*(axis.values for axis in axes)):
        run = make_run(file, dict(fixed) | dict(zip(swept, itertools.chain(*values), strict=True)))
        check(config_of(run))
        home = folder(run, Path())
        if home in homes:
            raise ValueError(f"The grid holds {home} twice; every value must change the result.")
        homes.add(home)
        chosen = {**dict(run.overrides), "method": run.method, "seed": run.seed}
        runs[run] = {field: chosen[field] for field in swept}
    return runs


def make_run(file: str, texts: dict[str, str]) -> Run:
    """A run with values of the config's types, so that 0.40 and 0.4 are one run."""
    method = texts.get("method") or load_config(file).method.name
    known, values = fields_of(load_config(file, method)), {"seed": 0}
    for field, text in texts.items():
        if field == "method":
            continue
        if field not in known:
            near = suggestion(field, [*known, "method"])
            raise ValueError(f"{file}:{method} has no field {field!r}; {near}")
        values[field] = parse_value(field, text, known[field])
    seed = values.pop("seed")
    return Run(file, method, tuple(sorted(values.items())), seed)


def parse_value(field: str, text: str, kind: type) -> Any:
    truth = {"true": True, "false": False}
    try:
        return truth[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise ValueError(f"{field} is of type {kind.__name__}, and {text!r} is not.") from None


def make_rows(runs: dict[Run, dict], axes: Sequence[Axis], results: dict[Run, Result]) -> list[Row]:
    """One row for all runs that agree in every field that is not swept together with the seed."""
    fields = [field for axis in axes if "seed" not in axis.fields for field in axis.fields]
    groups: dict[tuple, list[Run]] = {}
    for run, point in runs.items():
        groups.setdefault(tuple(point[field] for field in fields), []).append(run)
    rows = []
    for values, members in groups.items():
        done = [results[run] for run in members if results[run].status == "finished"]
        found = {}
        for result in done:
            for measure, value in measures(result.summary).items():
                found.setdefault(measure, []).append(value)
        left = [run for run in members if results[run].status != "finished"]
        commits = sorted({result.commit for result in done})
        point = dict(zip(fields, values, strict=True))
        rows.append(Row(point, found, commits, left, len(members)))
    return rows


def names_of(rows: Iterable[Row]) -> list[str]:
    """All measures that any row has; if there are none, one to show that it is missing."""
    return list(dict.fromkeys(name for row in rows for name in row.found)) or [EXPECTED]


def write_csv(path: Path, rows: list[Row], out: Path) -> None:
    names = names_of(rows)
    head = [*rows[0].point, "runs finished", "runs"]
    head += [f"{name}, {of} (%)" for name in names for of in ("mean", "std")]
    lines = [[*head, "commits", "commands of the others"]]
    for row in rows:
        cells = [*row.point.values(), row.num_runs - len(row.open), row.num_runs]
        for name in names:
            cells += [number(value, 4) for value in mean_and_std(row.found.get(name, []))]
        others = "\n".join(in_shell(run, out) for run in row.open)
        lines.append([*cells, " ".join(row.commits), others])
    study.write_csv(path, lines)


def render(rows: list[Row], results: dict[Run, Result], out: Path, command: str) -> str:
    """The table, where it comes from, and the commands of the runs that are missing."""
    names = names_of(rows)
    lines = []
    for row in rows:
        done = row.num_runs - len(row.open)
        cells = [f"{done} of {row.num_runs}" if row.open else done]
        for name in names:
            cells.append(spread(row.found.get(name, [])))
        lines.append([*row.point.values(), *cells])
    parts = [
        "# Sweep",
        study.head(list(results.values()), command),
        "In per cent; mean and standard deviation over the seeds.",
        table([*rows[0].point, "seeds", *names], lines),
        *(f"![{path.stem}]({path.name})" for path in plots_of(rows, out)),
        *complaints(results.values()),
    ]
    left = [(run, results[run].status) for row in rows for run in row.open]
    if left:
        parts.append("Not finished, with the commands to finish them:")
        parts += [f"- {status}\n\n      {in_shell(run, out)}" for run, status in left]
    return "\n\n".join(parts) + "\n"


def plots_of(rows: list[Row], out: Path) -> list[Path]:
    """A picture file for each swept field, if there is anything to draw."""
    fields = rows[0].point if any(row.found for row in rows) else ()
    return [out / f"{field}.png" for field in fields]


def draw(path: Path, rows: list[Row], field: str, together: Sequence[str], title: str) -> None:
    """Draw every measure over one field; a line for each choice of the others."""
    names, lines = names_of(rows), {}
    for row in rows:
        rest = {name: value for name, value in row.point.items() if name not in together}
        label = ", ".join(f"{name} = {value}" for name, value in rest.items())
        lines.setdefault(label, []).append(row)
    figure, panels = new_figure(len(names), width=3.6)
    first = {}
    for panel, name in zip(panels, names, strict=True):
        what, epoch = name.split(", ")
        panel.sharey(first.setdefault(what, panel))  # to compare last and best epoch
        panel.set(title=epoch, xlabel=field, ylabel=f"{what} (%)")
        draw_panel(panel, lines, field, name)
    save_figure(figure, path, title)


def draw_panel(panel, lines: dict[str, list[Row]], field: str, name: str) -> None:
    """Draw one measure: lines over numbers, points side by side over anything else."""
    values = list(dict.fromkeys(row.point[field] for rows in lines.values() for row in rows))
    is_number = all(type(value) in (int, float) for value in values)
    ticks = values if is_number else range(len(values))
    place = dict(zip(values, ticks, strict=True))
    for line, (label, rows) in enumerate(lines.items()):
        aside = 0 if is_number else 0.6 * ((line + 0.5) / len(lines) - 0.5)
        points = {place[row.point[field]] + aside: row.found.get(name, []) for row in rows}
        look = style(line) | {"linestyle": "-" if is_number else "none"}
        draw_means(panel, points, label=label, **look)
    if is_number and min(values) > 0 and max(values) >= 50 * min(values):
        panel.set_xscale("log")
        panel.minorticks_off()
    elif not is_number:
        panel.set_xlim(-0.5, len(values) - 0.5)
    panel.set_xticks(ticks, list(map(str, values)))


def write(
    runs: dict[Run, dict], axes: Sequence[Axis], results: dict[Run, Result], out: Path, command: str
) -> str:
    """Write all files of a sweep; return the Markdown."""
    rows = make_rows(runs, axes, results)
    out.mkdir(parents=True, exist_ok=True)
    write_csv(out / "sweep.csv", rows, out)
    file, seeds = next(iter(runs)).config, max(row.num_runs for row in rows)
    title = f"{Path(file).stem}, {seeds} seeds: mean and standard deviation"
    for path in plots_of(rows, out):
        together = next(axis.fields for axis in axes if path.stem in axis.fields)
        draw(path, rows, path.stem, together, title if seeds > 1 else Path(file).stem)
    text = render(rows, results, out, command)
    with replace_file(out / "sweep.md") as file:
        file.write(text)
    return text


def main(arguments: list[str] | None = None) -> int:
    """Return the exit status: 0; 1 if a run failed; 75 if runs are missing and it can resume."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.error = _fail
    several = {"nargs": "+", "default": [], "metavar": "FIELD=VALUE"}
    parser.add_argument("--config", required=True, help="a file, or FILE:METHOD")
    parser.add_argument("--out", required=True, type=Path, help="folder of the runs and tables")
    parser.add_argument("--grid", action="extend", **several, help="FIELD=VALUE,VALUE: each value")
    parser.add_argument("--zip", action="append", **several, help="fields that change together")
    parser.add_argument("--set", action="extend", **several, help="fields of all runs")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time [%(default)s]")
    parser.add_argument("--dry_run", action="store_true", help="list the runs, and exit")
    options = parser.parse_args(arguments)
    command = shlex.join(["python", "-m", "experiments.sweep", *(arguments or sys.argv[1:])])
    try:
        out = check_folder(options.out)
        axes = [parse_axis([text]) for text in options.grid] + [*map(parse_axis, options.zip)]
        runs = make_runs(options.config, axes, [*map(parse_setting, options.set)])
        if options.dry_run:
            for run in runs:
                print(f"{read(run, out).status}: {in_shell(run, out)}")
            return 0
        results = launch(runs, out, options.jobs)
        print(write(runs, axes, results, out, command))
    except ValueError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"Cannot write to {error.filename or out}: {error.strerror}.")
    return study.exit_status(results.values())


def _fail(sentence: str) -> NoReturn:
    print(f"python -m experiments.sweep: {sentence}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")  # accelerators are for the runs
    sys.exit(main())
