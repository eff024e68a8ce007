"""Optimizer and learning rate from the config: SGD as the paper trains."""

from collections.abc import Callable

import jax.numpy as jnp
import optax
from jax import Array


def make_schedule(options, epochs: int, steps_per_epoch: int) -> Callable[[Array | int], Array]:
    """Step -> learning rate, constant within an epoch: lr/2 (1 + cos(pi epoch / epochs))."""

    def cosine(step):
        return (
            0.5 * options.learning_rate * (1 + jnp.cos(jnp.pi * (step // steps_per_epoch) / epochs))
        )

    schedules = {"cosine": cosine, "constant": optax.constant_schedule(options.learning_rate)}
    return schedules[options.schedule]


def make_optimizer(options, schedule: Callable) -> optax.GradientTransformation:
    """Clip the gradient's norm, add weight decay to it (coupled, not AdamW's), then momentum."""
    return optax.chain(
        optax.clip_by_global_norm(options.clip_norm) if options.clip_norm else optax.identity(),
        optax.add_decayed_weights(options.weight_decay),
        optax.sgd(schedule, momentum=options.momentum or None),
    )
