"""The head of a report: command, commit, date, machine, versions."""

import datetime
import os
import sys
from pathlib import Path

from spr_jax.origin import commit, machine, versions

REPORTS = Path(__file__).parent / "reports"


def origin(*packages: str) -> str:
    """A Markdown block."""
    module = sys.modules["__main__"].__spec__.name
    lines = [
        f"Command: `{' '.join(['python -m', module, *map(os.path.basename, sys.argv[1:])])}`",
        f"Commit: {commit()}",
        f"Date: {datetime.date.today().isoformat()}",
        f"Machine: {machine()}",
        f"Versions: {versions('jax', 'numpy', *packages)}",
    ]
    return "\n".join(f"- {line}" for line in lines)
