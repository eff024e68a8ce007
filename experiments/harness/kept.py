"""Results of finished runs beside their report, for machines that do not have the runs' folders.

REPORTS/NAME.runs.jsonl has a line for each finished run and is committed, so a table can be
continued anywhere, and shows all that was measured for it. A line holds the config of its run, and
counts only as long as the run would have the same one today.
"""

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from experiments.harness.runs import Result, Run, config_of, decisive, folder
from spr_jax.io.atomic import replace_file
from spr_jax.training.old_configs import CHANGE_NO_RESULT, differences
from spr_jax.training.workdir import as_json

SHOWN = ("last", "best_on_test", "seconds_train", "seconds_select")  # of a summary, by any table


class Kept(NamedTuple):
    """What a line says about a finished run."""

    run: Run  # without overrides that change no result
    origin: dict[str, str]  # commit, machine and versions
    summary: dict[str, Any]  # of summary.json, what tables show
    resolved: dict[str, Any]  # the config, without fields that change no result


Name = tuple[str, str, str, int]


def name_of(run: Run) -> Name:
    """What tells a run from others; lines are sorted by it."""
    return run.config, run.method, json.dumps(decisive(run.overrides)), run.seed


def from_folder(run: Run, result: Result) -> Kept:
    """Keep a finished run.

    Its own config does not differ from today's, which also has the fields that were added since it
    began: written out, so that a later change of their defaults is noticed.
    """
    bare = run._replace(overrides=decisive(run.overrides))
    summary = {name: value for name, value in (result.summary or {}).items() if name in SHOWN}
    return Kept(bare, result.origin, summary, _deciding(as_json(config_of(run))))


def _deciding(config, prefix=""):
    """The fields of a config that can change a result; the user's folders are not among them."""
    return {
        name: _deciding(value, f"{prefix}{name}.") if isinstance(value, dict) else value
        for name, value in config.items()
        if not f"{prefix}{name}".startswith(CHANGE_NO_RESULT)
    }


def as_line(one: Kept) -> str:
    run = one.run._asdict() | {"overrides": dict(one.run.overrides)}
    return json.dumps(run | {name: getattr(one, name) for name in Kept._fields[1:]}) + "\n"


def _parse(line, place):
    with contextlib.suppress(json.JSONDecodeError):
        match json.loads(line):
            case {
                "config": str(config),
                "method": str(method),
                "overrides": dict(overrides),
                "seed": int(seed),
                "origin": {"commit": str(), "machine": str(), "versions": str()} as origin,
                "summary": {"last": dict(), "best_on_test": dict()} as summary,
                "resolved": dict(resolved),
            }:
                run = Run(config, method, tuple(overrides.items()), seed)
                return Kept(run, origin, summary, resolved)
    raise ValueError(f"{place} is not the result of a run; restore it from git, or delete it.")


def load(path: Path) -> dict[Name, Kept]:
    """Read the results of a file; none if it does not exist.

    Raises:
      ValueError: if a line is damaged.
    """
    lines = path.read_text().splitlines() if path.exists() else []
    several = [_parse(line, f"Line {number} of {path}") for number, line in enumerate(lines, 1)]
    return {name_of(one.run): one for one in several}


def merge(path: Path, found: Iterable[tuple[Run, Result]]) -> None:
    """Write runs that are finished in their folders to a file; lines of other runs stay in it.

    Raises:
      ValueError: if a line is damaged.
    """
    done = [pair for pair in found if pair[1].status == "finished" and pair[1].folder.exists()]
    if not done:
        return
    several = load(path) | {name_of(run): from_folder(run, result) for run, result in done}
    with replace_file(path) as file:
        file.writelines(as_line(several[name]) for name in sorted(several))


def results(runs: Iterable[Run], path: Path, out: Path) -> dict[Run, Result]:
    """Find runs that have no folder but a line, of the config that they have today.

    Raises:
      ValueError: if a line is damaged.
    """
    several, found = load(path), {}
    for run in runs:
        one, home = several.get(name_of(run)), folder(run, out)
        if one and not home.exists() and not differences(one.resolved, as_json(config_of(run))):
            found[run] = Result("finished", home, one.summary, one.origin)
    return found
