"""Where a data set comes from: its publisher's files, what is known of them, how they are had."""

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
    labels: dict[str, np.ndarray]  # [N] uint8 each: `label`, and what other annotators said


class Source(NamedTuple):
    name: str
    class_names: tuple[str, ...]
    counts: dict[str, int]  # examples of each split
    read: Callable[[Path], dict[str, Examples]]  # a folder of the publisher's files -> splits
    homepage: str
    urls: dict[str, str] = {}  # file -> where it is downloaded; empty if only by hand
    sha256: dict[str, str] = {}  # of each split, where known: see `content_hash`
    stock: str = ""  # TFDS's own data set of the same examples, if it has ids


def check_examples(source: Source, split: str, examples: Examples) -> None:
    """Fail on a wrong number of examples and on labels out of range."""
    expected, last = source.counts[split], len(source.class_names) - 1
    if len(examples.images) != expected:
        raise ValueError(
            f"The {split} split of {source.name} has {len(examples.images)} examples; expected "
            f"{expected}: some files are missing or of another data set."
        )
    for name, values in examples.labels.items():
        if len(values) != expected or values.min() < 0 or values.max() > last:
            raise ValueError(
                f"The {split} split of {source.name} has {len(values)} values of {name!r} from "
                f"{values.min()} to {values.max()}; expected {expected} from 0 to {last}."
            )


def content_hash(examples: Examples) -> str:
    """Hash of images and labels, whatever they were stored in."""
    digest = hashlib.sha256(np.ascontiguousarray(examples.images))
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
    """The first of these that exists; names may hold folders."""
    for name in names:
        if (folder / name).exists():
            return folder / name
    choices = f"{names[0]} (or {', '.join(names[1:])})" if len(names) > 1 else names[0]
    raise ValueError(f"There is no {choices} in {folder}; expected the files of the publisher.")


def read_raw(source: Source, raw_dir: str, downloads: Path) -> dict[str, Examples]:
    """The publisher's files: in `raw_dir` or $SPR_RAW_DIR, or its folder NAME; or downloaded."""
    raw_dir = raw_dir or os.environ.get("SPR_RAW_DIR", "")
    if raw_dir:
        folder = Path(raw_dir).expanduser()
        if not folder.is_dir():
            raise ValueError(f"There is no folder {raw_dir}; --raw_dir is where the files are.")
        return source.read(folder / source.name if (folder / source.name).is_dir() else folder)
    folder = _download(source, downloads)
    try:
        return source.read(folder)
    except ValueError:
        for path in folder.iterdir():  # what came is no good: fetch it anew the next time
            for stored in (path.resolve(), Path(f"{path.resolve()}.INFO")):
                stored.unlink(missing_ok=True)
        raise


def _download(source, downloads):
    """Through TFDS's download manager; the files show under their own names."""
    by_hand = f"get it from {source.homepage} and give its folder with --raw_dir"
    if not source.urls:
        raise ValueError(f"{source.name} cannot be downloaded without its publisher; {by_hand}.")
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
    """Say at once what TFDS would say after minutes of trying; a proxy is for it to find."""
    if not urllib.request.getproxies():
        for url in map(urllib.parse.urlsplit, source.urls.values()):
            port = url.port or {"http": 80, "https": 443}[url.scheme]
            socket.create_connection((url.hostname, port), timeout=10).close()
