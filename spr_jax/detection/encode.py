"""Features of images from a pretrained encoder, computed in blocks and kept in a folder.

    features = encode_images(["a.jpg", "b.png"])  # or [N, h, w, channels] uint8

Threads decode the next blocks while the device encodes one, so memory does not grow with the
number of images. Blocks are taken in a fixed random order: the first of them are a sample of all
images, on which `choose_encoder.py` decides. A folder holds

    features.npy    [N, d] float32, NaN where an image cannot be read; features.partial.npy until
                    all are there. Single precision is what the detector computes with: features
                    from the folder give what they gave from memory, and none overflows, whatever
                    an encoder of the user's own returns.
    components.npy  their leading principal components (`compress.py`)
    features.json   what they are features of, how many are there, why images cannot be read
"""

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import open_memmap
from PIL import Image
from tqdm import tqdm

from spr_jax.datasets.cache import alone
from spr_jax.datasets.images import ImageFiles, Resampling, centre_crop
from spr_jax.devices import num_cores
from spr_jax.encoders import Encoder, load_encoder
from spr_jax.io.atomic import read_json, write_json
from spr_jax.io.signals import Stopped

DEFAULT_ENCODER = "efficientnet_lite0"
BLOCK = 256  # images; what Ctrl-C loses at most: a few seconds of two cores
BLOCKS_AHEAD = 2  # decoded while the device encodes


class Encoded(NamedTuple):
    features: np.ndarray  # [N, d] float32; NaN where an image cannot be read
    errors: dict[int, str]  # by position: a sentence that says why not


def encode_images(
    images: Any,  # [N] paths of image files, or [N, h, w(, channels)] uint8
    encoder: str | Encoder = DEFAULT_ENCODER,
    *,
    progress: bool = False,
) -> np.ndarray:
    """Compute the features of images, for `find_label_errors` or anything else.

    Args:
      images: files of any size and kind that Pillow opens, or an array of grey or RGB images.
      encoder: a name in `spr_jax.encoders.ENCODERS`, or onnx:FILE.
      progress: show a progress bar.

    Returns:
      [N, d] float32, in the order given; NaN in the rows of files that cannot be read.

    Raises:
      ValueError: in one sentence, what was given and what is expected.
    """
    encoder = load_encoder(encoder) if isinstance(encoder, str) else encoder
    decode = _decoder(images, encoder.size)
    features = np.empty((len(images), encoder.dim), np.float32)
    with tqdm(total=len(images), desc="Encoding", unit=" images", disable=not progress) as bar:
        for rows, found, _ in _blocks(decode, encoder, np.arange(len(images))):
            features[rows] = found
            bar.update(len(rows))
    return features


def folder_of(encoder: Encoder, home: Path) -> Path:
    """Where the features of an encoder are kept: one folder for each, so the latest of each."""
    return home / encoder.name.partition(":")[0]


def sample_order(count: int) -> np.ndarray:
    """[N], the order in which images are encoded."""
    return np.random.default_rng(0).permutation(count)


def encode_in_folder(
    images: Any,  # [N, h, w, channels] uint8, or image files
    encoder: Encoder,
    home: Path,
    *,
    key: str,
    at_least: int | None = None,
    should_stop: Callable[[int], bool] = lambda block: False,
) -> Encoded:
    """Compute the features of images, and keep each block in a folder, from where it resumes.

    Args:
      images: an array, or files.
      encoder: gives the features.
      home: the folder. What it holds of other images, or of another version of the encoder, is
        replaced.
      key: identifies the images.
      at_least: stop after this many images in `sample_order`; the others have no features yet.
      should_stop: asked after every block.

    Raises:
      Stopped: if it was asked to stop; the same call resumes.
      OSError: if the folder cannot be written to.
    """
    about = {"encoder": encoder.name, "version": encoder.version, "images": key}
    shape = len(images), encoder.dim
    with alone(home.parent):
        kept = _Kept(home, about | {"shape": list(shape)})
        order = sample_order(len(images))[: at_least or len(images)]
        if kept.done < len(order):
            blocks = _blocks(_decoder(images, encoder.size), encoder, order[kept.done :])
            title = f"Encoding ({encoder.name})"
            with tqdm(total=len(order), initial=kept.done, desc=title, unit=" images") as bar:
                for number, (rows, found, errors) in enumerate(blocks):
                    kept.add(rows, found, errors)
                    bar.update(len(rows))
                    if should_stop(number) and kept.done < len(order):
                        raise Stopped
        return Encoded(kept.features(), kept.errors)


