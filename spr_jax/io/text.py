"""Text for a terminal: labels made safe to print, tables, the name of the running command."""

import sys
from collections.abc import Sequence
from pathlib import PurePath


def shown(label) -> str:
    """Return a user's label as text that cannot control a terminal, and that it can display."""
    text = str(label)
    encoding = sys.stdout.encoding or "utf-8"
    encodable = text.encode(encoding, "replace").decode(encoding) == text
    return text if text.isprintable() and encodable else ascii(text)


def print_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, after an empty line; each column is as wide as its longest cell.

    A first column without a name holds titles, which begin at the left.
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    print()
    for line in (head, *rows):
        cells = [text.rjust(width) for text, width in zip(line, widths, strict=True)]
        if not head[0]:
            cells[0] = line[0].ljust(widths[0])
        print("  ".join(cells).rstrip())


def program_name(module: str) -> str:
    """Return the command as it was typed: `spr-detect`, or `python -m spr_jax.detect`."""
    started = PurePath(sys.argv[0]).name
    return started if started.startswith("spr-") else f"python -m {module}"
