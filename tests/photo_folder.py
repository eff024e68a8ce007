"""A folder of drawn photos with two wrong labels, and a stand-in for a trained network."""

import jax
import numpy as np
from PIL import Image

from spr_jax.encoders import Encoder

NAMES = ("ant", "bee", "cat")
WRONG = {"ant": "bee/000.png", "cat": "ant/001.png"}  # true class -> file


class Mean:
    """Stands in for a network in `features_of`: the mean color of an image."""

    def predict(self, images):
        return type("Output", (), {"features": 10 * images.mean(axis=(1, 2))})


jax.tree_util.register_static(Mean)


def draw(kind, generator):
    """Draw 16 x 16 pixels: a bright bar across, a bright bar down, or neither, on noise."""
    pixels = generator.integers(0, 80, (16, 16, 3))
    if kind == "ant":
        pixels[6:10] += 150
    elif kind == "bee":
        pixels[:, 6:10] += 150
    return Image.fromarray(pixels.astype(np.uint8))


def draw_photos(folder):
    """Draw 20 photos of each class."""
    generator, truly = np.random.default_rng(0), {file: kind for kind, file in WRONG.items()}
    for label in NAMES:
        (folder / label).mkdir(parents=True)
        for number in range(20):
            file = f"{label}/{number:03}.png"
            draw(truly.get(file, label), generator).save(folder / file)
    return folder


def color_encoder(*, version="1", size=16, count=None):
    """Stands in for a pretrained encoder: means of rows, columns and colors; counts images."""

    def encode(images):
        if count is not None:
            count.append(len(images))
        pixels = images.astype(np.float32) / 255
        parts = pixels.mean(axis=(2, 3)), pixels.mean(axis=(1, 3)), pixels.mean(axis=(1, 2))
        return np.concatenate(parts, axis=1)

    return Encoder("efficientnet_lite0", version, size, 2 * size + 3, encode)
