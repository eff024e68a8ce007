"""Files that are written completely or not at all, and the folders they go to."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def replace_file(path: Path, *, binary: bool = False) -> Iterator:
    """Write to a temporary file next to `path` and rename it at the end, or leave no trace."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    text: dict[str, Any] = {} if binary else {"newline": "", "encoding": "utf-8"}
    try:
        with open(handle, "wb" if binary else "w", **text) as file:
            yield file
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask():
    """Permissions to remove: temporary files are private, a result is like any new file."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_folder(path: str | Path) -> Path:
    """Check that a folder can be written to, before any work is done; do not create it."""
    path = Path(path)
    try:
        existing = next(folder for folder in [path, *path.absolute().parents] if folder.exists())
    except (OSError, ValueError) as error:
        raise ValueError(f"Cannot write to {path}: {error}.") from None
    if not existing.is_dir():
        raise ValueError(f"Cannot write to {path}: {existing} is not a folder; give another one.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f"Cannot write to {path}: no permission to write in {existing}.")
    return path


def write_json(path: Path, content: Any) -> None:
    with replace_file(path) as file:
        json.dump(content, file, indent=2)
        file.write("\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote; nothing if there is no such file, or it is damaged."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return {}