class _Kept:
    """The features in a folder, as far as they are there; `done` counts in `sample_order`."""

    def __init__(self, home: Path, about: dict[str, Any]) -> None:
        self.home, self.about, self.done = home, about, 0
        self.errors: dict[int, str] = {}
        self.final, self.partial = home / "features.npy", home / "features.partial.npy"
        stored = read_json(home / "features.json")
        if {key: stored.get(key) for key in about} == about and self._is_there():
            self.done = stored["done"]
            self.errors = {int(index): error for index, error in stored["errors"].items()}
        elif home.exists():
            shutil.rmtree(home)

    def _is_there(self):
        """Tell whether there is a file that holds all rows."""
        rows, dim = self.about["shape"]
        files = (path for path in (self.final, self.partial) if path.exists())
        return any(path.stat().st_size > 4 * rows * dim for path in files)

    def add(self, rows: np.ndarray, found: np.ndarray, errors: dict[int, str]) -> None:
        """Write a block; it counts once features.json says so."""
        if not self._is_there():
            self.home.mkdir(parents=True)
            file = open_memmap(self.partial, "w+", np.float32, tuple(self.about["shape"]))
            # A full disk is an error now; a page of the map that has no room would be a crash.
            with open(self.partial, "r+b") as whole:
                os.posix_fallocate(whole.fileno(), 0, os.path.getsize(self.partial))
        else:
            file = open_memmap(self.partial, "r+")
        file[rows] = found
        file.flush()
        self.done += len(rows)
        self.errors |= errors
        stored = {"done": self.done, "errors": self.errors}
        write_json(self.home / "features.json", self.about | stored)
        if self.done == len(file):
            os.replace(self.partial, self.final)

    def features(self) -> np.ndarray:
        if self.done == self.about["shape"][0] and self.partial.exists():  # killed before this
            os.replace(self.partial, self.final)
        path = self.final if self.final.exists() else self.partial
        return np.load(path, mmap_mode="r", allow_pickle=False)


def _blocks(
    decode: Callable[[int], np.ndarray], encoder: Encoder, order: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, dict[int, str]]]:
    """Yield positions, features and errors of one block after another."""

    def attempt(index):
        try:
            return decode(index)
        except ValueError as error:
            return str(error)

    parts = deque(np.split(order, range(BLOCK, len(order), BLOCK)) if len(order) else [])
    ahead: deque[tuple[np.ndarray, list]] = deque()
    with ThreadPoolExecutor(num_cores()) as threads:  # Pillow decodes without Python's lock
        try:
            while parts or ahead:
                while parts and len(ahead) <= BLOCKS_AHEAD:
                    rows = parts.popleft()
                    ahead.append((rows, [threads.submit(attempt, row) for row in rows.tolist()]))
                rows, decoding = ahead.popleft()
                yield rows, *_encode(encoder, rows, [each.result() for each in decoding])
        finally:
            threads.shutdown(cancel_futures=True)


def _encode(encoder, rows, decoded):
    """Features of a block; a file that cannot be read stands in it as a black image."""
    blank = np.zeros((encoder.size, encoder.size, 3), np.uint8)
    errors = {
        int(row): each for row, each in zip(rows, decoded, strict=True) if isinstance(each, str)
    }
    is_error = np.array([isinstance(each, str) for each in decoded])
    if is_error.all():
        return np.full((len(rows), encoder.dim), np.nan, np.float32), errors
    block = np.stack([blank if isinstance(each, str) else each for each in decoded])
    features = np.array(encoder.encode(block), np.float32)
    features[is_error] = np.nan
    return features, errors


def _decoder(images, size: int) -> Callable[[int], np.ndarray]:
    """Return the function that gives one image as [size, size, 3] uint8, by its position.

    The central square; the encoder's measurement preferred bicubic for enlarging.
    """
    if not isinstance(images, np.ndarray) or images.ndim == 1:
        paths = images.paths if isinstance(images, ImageFiles) else images
        files = ImageFiles(paths, size, size, Resampling.BICUBIC)
        return files.__getitem__
    channels = images.shape[3:]
    if images.dtype != np.uint8 or images.ndim < 3 or channels not in ((), (1,), (3,)):
        raise ValueError(
            f"Images have the shape {images.shape} and the type {images.dtype}; expected "
            "[N, height, width] or [N, height, width, 1 or 3] of type uint8, or a list of files."
        )
    is_grey = channels != (3,)

    def decode(index):
        pixels = images[index]
        image = Image.fromarray(pixels.reshape(pixels.shape[:2]) if is_grey else pixels)
        square = centre_crop(image, size, size, resampling=Resampling.BICUBIC)
        return np.repeat(square[..., None], 3, axis=2) if is_grey else square

    return decode
