"""Each operation is Pillow's, up to rounding; the square and the draws are what they say."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_images import KEY, drawn, make_images
from PIL import Image, ImageEnhance, ImageOps

from spr_jax.rand_augment import OPERATIONS, cutout, rand_augment

LEVELS = (-1.0, -0.63, -0.2, 0.0, 0.11, 0.5, 0.97)


def shaded(height=32, width=24, channels=3):
    """An image with flat and steep parts that uses a part of the range."""
    noise = make_images(height, width, channels).astype(float)
    slope = np.linspace(30, 200, width)[:, None] + np.linspace(-20, 20, height)[:, None, None]
    return np.clip(slope + (noise - 128) / 5, 10, 230).astype(np.uint8)


def shifted(image, *matrix):
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


def enhanced(kind):
    return lambda image, level: kind(image).enhance(0.05 + 0.9 * abs(level))


PILLOW = {
    "identity": lambda image, level: image,
    "auto_contrast": lambda image, level: ImageOps.autocontrast(image),
    "equalize": lambda image, level: ImageOps.equalize(image),
    "posterize": lambda image, level: ImageOps.posterize(image, 8 - int(min(abs(level), 0.99) * 5)),
    "solarize": lambda image, level: ImageOps.solarize(image, 256 * abs(level)),
    "brightness": enhanced(ImageEnhance.Brightness),
    "color": enhanced(ImageEnhance.Color),
    "contrast": enhanced(ImageEnhance.Contrast),
    "sharpness": enhanced(ImageEnhance.Sharpness),
    "rotate": lambda image, level: image.rotate(30 * level),
    "shear_x": lambda image, level: shifted(image, 1, 0.3 * level, 0, 0, 1, 0),
    "shear_y": lambda image, level: shifted(image, 1, 0, 0, 0.3 * level, 1, 0),
    "translate_x": lambda image, level: shifted(image, 1, 0, 0.3 * level * image.width, 0, 1, 0),
    "translate_y": lambda image, level: shifted(image, 1, 0, 0, 0, 1, 0.3 * level * image.height),
}
GEOMETRIC = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")


def test_every_operation_has_its_counterpart():
    assert set(OPERATIONS) == set(PILLOW)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_is_that_of_pillow(name, channels):
    image = shaded(channels=channels)
    picture = Image.fromarray(image if channels == 3 else image[..., 0])
    operation = jax.jit(OPERATIONS[name])
    for level in LEVELS:
        result = np.asarray(operation(image.astype(np.float32), level))
        assert result.dtype == np.float32 and (result == np.round(result)).all()
        assert 0 <= result.min() and result.max() <= 255
        expected = np.asarray(PILLOW[name](picture, level)).reshape(image.shape)
        far = np.abs(result - expected) > 1
        # A source between two pixels may be rounded to either.
        assert far.mean() <= (0.03 if name in GEOMETRIC else 0), (level, far.mean())
        if name in GEOMETRIC and level == 0:
            np.testing.assert_array_equal(result, image)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_image_of_one_color_is_no_trouble(name):
    image = jnp.full((8, 8, 3), 77, jnp.float32)
    assert np.isfinite(OPERATIONS[name](image, 0.4)).all()
    if name in ("auto_contrast", "equalize", "color", "contrast", "sharpness"):
        np.testing.assert_array_equal(OPERATIONS[name](image, 0.4), image)


def test_cutout_paints_one_square_of_half_the_side():
    image = np.full((16, 20, 1), 200, np.uint8)
    results = drawn(lambda key: cutout(key, jnp.asarray(image)), 300)
    assert results.dtype == np.uint8 and set(np.unique(results)) == {127, 200}
    corners = set()
    for result in results[..., 0]:
        rows, columns = (np.flatnonzero((result == 127).any(axis=axis)) for axis in (1, 0))
        assert (result == 127).sum() == len(rows) * len(columns)
        assert len(rows) <= 8 and len(columns) <= 8
        corners.add((rows[0], columns[0]))
    area = (results == 127).sum(axis=(1, 2, 3))
    assert area.max() == 64 and len(corners) > 100  # cut off at the border, elsewhere whole
    assert (drawn(lambda key: cutout(key, jnp.asarray(image), share=0.0), 3) == image).all()


def test_images_are_all_different_and_some_almost_untouched():
    image = shaded(16, 16)
    results = drawn(lambda key: rand_augment(key, jnp.asarray(image)), 200)
    assert results.dtype == np.uint8 and results.shape == (200, 16, 16, 3)
    assert len({result.tobytes() for result in results}) > 190
    untouched = (results == image).all(axis=3).mean(axis=(1, 2))
    assert untouched.max() > 0.7 > 0.5 > np.median(untouched)


def test_no_operation_leaves_the_square_alone():
    image = jnp.asarray(shaded(16, 16))
    square_key = jax.random.split(KEY, 3)[2]
    expected = cutout(square_key, image)
    np.testing.assert_array_equal(rand_augment(KEY, image, num_operations=0), expected)


def test_angles_are_those_of_a_turn():
    """At half the level a pixel at the rim moves by 15 degrees, counterclockwise."""
    image = jnp.zeros((41, 41, 1)).at[20, 40].set(255)
    turned = np.asarray(OPERATIONS["rotate"](image, 0.5))
    row, column = np.argwhere(turned[..., 0])[0]
    angle = math.degrees(math.atan2(20 - row, column - 20))
    assert angle == pytest.approx(15, abs=2)
