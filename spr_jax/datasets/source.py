"""Sources of data sets: the publisher's files, their checksums, and how to get them."""

import contextlib
import hashlib
import os
import socket
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Examples(NamedTuple):
    images: np.ndarray  # [N, h, w, channels] uint8, in the publisher's order
    labels: dict[str, np.ndarray]  # [N] uint8 each: `label`, and those of other annotators


class Source(NamedTuple):
    name: str
    class_names: tuple[str, ...]
    counts: dict[str, int]  # examples of each split
    read: Callable[[Path], dict[str, Examples]]  # a folder of the publisher's files -> splits
    homepage: str
    urls: dict[str, str] = {}  # file -> download; empty if it must be requested
    sha256: dict[str, str] = {}  # of each split, if known: see `content_hash`
    stock: str = ""  # TFDS's own data set of the same examples, if it has ids


def check_examples(source: Source, split: str, examples: Examples) -> None:
    """Fail on a wrong number of examples and on labels out of range."""
    expected, last = source.counts[split], len(source.class_names) - 1
    if len(examples.images) != expected:
        raise ValueError(
            f"The {split} split of {source.name} has {len(examples.images)} examples; expected "
            f"{expected}: some files are missing or belong to another data set."
        )
    for name, values in examples.labels.items():
        if len(values) != expected or values.min() < 0 or values.max() > last:
            raise ValueError(
                f"The {split} split of {source.name} has {len(values)} values of {name!r} from "
                f"{values.min()} to {values.max()}; expected {expected} from 0 to {last}."
            )


def content_hash(examples: Examples) -> str:
    """Hash images and labels, independent of their storage format."""
    digest = hashlib.sha256(np.ascontiguousarray(examples.images).data)
    for name in sorted(examples.labels):
        digest.update(np.asarray(examples.labels[name], np.uint8).tobytes())
    return digest.hexdigest()


def check_md5(path: Path | str, content: bytes, expected: str) -> None:
    """Fail if a file's content is not the published one."""
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise ValueError(
            f"{path} has the md5 {found}; expected {expected}: it is damaged or another version, "
            "download it again."
        )


def find_file(folder: Path, *names: str) -> Path:
    """Return the first of these that exists; names may include folders."""
    for name in names:
        if (folder / name).exists():
            return folder / name
    choices = f"{names[0]} (or {', '.join(names[1:])})" if len(names) > 1 else names[0]
    raise ValueError(f"There is no {choices} in {folder}; expected the files of the publisher.")


def read_raw(source: Source, raw_dir: str, downloads: Path) -> dict[str, Examples]:
    """Read the publisher's files in `raw_dir` or $SPR_RAW_DIR (or its folder NAME), or download."""
    raw_dir = raw_dir or os.environ.get("SPR_RAW_DIR", "")
    if raw_dir:
        folder = Path(raw_dir).expanduser()
        if not folder.is_dir():
            raise ValueError(
                f"There is no folder {raw_dir}; raw_dir must hold the publisher's files."
            )
        return source.read(folder / source.name if (folder / source.name).is_dir() else folder)
    folder = _download(source, downloads)
    try:
        return source.read(folder)
    except ValueError:
        for path in folder.iterdir():  # a bad download: fetch it again the next time
            for stored in (path.resolve(), Path(f"{path.resolve()}.INFO")):
                stored.unlink(missing_ok=True)
        raise


def _download(source, downloads):
    """Download with TFDS's download manager, then link the files under their own names."""
    by_hand = f"get it from {source.homepage} and give its folder as raw_dir"
    if not source.urls:
        raise ValueError(f"{source.name} must be requested from its publisher; {by_hand}.")
    try:
        _check_online(source)
        import tensorflow_datasets as tfds

        manager = tfds.download.DownloadManager(download_dir=downloads, dataset_name=source.name)
        paths = manager.download(source.urls)
    except Exception as error:  # of sockets, requests, urllib3 or TFDS
        raise ValueError(f"Cannot download {source.name} ({error}); {by_hand}.") from None
    folder = downloads / f"spr_{source.name}"
    folder.mkdir(exist_ok=True)
    for name, path in paths.items():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / name)
        os.symlink(Path(path).absolute(), folder / name)
    return folder


def _check_online(source):
    """Fail at once where TFDS would retry for minutes; it finds a proxy itself."""
    if not urllib.request.getproxies():
        for url in map(urllib.parse.urlsplit, source.urls.values()):
            port = url.port or {"http": 80, "https": 443}[url.scheme]
            socket.create_connection((url.hostname, port), timeout=10).close()
