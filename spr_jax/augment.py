"""Random views of images or vectors, and mixtures of two, drawn where the network runs.

An augmentation maps (key, one image [h, w, channels] or vector [k]) to one of the same shape;
`vmap` makes it a batch.
Its random choices come from the key of the epoch, the example's index in the data set and the
number of the view, so they stay the same under any batch size, batch order or device count.
Pixels stay uint8 until `normalise`, so that padding is black, as it is in torchvision.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax, random

from spr_jax.rand_augment import rand_augment
from spr_jax.registry import lookup

DEVIATION_OF_BYTES = math.sqrt((256**2 - 1) / 12)  # of numbers from 0 to 255
TEST_VIEWS = ("none", "mirror", "mirror_shift")  # kinds of `weighted_views`


class Box(NamedTuple):
    """Rows from `top` to before `bottom`, columns from `left` to before `right`."""

    top: Array
    bottom: Array
    left: Array
    right: Array


class Mixed(NamedTuple):
    images: Array  # [b, h, w, channels]
    share: Array  # weight of an example's own target; its partner's has the rest


def normalise(images: Array, mean: Sequence[float], std: Sequence[float]) -> Array:
    """(pixel / 255 - mean) / std in float32, for each channel of uint8 [..., h, w, channels].

    Numbers that are no pixels are not divided by 255.
    """
    largest = 255 if images.dtype == jnp.uint8 else 1
    center, scale = jnp.asarray(mean, jnp.float32), jnp.asarray(std, jnp.float32)
    return images.astype(jnp.float32) * (1 / (largest * scale)) - center / scale


def flip(key: Array, image: Array) -> Array:
    """Mirror left and right with probability 1/2."""
    return jnp.where(random.bernoulli(key), image[:, ::-1], image)


def pad_crop(
    key: Array,
    image: Array,
    *,
    padding: int = 4,
    mode: str = "constant",  # zeros; or "reflect"
) -> Array:
    """Pad with a frame, then crop a random window of the image's own size."""
    padded = jnp.pad(image, ((padding, padding), (padding, padding), (0, 0)), mode)
    top, left = random.randint(key, (2,), 0, 2 * padding + 1)
    return lax.dynamic_slice(padded, (top, left, 0), image.shape)


