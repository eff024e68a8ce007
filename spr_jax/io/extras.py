"""Packages that only some commands need."""

import contextlib
import sys
from collections.abc import Iterator

from spr_jax.io.text import program_name


@contextlib.contextmanager
def needs_extra(extra: str, module: str) -> Iterator[None]:
    """End a command in one sentence if a package is missing: which, and what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("spr_jax"):
            raise
        print(
            f"{program_name(module)}: This needs {error.name}, which is not installed; "
            f'pip install "spr_jax[{extra}]".',
            file=sys.stderr,
        )
        sys.exit(2)
