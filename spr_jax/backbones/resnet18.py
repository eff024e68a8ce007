"""ResNet-18 for small images: a 3x3 stem without pooling (He et al., 2016, as in CIFAR code)."""

from functools import partial
from typing import Any

from flax import linen as nn
from jax import Array

from spr_jax.backbones.layers import ConvNorm, dense, offer


class Block(nn.Module):
    """Two convolutions and a shortcut, which is a 1x1 convolution where the shape changes."""

    features: int
    strides: int
    dtype: Any = None
    axis_name: str | None = None

    @nn.compact
    def __call__(self, images: Array, train: bool) -> Array:
        layer = partial(ConvNorm, self.features, dtype=self.dtype, axis_name=self.axis_name)
        inner = nn.relu(layer(strides=self.strides)(images, train))
        inner = layer()(inner, train)
        if images.shape != inner.shape:
            images = layer(size=(1, 1), strides=self.strides, name="shortcut")(images, train)
        return nn.relu(images + inner)


class ResNet18(nn.Module):
    """Features [b, 8 * width]: the mean over the last map."""

    width: int = 64  # less for small machines
    dtype: Any = None
    axis_name: str | None = None
    head = staticmethod(dense)

    @nn.compact
    def __call__(self, images: Array, train: bool) -> Array:
        options = dict(dtype=self.dtype, axis_name=self.axis_name)
        images = nn.relu(ConvNorm(self.width, **options)(images, train))
        for stage in range(4):
            if stage:  # of the last one it would be the features
                offer(self, images)
            for strides in (1 if stage == 0 else 2, 1):
                images = Block(self.width * 2**stage, strides, **options)(images, train)
        return images.mean(axis=(1, 2))
