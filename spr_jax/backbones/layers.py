"""Parts that the backbones share: PyTorch's initializers, convolution with batch normalization."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from spr_jax.backbones.cpu_ops import Conv

fan_in_uniform = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")  # +-1/sqrt(fan in)


def bias_uniform(fan_in: int):
    """Initializer of PyTorch's biases: uniform in the range of the weights, +-1/sqrt(fan in)."""
    bound = 1 / math.sqrt(fan_in)
    return lambda key, shape, dtype: jax.random.uniform(key, shape, dtype, -bound, bound)


def dense(features: int, inputs: int, kernel_init=fan_in_uniform, **options) -> nn.Dense:
    """Make a fully connected layer, initialized as PyTorch's or with other weights."""
    return nn.Dense(features, kernel_init=kernel_init, bias_init=bias_uniform(inputs), **options)


class ConvNorm(nn.Module):
    """Convolution, then batch normalization; padded so that stride 1 keeps the size.

    As in PyTorch, except that the running variance is Flax's, the biased one: it is smaller by
    1/n, n being the number of values of a channel in a batch.
    """

    features: int
    size: tuple[int, int] = (3, 3)
    strides: int = 1
    padded: bool = True
    use_bias: bool = False
    kernel_init: Any = fan_in_uniform
    bias_init: Any = None  # None: PyTorch's
    epsilon: float = 1e-5
    dtype: Any = None
    axis_name: str | None = None  # of a pmap over which batch statistics are shared

    @nn.compact
    def __call__(self, images: Array, train: bool) -> Array:
        images = Conv(
            self.features,
            self.size,
            self.strides,
            padding=[(side // 2,) * 2 if self.padded else (0, 0) for side in self.size],
            use_bias=self.use_bias,
            kernel_init=self.kernel_init,
            bias_init=self.bias_init or bias_uniform(math.prod(self.size) * images.shape[-1]),
            dtype=self.dtype,
        )(images)
        return norm(self, train, self.epsilon)(images)


def offer(module: nn.Module, outputs: Array) -> None:  # [b, ..., d]
    """Let a pass that asks for inner layers (`Network.inspect`) have these outputs' mean, [b, d].

    Any other pass pays nothing: the mean is not even traced.
    """
    if module.is_mutable_collection("intermediates"):
        outputs = outputs.astype(jnp.promote_types(outputs.dtype, jnp.float32))
        module.sow("intermediates", "inner", outputs.mean(axis=tuple(range(1, outputs.ndim - 1))))


def norm(
    module: nn.Module,
    train: bool,
    epsilon: float = 1e-5,
    momentum: float = 0.9,  # weight of the old running average
    use_scale: bool = True,
) -> nn.BatchNorm:
    """Make a batch normalization with a module's `dtype` and `axis_name`; statistics in float32."""
    return nn.BatchNorm(
        not train,
        momentum=momentum,
        epsilon=epsilon,
        use_scale=use_scale,
        dtype=module.dtype,
        axis_name=module.axis_name,
    )
