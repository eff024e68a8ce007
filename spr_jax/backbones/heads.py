"""Heads that are trained next to a network, on its features, and that no test needs."""

import jax.numpy as jnp
from flax import linen as nn
from jax import Array, lax

from spr_jax.backbones.network import Network
from spr_jax.devices import AXIS
from spr_jax.types import Output


class Heads(nn.Module):
    """Projector and predictor of SimSiam: features [b, d] to two arrays [b, width].

    Chen and He, 2021, https://arxiv.org/abs/2011.10566. The statistics are always the batch's.
    """

    width: int = 128
    hidden: int = 256

    @nn.compact
    def __call__(self, features: Array) -> tuple[Array, Array]:
        def layers(inputs):
            hidden = nn.Dense(self.hidden)(inputs)
            hidden = nn.BatchNorm(use_running_average=False, axis_name=AXIS)(hidden)
            return nn.Dense(self.width)(nn.relu(hidden))

        projection = layers(features)
        return projection, layers(projection)


def distance_of_views(network: Network, weak: Output, strong: Output) -> Array:
    """-cos(projection of the weak view, what the strong one predicts of it), [b].

    The gradient reaches the strong view alone. `network.params["extra"]` are those of `Heads`.
    """

    def parts(output):
        variables = {"params": network.params["extra"]}
        return Heads().apply(variables, output.features, mutable=["batch_stats"])[0]

    (target, _), (_, guess) = parts(weak), parts(strong)
    target = lax.stop_gradient(target)
    lengths = jnp.linalg.norm(target, axis=1) * jnp.linalg.norm(guess, axis=1)
    return -jnp.sum(target * guess, axis=1) / jnp.maximum(lengths, 1e-8)
