"""Options are checked when a method is built, before any data is loaded."""

from typing import Any


def expect(holds: bool, name: str, value: Any, what: str) -> None:
    """Say in one sentence which option cannot work, and what would."""
    if not holds:
        raise ValueError(f"{name} is {value!r}; expected {what}.")