def resized_crop(
    key: Array,
    image: Array,
    *,
    size: tuple[int, int] | None = None,  # of the result; None: that of the image
    scale: tuple[float, float] = (0.08, 1),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Array:
    """torchvision's RandomResizedCrop: a window of random area and shape, resized to one size."""
    height, width, _ = image.shape
    box = crop_box(key, height, width, scale=scale, ratio=ratio)
    return resize(image, box, size or (height, width))


def crop_box(
    key: Array,
    height: int,
    width: int,
    *,
    scale: tuple[float, float],  # of the box's area to the image's
    ratio: tuple[float, float],  # of the box's width to its height
) -> Box:
    """The first of ten random boxes that fits, else the largest central one of allowed ratio."""
    area_key, ratio_key, top_key, left_key = random.split(key, 4)
    area = height * width * random.uniform(area_key, (10,), jnp.float32, *scale)
    shape = jnp.exp(random.uniform(ratio_key, (10,), jnp.float32, *map(math.log, ratio)))
    heights = jnp.round(jnp.sqrt(area / shape)).astype(int)
    widths = jnp.round(jnp.sqrt(area * shape)).astype(int)
    fits = (0 < heights) & (heights <= height) & (0 < widths) & (widths <= width)
    found, first = fits.any(), fits.argmax()

    def span(key, side, length, central):
        side = jnp.where(found, side, central)
        spare = length - side
        start = jnp.where(found, random.randint(key, (), 0, spare + 1), spare // 2)
        return start, start + side

    rows = span(top_key, heights[first], height, min(height, round(width / min(ratio))))
    columns = span(left_key, widths[first], width, min(width, round(height * max(ratio))))
    return Box(*rows, *columns)


def resize(image: Array, box: Box, size: tuple[int, int]) -> Array:
    """Crop to a box, then resize bilinearly; when shrinking, average as Pillow does."""
    rows = _triangle_weights(box.top, box.bottom, image.shape[0], size[0])
    columns = _triangle_weights(box.left, box.right, image.shape[1], size[1])
    pixels = image.astype(jnp.float32)
    resized = jnp.einsum("yh,hwc,xw->yxc", rows, pixels, columns, precision="highest")
    if jnp.issubdtype(image.dtype, jnp.integer):
        resized = jnp.round(resized)
    return resized.astype(image.dtype)


def _triangle_weights(start, stop, length, size):
    """Weights of the pixels between start and stop in each new pixel, [size, length]."""
    step = (stop - start).astype(jnp.float32) / size
    centres = start + (jnp.arange(size, dtype=jnp.float32) + 0.5) * step
    pixels = jnp.arange(length, dtype=jnp.float32)
    distance = jnp.abs(centres[:, None] - (pixels + 0.5)) / jnp.maximum(step, 1)
    inside = (start <= pixels) & (pixels < stop)  # jax.image would look beyond the box
    weights = jnp.where(inside, jnp.maximum(1 - distance, 0), 0)
    return weights / weights.sum(axis=1, keepdims=True)


def with_flip(crop: Callable) -> Callable:
    """Flip, then crop: the same distribution as the other order, and faster (the flip fuses)."""

    def augment(key, image):
        flip_key, crop_key = random.split(key)
        return crop(crop_key, flip(flip_key, image))

    return augment


def in_turn(first: Callable, second: Callable) -> Callable:
    """Apply two augmentations, one after the other."""

    def augment(key, image):
        first_key, second_key = random.split(key)
        return second(second_key, first(first_key, image))

    return augment


def feature_noise(key: Array, vector: Array, *, deviation: float = 0.2) -> Array:
    """Add noise to every entry of a vector whose columns have about unit deviation.

    Uniform noise from random bytes: normal noise took longer than the network.
    """
    byte = random.bits(key, vector.shape, jnp.uint8).astype(vector.dtype)
    return vector + (byte - 127.5) * (deviation / DEVIATION_OF_BYTES)


def feature_dropout(key: Array, vector: Array, *, rate: float = 0.1) -> Array:
    """Set random entries of a vector to zero, their mean, and scale the others up."""
    return jnp.where(random.bernoulli(key, rate, vector.shape), 0, vector / (1 - rate))


OF_VECTORS = {
    "none": lambda key, vector: vector,
    "feature_noise": feature_noise,
    "feature_dropout": feature_dropout,
}
AUGMENTATIONS = OF_VECTORS | {
    "flip": flip,
    "crop_flip": with_flip(pad_crop),
    "resized_crop_flip": with_flip(resized_crop),
    "shift": partial(pad_crop, padding=2, mode="reflect"),
    "rand_augment": rand_augment,
    "crop_flip_rand_augment": in_turn(with_flip(pad_crop), rand_augment),
}
ALTERNATING = {"alternate": "none", "shift_alternate": "shift"}  # after an alternating flip
AUGMENTATIONS |= {name: AUGMENTATIONS[rest] for name, rest in ALTERNATING.items()}
OF_IMAGES = {name for name in AUGMENTATIONS if name == "none" or name not in OF_VECTORS}
ON_TOP = 1000  # first stream of randomness of what follows; more views than that nobody asks for


def views(
    images: Sequence[Array],
    index: Array,  # [b]
    key: Array,
    *,
    augmentation: str,
    mean: Sequence[float],
    std: Sequence[float],
    run_key: Array | None = None,
    epoch: Array | int = 0,
    on_top: Sequence[str] = (),
) -> tuple[Array, ...]:
    """Augment and normalise a batch.

    Args:
        images: the batch once per view, uint8 [b, h, w, channels] or float32 [b, k].
        index: position of each example in the data set; it seeds the example's random choices.
        key: randomness of the epoch.
        augmentation: a name in AUGMENTATIONS.
        mean: of pixels / 255, one per channel.
        std: the standard deviation of the same.
        run_key: randomness of the run, the same in every epoch, for flips that alternate.
        epoch: its number, for the same.
        on_top: for each view, another augmentation that follows; empty for none.

    Returns:
        The views, float32 of the same shape each.

    Raises:
        ValueError: there is no augmentation of that name.
    """

    def augmented(name, stream, images):
        keys = jax.vmap(partial(random.fold_in, random.fold_in(key, stream)))(index)
        return jax.vmap(lookup(AUGMENTATIONS, name))(keys, images)

    def view(number, images):
        if augmentation in ALTERNATING:
            images = alternate(run_key, index, epoch + number, images)
        images = augmented(augmentation, number, images)
        if on_top:
            images = augmented(on_top[number], ON_TOP + number, images)
        return normalise(images, mean, std)

    return tuple(view(number, images) for number, images in enumerate(images))


def alternate(key: Array, index: Array, turn: Array | int, images: Array) -> Array:
    """Mirror a random half of the images [b, h, w, channels], and the other half in the next turn.

    So an example is seen in both orientations in any two epochs, and in two views of one epoch.
    """
    is_first_half = jax.vmap(lambda i: random.bernoulli(random.fold_in(key, i)))(index)
    is_mirrored = is_first_half ^ (turn % 2 == 1)
    return jnp.where(is_mirrored[:, None, None, None], images[:, :, ::-1], images)


def weighted_views(images: Array, kind: str) -> list[tuple[float, Array]]:
    """Views of images [b, h, w, channels] in a test, and the weight of each one's prediction.

    none           the images
    mirror         they and their mirror images
    mirror_shift   these, and at half of their weight, both moved by a pixel along the diagonal
    """
    weighted = [(1.0, images)]
    if kind == "mirror_shift":
        framed = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), "reflect")
        weighted = [(0.5, images), (0.25, framed[:, :-2, :-2]), (0.25, framed[:, 2:, 2:])]
    if kind == "none":
        return weighted
    return [(w / 2, view) for w, images in weighted for view in (images, images[:, :, ::-1])]


