"""A part of the training data that a method keeps for a judgement of its own."""

import jax
import jax.numpy as jnp
from jax import Array


def training_weights(labels: Array, num_classes: int, every: int = 10) -> Array:
    """[N], 0 for every tenth example of a class and equal for all others, with mean 1."""
    ordinal = jnp.cumsum(jax.nn.one_hot(labels, num_classes, dtype=jnp.int32), axis=0)  # from 1
    ordinal = jnp.take_along_axis(ordinal, jnp.asarray(labels)[:, None], axis=1)[:, 0]
    kept = (ordinal % every != 0).astype(jnp.float32)
    return kept / kept.mean()
