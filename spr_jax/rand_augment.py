"""Strong augmentation of images: two random operations of a fixed table, then a gray square.

RandAugment (Cubuk et al., 2020, https://arxiv.org/abs/1909.13719) with the random strengths and
ranges of FixMatch (Sohn et al., 2020, https://arxiv.org/abs/2001.07685), and Cutout (DeVries and
Taylor, 2017, https://arxiv.org/abs/1708.04552). An operation maps an image [h, w, channels], whole
numbers from 0 to 255 in float32, and a level from -1 to 1 to an image; what a level means is its
own. All are those of Pillow, up to rounding.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array, lax, random

GRAY = 127
LUMA = (0.299, 0.587, 0.114)  # of red, green and blue in gray


def rand_augment(key: Array, image: Array, *, num_operations: int = 2) -> Array:
    """Apply random operations of random strength, then cut out a square."""
    which_key, level_key, square_key = random.split(key, 3)
    which = random.randint(which_key, (num_operations,), 0, len(OPERATIONS))
    levels = random.uniform(level_key, (num_operations,), jnp.float32, -1, 1)

    def apply(pixels, drawn):
        return lax.switch(drawn[0], tuple(OPERATIONS.values()), pixels, drawn[1]), None

    pixels, _ = lax.scan(apply, image.astype(jnp.float32), (which, levels))
    return cutout(square_key, pixels).astype(image.dtype)


def cutout(key: Array, image: Array, *, share: float = 0.5) -> Array:
    """Paint a square gray, of this share of the shorter side, around a random pixel."""
    height, width, _ = image.shape
    half = int(share * min(height, width)) // 2
    row, column = random.randint(key, (2,), 0, jnp.array([height, width]))
    rows = jnp.abs(jnp.arange(height) - row + 0.5) < half
    columns = jnp.abs(jnp.arange(width) - column + 0.5) < half
    return jnp.where((rows[:, None] & columns)[..., None], jnp.asarray(GRAY, image.dtype), image)


def affine(image, a=1.0, b=0.0, c=0.0, d=0.0, e=1.0, f=0.0):
    """Take pixel (x, y) from (a x + b y + c, d x + e y + f); black from beyond the border."""
    height, width, _ = image.shape
    x, y = jnp.arange(width) + 0.5, jnp.arange(height)[:, None] + 0.5
    column = jnp.floor(a * x + b * y + c).astype(int)
    row = jnp.floor(d * x + e * y + f).astype(int)
    inside = (0 <= row) & (row < height) & (0 <= column) & (column < width)
    found = image[jnp.clip(row, 0, height - 1), jnp.clip(column, 0, width - 1)]
    return jnp.where(inside[..., None], found, 0)


def rotate(image, level):
    """Turn around the center, by up to 30 degrees."""
    height, width, _ = image.shape
    angle = -level * math.pi / 6
    cos, sin, x, y = jnp.cos(angle), jnp.sin(angle), width / 2, height / 2
    return affine(image, cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y)


def auto_contrast(image, level):
    """Stretch each channel to the whole range."""
    low, high = image.min(axis=(0, 1)), image.max(axis=(0, 1))
    return jnp.where(
        high > low, jnp.floor((image - low) * (255 / jnp.maximum(high - low, 1))), image
    )


def equalize(image, level):
    """Map each channel such that its values are about equally frequent."""

    def channel(values):
        count = jnp.zeros(256, int).at[values].add(1)
        step = (values.size - count[values.max()]) // 255
        table = (step // 2 + jnp.cumsum(count) - count) // jnp.maximum(step, 1)
        return jnp.where(step > 0, jnp.minimum(table, 255)[values], values)

    equal = jax.vmap(channel, in_axes=2, out_axes=2)(image.astype(int))
    return equal.astype(image.dtype)


def posterize(image, level):
    """Keep the leading 4 to 8 bits of each value."""
    size = 2.0 ** jnp.floor(5 * jnp.minimum(jnp.abs(level), 0.999))
    return size * jnp.floor(image / size)


def solarize(image, level):
    """Invert the values from a threshold on."""
    return jnp.where(image < 256 * jnp.abs(level), image, 255 - image)


def gray(image):
    """Luminance of a color image, [h, w, 1]."""
    if image.shape[2] == 3:
        image = jnp.sum(image * jnp.asarray(LUMA, image.dtype), axis=2, keepdims=True)
    return jnp.floor(image + 0.5)


def smooth(image):
    """Average each pixel, at weight 5, with its 8 neighbors; the border stays."""
    box = lax.reduce_window(image, 0.0, lax.add, (3, 3, 1), (1, 1, 1), "VALID")
    inner = jnp.floor((box + 4 * image[1:-1, 1:-1]) / 13 + 0.5)
    return image.at[1:-1, 1:-1].set(inner)


def away_from(plain):
    """Make an operation that leaves 5 to 95 % of what tells an image from its plain version."""

    def blend(image, level):
        start, factor = plain(image), 0.05 + 0.9 * jnp.abs(level)
        return jnp.floor(start + factor * (image - start))

    return blend


OPERATIONS = {
    "identity": lambda image, level: image,
    "auto_contrast": auto_contrast,
    "equalize": equalize,
    "posterize": posterize,
    "solarize": solarize,
    "brightness": away_from(jnp.zeros_like),
    "color": away_from(gray),
    "contrast": away_from(lambda image: jnp.floor(gray(image).mean() + 0.5)),
    "sharpness": away_from(smooth),
    "rotate": rotate,
    "shear_x": lambda image, level: affine(image, b=0.3 * level),
    "shear_y": lambda image, level: affine(image, d=0.3 * level),
    "translate_x": lambda image, level: affine(image, c=0.3 * level * image.shape[1]),
    "translate_y": lambda image, level: affine(image, f=0.3 * level * image.shape[0]),
}
