"""Image files of any kind that Pillow opens, as RGB arrays of one size."""

import dataclasses
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from absl import logging
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.Image import Resampling
from tqdm import tqdm

from spr_jax.devices import num_cores

# Pillow returns the memory of every image to the system; keeping some of it for the next image
# halves the decoding time where page faults are slow.
Image.core.set_blocks_max(4 * num_cores())
# 200 million: the largest sensors of telephones. A small file can claim any size, so its header is
# read first; Pillow warns above this number, and refuses twice as many.
MAX_PIXELS = Image.MAX_IMAGE_PIXELS = 200_000_000
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
TOO_LARGE = f"it has more than {MAX_PIXELS // 1_000_000} million pixels, which is the limit"
ENDINGS = frozenset(".avif .bmp .gif .jfif .jpeg .jpg .pgm .png .ppm .tif .tiff .webp".split())


def image_files(folder: Path) -> list[Path]:
    """List all image files below a folder except hidden ones.

    Sorted by name: the order of a directory listing depends on the file system.
    """
    paths = []
    for home, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] != "."]
        paths += [Path(home, name) for name in names if name[0] != "."]
    return sorted(path for path in paths if path.suffix.lower() in ENDINGS)


def open_image(path: Path | str, *, short_side: int | None = None) -> Image.Image:
    """Open an upright RGB image: transparency becomes white, 16-bit gray becomes 8-bit.

    `short_side` is the length that suffices; JPEG decodes to a smaller image much faster.
    """
    try:
        with Image.open(path) as file:
            if file.width * file.height > MAX_PIXELS:
                raise ValueError(TOO_LARGE)
            if short_side:
                file.draft("RGB", (short_side, short_side))
            file.load()
            image: Image.Image = file
            ImageOps.exif_transpose(image, in_place=True)
            if image.mode in ("F", "I"):
                raise ValueError("its pixels have 32 bits, expected 8 or 16")
            if image.mode.startswith("I;16"):
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            if image.has_transparency_data:
                white = Image.new("RGBA", image.size, "white")
                image = Image.alpha_composite(white, image.convert("RGBA"))
            return image if image.mode == "RGB" else image.convert("RGB")
    except UnidentifiedImageError:
        raise ValueError(f"Cannot read the image {path}: it is damaged or not an image.") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(f"Cannot read the image {path}: {TOO_LARGE}.") from None
    except Exception as error:  # Pillow raises many kinds on damaged files
        raise ValueError(f"Cannot read the image {path}: {error}.") from None


def centre_crop(
    image: Image.Image, size: int, short_side: int, *, resampling: Resampling = Resampling.BILINEAR
) -> np.ndarray:
    """Cut [size, size, 3] from the middle of the image, its short side resized to `short_side`."""
    width, height = image.size
    side = size * min(width, height) / short_side  # of the crop, in pixels of the original
    left, top = (width - side) / 2, (height - side) / 2
    return _resize(image, size, (left, top, left + side, top + side), resampling)


def random_resized_crop(
    image: Image.Image,
    size: int,
    generator: np.random.Generator,
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> np.ndarray:
    """Cut [size, size, 3] from a box of random area and shape, as augment.resized_crop does.

    Ten tries to fit the box into the image, then the largest central box of allowed ratio.
    """
    width, height = image.size
    shares = generator.uniform(*scale, 10) * width * height
    low, high = np.log(ratio)
    ratios = np.exp(generator.uniform(low, high, 10))
    widths, heights = np.sqrt(shares * ratios), np.sqrt(shares / ratios)
    fits = np.flatnonzero((widths <= width) & (heights <= height))
    if len(fits):
        box_width, box_height = widths[fits[0]], heights[fits[0]]
        left, top = generator.uniform(size=2) * (width - box_width, height - box_height)
    else:
        box_width, box_height = min(width, height * ratio[1]), min(height, width / ratio[0])
        left, top = (width - box_width) / 2, (height - box_height) / 2
    return _resize(image, size, (left, top, left + box_width, top + box_height))


def _resize(image, size, box, resampling=Resampling.BILINEAR):
    if image.size == (size, size) and box == (0, 0, size, size):
        return np.asarray(image)
    return np.asarray(image.resize((size, size), resampling, box=box))


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """Files that look like an array [N, size, size, 3] uint8 and are decoded when indexed."""

    paths: Sequence[str] | np.ndarray
    size: int
    short_side: int  # images are resized to it before `size` pixels are cut out
    resampling: Resampling = Resampling.BILINEAR

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.paths), self.size, self.size, 3

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index) -> np.ndarray:
        """Central crops: one image for an integer, a stack for a slice or an array."""
        if np.ndim(index) == 0 and not isinstance(index, slice):
            return self._crop(self._open(index))
        chosen = np.arange(len(self))[index]
        return (
            np.stack([self[i] for i in chosen]) if len(chosen) else np.empty((0, *self.shape[1:]))
        )

    def take(self, index: np.ndarray) -> "ImageFiles":
        """Select files, still undecoded."""
        return dataclasses.replace(self, paths=np.asarray(self.paths)[index])

    def random_crops(self, index: int, num_views: int, seed: Sequence[int]) -> list[np.ndarray]:
        """Cut random views of one image; a pure function of its arguments."""
        image, generator = self._open(index), np.random.default_rng(seed)
        return [random_resized_crop(image, self.size, generator) for _ in range(num_views)]

    def _crop(self, image):
        return centre_crop(image, self.size, self.short_side, resampling=self.resampling)

    def _open(self, index):
        return open_image(self.paths[index], short_side=self.short_side)


def decode_all(files: ImageFiles, into: np.ndarray | None = None) -> list[str]:
    """Decode every file once, into an array if given; return the error of each, or ""."""

    def decode(index):
        try:
            image = files[index]
        except ValueError as error:
            return str(error)
        if into is not None:
            into[index] = image
        return ""

    with ThreadPoolExecutor(num_cores()) as threads:  # Pillow decodes without Python's lock
        errors = threads.map(decode, range(len(files)))
        return list(tqdm(errors, "Decoding", len(files), unit=" images"))


def readable(errors: Sequence[str], *, skip: bool) -> np.ndarray:
    """Mask of the usable images, [N]; any other is an error unless `skip` is set."""
    found = [error for error in errors if error]
    if found and not skip:
        more = f" {len(found) - 1} more cannot be read either." if len(found) > 1 else ""
        raise ValueError(
            f"{found[0]}{more} Repair or remove them, or leave them out with skip_unreadable."
        )
    if found:
        logging.warning("%s It is left out, as are %d more.", found[0], len(found) - 1)
    return np.array([not error for error in errors], bool)
