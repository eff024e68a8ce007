"""A linear network without batch norm, so that examples meet in the loss alone."""

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import random

from spr_jax.network import make_network
from spr_jax.types import Output


class Linear(nn.Module):
    """The pixels of an image are its features; in eval mode they are twice as large."""

    num_classes: int

    @nn.compact
    def __call__(self, images, train, feature_mask=None):
        passes = self.variable("batch_stats", "passes", lambda: jnp.zeros(()))
        if train:
            passes.value += 1
        features = images.reshape(len(images), -1) * (1 if train else 2)
        seen = features if feature_mask is None else features * feature_mask
        head = nn.Dense(self.num_classes, name="head", param_dtype=jnp.float64)
        return Output(head(seen), features)


def make_linear(num_classes, images, seed=0):
    """With random weights and biases."""
    network = make_network(Linear(num_classes), random.key(seed), images)
    head = network.params["head"]
    bias = np.random.default_rng(seed).standard_normal(num_classes)
    return network.replace(params={"head": {"kernel": head["kernel"], "bias": bias}})
