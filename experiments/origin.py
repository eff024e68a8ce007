"""Where reports are kept, and their head: command, commit, date, machine, versions."""

import datetime
import os
import sys
from pathlib import Path

from spr_jax.files import replace_file
from spr_jax.origin import commit, machine, versions

REPORTS = Path(__file__).parent / "reports"


def _without_folders(argument):
    """A report does not tell where its maker keeps files."""
    option, equals, value = argument.rpartition("=")
    return f"{option}{equals}{os.path.basename(value)}"


def command_line() -> str:
    """What was typed."""
    module = sys.modules["__main__"].__spec__.name
    return " ".join(["python -m", module, *map(_without_folders, sys.argv[1:])])


def origin(*packages: str) -> str:
    """A Markdown block."""
    lines = [
        f"Command: `{command_line()}`",
        f"Commit: {commit()}",
        f"Date: {datetime.date.today().isoformat()}",
        f"Machine: {machine()}",
        f"Versions: {versions('jax', 'numpy', *packages)}",
    ]
    return "\n".join(f"- {line}" for line in lines)


def show_report(text: str, name: str, *, keep: bool) -> None:
    """Print a report; keep it as reports/NAME.md, if that is asked for."""
    text = text.rstrip() + "\n"
    print(text)
    if keep:
        with replace_file(REPORTS / f"{name}.md") as file:
            file.write(text)
