"""Losses, one value for each example, never averaged. Shapes: logits [b, c], labels [b]."""

import jax
import jax.numpy as jnp
from jax import Array


def cross_entropy(logits: Array, labels: Array) -> Array:
    """-log p of the label."""
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -picked[:, 0]


def sparse_penalty(logits: Array, *, q: float = 0.2) -> Array:
    """sum_k p_k^q: from 1, for a prediction that is certain of one class, to c^(1-q).

    Probabilities below 1e-7 count as that and carry no gradient, as released; without this the
    gradient of p^q has a pole at 0. For ten classes and q = 0.2 this makes the least value 1.36.
    There is no outer root.
    """
    return jnp.sum(jnp.clip(jax.nn.softmax(logits), 1e-7, 1) ** q, axis=1)


def sparse_norm(logits: Array, *, q: float = 0.2) -> Array:
    """(sum_k |z_k|^q)^(1/q) of the logits themselves: the penalty as the paper's text has it.

    Magnitudes below 1e-7 count as that, for the same reason. It grows with the logits without
    bound, and for small q very fast.
    """
    return jnp.sum(jnp.clip(jnp.abs(logits), 1e-7) ** q, axis=1) ** (1 / q)


LOSSES = {"ce": cross_entropy}
