"""Images to augment, and functions of a random key at many keys."""

import jax
import numpy as np
from jax import random

KEY = random.key(3)
PIXELS = {"mean": [0.0] * 3, "std": [1 / 255] * 3}  # normalisation that gives the pixels back


def make_images(*shape, seed=0):
    """Pixels from 1, to tell them from black padding."""
    return np.random.default_rng(seed).integers(1, 256, shape).astype(np.uint8)


def drawn(function, num):
    """A function of a key alone, at many keys."""
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(function))(random.split(KEY, num)))
