"""The folder of the reports, and the head of a report: command, commit, date, machine, versions."""

import datetime
import os
import sys
from pathlib import Path

from spr_jax.io.atomic import replace_file
from spr_jax.training.provenance import commit, machine, versions

REPORTS = Path(__file__).parents[1] / "reports"


def _without_folders(argument):
    """The argument without the folders in which its author keeps files."""
    option, equals, value = argument.rpartition("=")
    return f"{option}{equals}{os.path.basename(value)}"


def command_line() -> str:
    """The command that is running, as it was typed."""
    module = sys.modules["__main__"].__spec__.name
    return " ".join(["python -m", module, *map(_without_folders, sys.argv[1:])])


def origin(*packages: str) -> str:
    """The origin of a report, as a Markdown block."""
    lines = [
        f"Command: `{command_line()}`",
        f"Commit: {commit()}",
        f"Date: {datetime.date.today().isoformat()}",
        f"Machine: {machine()}",
        f"Versions: {versions('jax', 'numpy', *packages)}",
    ]
    return "\n".join(f"- {line}" for line in lines)


def show_report(text: str, name: str, *, keep: bool) -> None:
    """Print a report; with `keep`, also write it to reports/NAME.md."""
    text = text.rstrip() + "\n"
    print(text)
    if keep:
        with replace_file(REPORTS / f"{name}.md") as file:
            file.write(text)
