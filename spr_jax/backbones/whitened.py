"""A small, fast network for CIFAR-10: whitened patches, then three groups of convolutions.

The airbench family (Jordan, 2024, https://arxiv.org/abs/2404.00498), which reaches 94 % in ten
epochs. The first layer is not learned: it whitens patches of 2 x 2 pixels, so that the learned
layers begin with uncorrelated inputs of equal size.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array, lax

from spr_jax.backbones.cpu_ops import Conv, max_pool
from spr_jax.backbones.layers import dense, fan_in_uniform, norm, offer
from spr_jax.registry import lookup

SIZES = {  # by the accuracy that they reach in 11, 10 and 15 epochs -> width of each group
    "93": (64, 128, 128),
    "94": (64, 256, 256),
    "95": (128, 384, 384),
}
ACTIVATIONS = {"relu": nn.relu, "gelu": lambda x: nn.gelu(x, approximate=False)}
SIDE, CHANNELS = 2, 3  # of a patch
PATCH = SIDE * SIDE * CHANNELS  # numbers in it
SMALLEST = 2**3 + SIDE - 1  # side of an image of which three poolings leave a pixel
EPSILON = 5e-4  # added to the variances, the least of which are noise


class Whitened(nn.Module):
    """Features [b, last width]: the maxima over the last map, times `scale`.

    Attributes:
      size: "93", "94" or "95": the widths of the three groups.
      widths: these widths instead, if any are given.
      depth: convolutions of a group: 2, or 3 with a shortcut around the last two.
      activation: "relu" or "gelu", which is slower on a CPU.
      scale: of the features, and so of the first logits, which are small: 1/9.
    """

    size: str = "94"
    widths: tuple[int, ...] = ()
    depth: int = 2
    activation: str = "relu"
    scale: float = 1 / 9
    dtype: Any = None
    axis_name: str | None = None
    head = staticmethod(dense)

    def __post_init__(self) -> None:
        """Refuse options that make no network."""
        super().__post_init__()
        lookup(SIZES, self.size), lookup(ACTIVATIONS, self.activation)
        widths = self.widths
        if widths and (len(widths) != 3 or any(w < 1 or w != int(w) for w in widths)):
            raise ValueError(
                f"backbone.widths is {widths}; expected the channels of each of the three groups, "
                "whole numbers above 0, such as (64, 128, 256)."
            )
        if self.depth not in (2, 3):
            raise ValueError(f"backbone.depth is {self.depth}; expected 2 or 3.")

    @nn.compact
    def __call__(self, images: Array, train: bool) -> Array:
        if min(images.shape[1:3]) < SMALLEST:
            raise ValueError(
                "The backbone 'whitened' halves images three times, and these are "
                f"{images.shape[1]} x {images.shape[2]} pixels; expected {SMALLEST} or more."
            )
        activate = ACTIVATIONS[self.activation]
        shape = (SIDE, SIDE, CHANNELS, 2 * PATCH)
        kernel = self.variable("constants", "whitening", jnp.zeros, shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (2 * PATCH,), jnp.float32)
        images, kernel, bias = nn.dtypes.promote_dtype(images, kernel.value, bias, dtype=self.dtype)
        images = activate(convolve(images, kernel) + bias)
        for number, width in enumerate(self.widths or SIZES[self.size]):
            if number:
                offer(self, images)
            options = dict(dtype=self.dtype, axis_name=self.axis_name)
            images = Group(width, self.depth, self.activation, **options)(images, train)
        return self.scale * images.max(axis=(1, 2))

    @staticmethod
    def learn_constants(images: np.ndarray) -> dict[str, Array]:
        """The frozen variables, from normalized training images [n, h, w, 3]."""
        return {"whitening": jnp.asarray(whitening_kernel(images), jnp.float32)}


class Group(nn.Module):
    """Convolution, pooling, normalization, activation; then the same without pooling."""

    features: int
    depth: int
    activation: str
    dtype: Any = None
    axis_name: str | None = None

    @nn.compact
    def __call__(self, images: Array, train: bool) -> Array:
        activate = ACTIVATIONS[self.activation]

        def convolution():
            return Conv(
                self.features,
                (3, 3),
                padding=[(1, 1), (1, 1)],
                use_bias=False,
                kernel_init=partial_identity,
                dtype=self.dtype,
            )

        def normalization():
            return norm(self, train, momentum=0.6, use_scale=False)

        images = activate(normalization()(max_pool(convolution()(images))))
        inner = images
        for number in range(1, self.depth):
            inner = normalization()(convolution()(inner))
            if number == 2:
                inner += images
            inner = activate(inner)
        return inner


def partial_identity(key: Array, shape: Sequence[int], dtype: Any = jnp.float32) -> Array:
    """Let the first outputs of a convolution be its inputs; PyTorch's weights for the others."""
    height, width, inputs, outputs = shape
    kernel = fan_in_uniform(key, shape, dtype)
    copied = min(inputs, outputs)
    identity = jnp.zeros((height, width, inputs, copied), dtype)
    identity = identity.at[height // 2, width // 2].set(jnp.eye(inputs, copied, dtype=dtype))
    return kernel.at[..., :copied].set(identity)


def convolve(images: Array, kernel: Array) -> Array:
    """Convolve without padding, and without a gradient for the kernel."""
    dimensions = ("NHWC", "HWIO", "NHWC")
    kernel = lax.stop_gradient(kernel)
    return lax.conv_general_dilated(images, kernel, (1, 1), "VALID", dimension_numbers=dimensions)


def whitening_kernel(
    images: np.ndarray,  # [n, h, w, 3], normalized
    epsilon: float = EPSILON,
) -> np.ndarray:
    """A kernel [2, 2, 3, 24] whose outputs are uncorrelated and of unit size, and their negatives.

    With E[x x'] = V diag(v) V' over all patches x, the outputs are +-V' x / sqrt(v + epsilon).

    Raises:
      ValueError: if the images are not in color, or too few.
    """
    count, height, width, channels = images.shape
    if channels != CHANNELS:
        raise ValueError(
            f"The backbone 'whitened' is for images with {CHANNELS} channels, and these have "
            f"{channels}; choose another backbone, such as 'c2f2'."
        )
    if count < PATCH:
        raise ValueError(
            f"The backbone 'whitened' learns its first layer from patches of {PATCH} numbers, and "
            f"there are only {count} images; give {PATCH} or more."
        )
    moment = np.zeros((PATCH, PATCH))
    for start in range(0, count, 250):  # a block of patches stays small
        block = np.asarray(images[start : start + 250], np.float32)
        corners = [
            block[:, i : height - SIDE + 1 + i, j : width - SIDE + 1 + j]
            for i in range(SIDE)
            for j in range(SIDE)
        ]
        patches = np.concatenate(corners, axis=-1).reshape(-1, PATCH)
        moment += patches.T @ patches
    moment /= count * (height - SIDE + 1) * (width - SIDE + 1)
    variances, directions = np.linalg.eigh(moment)
    filters = directions / np.sqrt(np.maximum(variances, 0) + epsilon)
    return np.concatenate([filters, -filters], axis=1).reshape(SIDE, SIDE, CHANNELS, 2 * PATCH)
