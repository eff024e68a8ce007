"""VGG-19 with batch normalization (Simonyan and Zisserman, 2015), not pre-trained."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array

from spr_jax.backbones.cpu_ops import max_pool
from spr_jax.backbones.layers import ConvNorm, offer

STAGES = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))  # width, number of convolutions


def normal_dense(features: int, inputs: int, **options) -> nn.Dense:
    return nn.Dense(features, kernel_init=nn.initializers.normal(0.01), **options)


def adaptive_mean(images: Array, size: int = 7) -> Array:  # [b, h, w, c] -> [b, size, size, c]
    """Average over `size` x `size` parts that cover the map, overlapping where it is smaller."""

    def parts(length):
        weights = np.zeros((size, length))
        for i in range(size):
            weights[i, i * length // size : -(-(i + 1) * length // size)] = 1
        return jnp.asarray(weights / weights.sum(axis=1, keepdims=True), images.dtype)

    down, right = map(parts, images.shape[1:3])
    return jnp.einsum("ih,jw,bhwc->bijc", down, right, images)


class VGG19BN(nn.Module):
    """Features [b, 4096]: the second fully connected layer after ReLU and dropout."""

    dropout: float = 0.5
    dtype: Any = None
    axis_name: str | None = None
    head = staticmethod(normal_dense)

    @nn.compact
    def __call__(self, images: Array, train: bool) -> Array:
        options = dict(
            use_bias=True,
            kernel_init=nn.initializers.variance_scaling(2, "fan_out", "normal"),
            bias_init=nn.initializers.zeros,
            dtype=self.dtype,
            axis_name=self.axis_name,
        )
        for width, count in STAGES:
            for _ in range(count):
                images = nn.relu(ConvNorm(width, **options)(images, train))
            images = max_pool(images)
            offer(self, images)
        # Channels come last, not first as in PyTorch: the rows of the next weights are permuted.
        hidden = adaptive_mean(images).reshape(len(images), -1)
        for _ in range(2):
            hidden = nn.relu(normal_dense(4096, hidden.shape[1], dtype=self.dtype)(hidden))
            hidden = nn.Dropout(self.dropout, deterministic=not train)(hidden)
        return hidden
