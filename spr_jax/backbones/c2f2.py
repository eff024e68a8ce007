"""C2F2: two convolutions and two fully connected layers, for MNIST."""

from functools import partial
from typing import Any

from flax import linen as nn
from jax import Array

from spr_jax.backbones.cpu_ops import max_pool
from spr_jax.backbones.layers import ConvNorm, dense, norm, offer

xavier_dense = partial(dense, kernel_init=nn.initializers.xavier_uniform())


class C2F2(nn.Module):
    """Features [b, 128]: the first fully connected layer after normalization and ReLU."""

    dtype: Any = None
    axis_name: str | None = None
    head = staticmethod(xavier_dense)

    @nn.compact
    def __call__(self, images: Array, train: bool) -> Array:
        for width in (32, 64):
            layer = ConvNorm(
                width,
                use_bias=True,
                kernel_init=nn.initializers.he_uniform(),
                dtype=self.dtype,
                axis_name=self.axis_name,
            )
            images = max_pool(nn.relu(layer(images, train)))
            offer(self, images)
        # Channels come last, not first as in PyTorch: the rows of the next weights are permuted.
        flat = images.reshape(len(images), -1)
        hidden = xavier_dense(128, flat.shape[1], dtype=self.dtype)(flat)
        return nn.relu(norm(self, train)(hidden))
