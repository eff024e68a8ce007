"""Reports as Markdown."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
