"""Inception-ResNet-v2 (Szegedy et al., 2017) for 299 x 299 images, not pre-trained."""

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from spr_jax.backbones.cpu_ops import Conv
from spr_jax.backbones.layers import ConvNorm, bias_uniform, dense, fan_in_uniform, offer


class Layer(NamedTuple):
    """Convolution, normalization and ReLU; `valid` means no padding."""

    features: int
    height: int = 1
    width: int = 1
    strides: int = 1
    valid: bool = False


def square(features, side, **options):
    return Layer(features, side, side, **options)


HALVE = dict(strides=2, valid=True)
halving_pool = partial(nn.max_pool, window_shape=(3, 3), strides=(2, 2))

# A chain is a sequence of layers, branches are parallel chains.
STEM = (square(32, 3, **HALVE), square(32, 3, valid=True), square(64, 3))
STEM_END = (Layer(80), square(192, 3, valid=True))
MIXED_5B = (
    (Layer(96),),
    (Layer(48), square(64, 5)),
    (Layer(64), square(96, 3), square(96, 3)),
)
BLOCK_35 = (
    (Layer(32),),
    (Layer(32), square(32, 3)),
    (Layer(32), square(48, 3), square(64, 3)),
)
MIXED_6A = (
    (square(384, 3, **HALVE),),
    (Layer(256), square(256, 3), square(384, 3, **HALVE)),
)
BLOCK_17 = ((Layer(192),), (Layer(128), Layer(160, 1, 7), Layer(192, 7, 1)))
MIXED_7A = (
    (Layer(256), square(384, 3, **HALVE)),
    (Layer(256), square(288, 3, **HALVE)),
    (Layer(256), square(288, 3), square(320, 3, **HALVE)),
)
BLOCK_8 = ((Layer(192),), (Layer(192), Layer(224, 1, 3), Layer(256, 3, 1)))


class Branches(nn.Module):
    """Parallel chains, their channels concatenated."""

    chains: tuple[tuple[Layer, ...], ...]
    dtype: Any = None
    axis_name: str | None = None

    @nn.compact
    def __call__(self, images: Array, train: bool) -> Array:
        outputs = []
        for chain in self.chains:
            inner = images
            for layer in chain:
                inner = nn.relu(
                    ConvNorm(
                        layer.features,
                        (layer.height, layer.width),
                        layer.strides,
                        padded=not layer.valid,
                        epsilon=1e-3,
                        dtype=self.dtype,
                        axis_name=self.axis_name,
                    )(inner, train)
                )
            outputs.append(inner)
        return jnp.concatenate(outputs, axis=-1)


class Residual(nn.Module):
    """x + scale * (branches, projected to the width of x by a linear layer)."""

    chains: tuple[tuple[Layer, ...], ...]
    scale: float
    dtype: Any = None
    axis_name: str | None = None

    @nn.compact
    def __call__(self, images: Array, train: bool) -> Array:
        inner = Branches(self.chains, self.dtype, self.axis_name)(images, train)
        linear = Conv(
            images.shape[-1],
            (1, 1),
            kernel_init=fan_in_uniform,
            bias_init=bias_uniform(inner.shape[-1]),
            dtype=self.dtype,
        )
        return images + self.scale * linear(inner)


class InceptionResNetV2(nn.Module):
    """Features [b, 1536]: the mean over the last map."""

    dtype: Any = None
    axis_name: str | None = None
    head = staticmethod(dense)

    @nn.compact
    def __call__(self, images: Array, train: bool) -> Array:
        def branches(images, *chains):
            return Branches(chains, self.dtype, self.axis_name)(images, train)

        def residual(images, chains, scale):
            return Residual(chains, scale, self.dtype, self.axis_name)(images, train)

        images = halving_pool(branches(images, STEM))
        images = halving_pool(branches(images, STEM_END))
        mean = nn.avg_pool(images, (3, 3), padding="SAME", count_include_pad=False)
        mean = mean.astype(images.dtype)  # avg_pool computes in the default precision
        images = jnp.concatenate(
            [branches(images, *MIXED_5B), branches(mean, (Layer(64),))], axis=-1
        )
        for _ in range(10):
            images = nn.relu(residual(images, BLOCK_35, 0.17))
        offer(self, images)
        images = jnp.concatenate([branches(images, *MIXED_6A), halving_pool(images)], axis=-1)
        for _ in range(20):
            images = nn.relu(residual(images, BLOCK_17, 0.10))
        offer(self, images)
        images = jnp.concatenate([branches(images, *MIXED_7A), halving_pool(images)], axis=-1)
        for _ in range(9):
            images = nn.relu(residual(images, BLOCK_8, 0.20))
        images = residual(images, BLOCK_8, 1.0)  # the last one without ReLU
        offer(self, images)
        return branches(images, (Layer(1536),)).mean(axis=(1, 2))
