"""What an encoder is: a fixed function from images to features, and what identifies it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

SIZES = (32, 1024)  # pixels: least and most


class Encoder(NamedTuple):
    """A network that someone else trained, as a function."""

    name: str  # as the user gives it: "efficientnet_lite0", "onnx:FILE"
    version: str  # of the features: weights, size and preprocessing; features are cached under it
    size: int  # images are squares of this side
    dim: int  # of the features
    encode: Callable[[np.ndarray], np.ndarray]  # [b, size, size, 3] uint8 -> [b, dim] float32


def check_size(size: int) -> int:
    """Return the side of the images if it is one that a network can work with."""
    least, most = SIZES
    if not least <= size <= most:
        raise ValueError(f"Got images of {size} pixels; expected a side of {least} to {most}.")
    return size


def in_batches(
    function: Callable[[np.ndarray], np.ndarray],  # [batch, ...] -> [batch, d]
    batch: int,
    images: np.ndarray,  # [b, size, size, 3] uint8
) -> np.ndarray:
    """Apply a function that is made for one size of batch to any number of images, [b, d]."""
    count = max(1, -(-len(images) // batch))
    full = np.resize(images, (count * batch, *images.shape[1:]))  # repeats some
    features = [function(full[start : start + batch]) for start in range(0, len(full), batch)]
    return np.concatenate(features)[: len(images)]