def cutmix_box(key: Array, height: int, width: int) -> Box:
    """A box of the image's shape around a random pixel, cut off at the border.

    With l ~ Beta(1, 1), its sides are sqrt(1 - max(l, 1 - l)) of the image's: at most 0.707.
    """
    share_key, row_key, column_key = random.split(key, 3)
    share = random.uniform(share_key, dtype=jnp.float32)
    side = jnp.sqrt(jnp.minimum(share, 1 - share))

    def span(key, length):
        half = (side * length).astype(int) // 2
        centre = random.randint(key, (), 0, length)
        return jnp.maximum(centre - half, 0), jnp.minimum(centre + half, length)

    return Box(*span(row_key, height), *span(column_key, width))


def cutmix(key: Array, images: Array, partners: Array) -> Mixed:
    """Paste a box of its partner's pixels into each image, the same box in the whole batch.

    Yun et al., 2019, https://arxiv.org/abs/1905.04899.
    """
    _, height, width, _ = images.shape
    box = cutmix_box(key, height, width)
    row, column = jnp.arange(height)[:, None, None], jnp.arange(width)[:, None]
    inside = (box.top <= row) & (row < box.bottom) & (box.left <= column) & (column < box.right)
    area = (box.bottom - box.top) * (box.right - box.left)
    share = 1 - area.astype(jnp.float32) / (height * width)
    return Mixed(jnp.where(inside, partners, images), share)


def mixup(key: Array, inputs: Array, partners: Array, *, alpha: float = 1.0) -> Mixed:
    """Average each example with its partner, with the same shares in the whole batch.

    With l ~ Beta(alpha, alpha), its own share is max(l, 1 - l): at least one half, as with CutMix.
    Zhang et al., 2018, https://arxiv.org/abs/1710.09412.
    """
    if alpha == 1:
        share = random.uniform(key, dtype=jnp.float32)
    else:
        share = random.beta(key, alpha, alpha, dtype=jnp.float32)
    share = jnp.maximum(share, 1 - share)
    return Mixed(share * inputs + (1 - share) * partners, share)
