"""Optimizer and learning rate from the config: SGD as the paper trains, or as fast recipes do."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import Array

SCHEDULES = ("cosine", "constant", "triangle")
START = 0.2  # of the rate's peak: where a triangle begins


def make_schedule(options, epochs: int, steps_per_epoch: int) -> Callable[[Array | int], Array]:
    """Step -> learning rate, of `epochs` epochs with fresh networks.

    cosine     lr/2 (1 + cos(pi epoch / epochs)), constant within an epoch
    constant   lr
    triangle   from lr/5 up to lr in `warmup_epochs`, then down to 0 after the last step; by step

    Raises:
      ValueError: if the warm-up leaves no epoch to come down in.
    """
    peak, warmup = options.learning_rate, options.warmup_epochs

    def cosine(step):
        return 0.5 * peak * (1 + jnp.cos(jnp.pi * (step // steps_per_epoch) / epochs))

    def triangle(step):
        epoch = step / steps_per_epoch
        rising = START + (1 - START) * epoch / warmup if warmup else 1.0
        return peak * jnp.clip(jnp.minimum(rising, (epochs - epoch) / (epochs - warmup)), 0)

    if options.schedule == "triangle" and not 0 <= warmup < epochs:
        raise ValueError(
            f"optimizer.warmup_epochs is {warmup} and the learning rate has {epochs} epochs; give "
            "a number from 0 to below that."
        )
    schedules = {"cosine": cosine, "constant": optax.constant_schedule(peak), "triangle": triangle}
    return schedules[options.schedule]


def make_optimizer(options, schedule: Callable) -> optax.GradientTransformation:
    """Clip the gradient's norm, scale up that of norm biases, then momentum.

    Weight decay is added to the gradient (coupled, as the paper has it) or, decoupled, to what
    momentum made of it, so that it acts at once.
    """
    gradient = optax.chain(
        optax.clip_by_global_norm(options.clip_norm) if options.clip_norm else optax.identity(),
        scale_norm_biases(options.norm_bias_rate),
    )
    decay = optax.add_decayed_weights(options.weight_decay)
    if options.decoupled_decay:
        momentum = optax.trace(options.momentum, options.nesterov)
        return optax.chain(gradient, momentum, decay, optax.scale_by_learning_rate(schedule))
    sgd = optax.sgd(schedule, options.momentum or None, options.nesterov)
    return optax.chain(gradient, decay, sgd)


def scale_norm_biases(factor: float) -> optax.GradientTransformation:
    """Let the biases of batch normalization learn faster by a factor; their decay stays."""

    def scale(path, gradient):
        names = ["", *(key.key for key in path)]
        is_norm_bias = names[-2].startswith("BatchNorm") and names[-1] == "bias"
        return factor * gradient if is_norm_bias else gradient

    if factor == 1:
        return optax.identity()
    return optax.stateless(lambda gradients, _: jax.tree.map_with_path(scale, gradients))
