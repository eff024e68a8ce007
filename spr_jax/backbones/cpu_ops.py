"""Convolution and max-pooling with gradients that suit XLA's CPU backend.

That backend scatters the gradient of a max-pool cell by cell, and computes the weight gradient of a
convolution as a convolution with the batch as channels, which leaves the cache when the batch is
large. Both are replaced where a program is lowered for the CPU; elsewhere the stock operations
stay. Values equal the stock ones; so do gradients, exactly (pooling) or up to rounding.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array, lax

CHUNK_BYTES = 2**20  # activations of a chunk: more leave the cache, fewer make small products
FEWEST_CHANNELS = 64  # with fewer, gathering patches costs what it saves ...
LARGE_MAP, FEWEST_OF_LARGE_MAP = 24, 3  # ... unless the map is large: chosen by whole steps


class Window(NamedTuple):
    """Strides and padding of a kernel; hashable."""

    strides: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    precision: lax.Precision | None = None


def convolution(
    images: Array,  # [b, h, w, channels]
    kernel: Array,  # [height, width, channels, features]
    window_strides,
    padding,
    lhs_dilation,
    rhs_dilation,
    dimension_numbers,
    feature_group_count,
    precision,
) -> Array:
    """`lax.conv_general_dilated` as `nn.Conv` calls it."""
    plain = {*lhs_dilation, *rhs_dilation, feature_group_count} == {1}
    worthwhile = images.ndim == 4 and _is_worthwhile(*images.shape[1:])
    exact = images.dtype in (jnp.float32, jnp.float64)  # chunks would round bfloat16 sums
    if plain and worthwhile and exact and not isinstance(padding, str):
        rows, columns = map(tuple, padding)
        window = Window(tuple(window_strides), (rows, columns), precision)
        return _convolve(window, images, kernel)
    return lax.conv_general_dilated(
        images,
        kernel,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dimension_numbers,
        feature_group_count,
        precision=precision,
    )


Conv = partial(nn.Conv, conv_general_dilated=convolution)


def max_pool(images: Array) -> Array:  # [b, h, w, c] -> [b, h // 2, w // 2, c]
    """`nn.max_pool` over 2 x 2 cells."""
    return _pool(images)


# Convolution -------------------------------------------------------------------------------


def _is_worthwhile(height, width, channels):
    is_large = min(height, width) >= LARGE_MAP
    return channels >= (FEWEST_OF_LARGE_MAP if is_large else FEWEST_CHANNELS)


def _stock_convolution(window, images, kernel):
    return lax.conv_general_dilated(
        images,
        kernel,
        window.strides,
        window.padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=window.precision,
    )


def _kernel_gradient(window, images, gradient, kernel):
    """Sum one matrix product, gradient times patches, over chunks of the batch."""
    size, features = kernel.shape[:2], kernel.shape[-1]

    def product(images, gradient):
        patches = _patches(window, images, size)
        return gradient.reshape(-1, features).T @ patches.reshape(-1, patches.shape[-1])

    chunk = max(1, CHUNK_BYTES * len(images) // (images.nbytes + gradient.nbytes))
    whole = len(images) // chunk * chunk
    total = jnp.zeros((features, kernel.size // features), kernel.dtype)
    if whole:
        chunks = [a[:whole].reshape(-1, chunk, *a.shape[1:]) for a in (images, gradient)]
        total, _ = lax.scan(lambda total, pair: (total + product(*pair), None), total, chunks)
    if whole < len(images):
        total += product(images[whole:], gradient[whole:])
    return total.T.reshape(kernel.shape)


def _patches(window, images, size):
    """Stack what each position of the kernel sees: [b, h, w, positions * channels]."""
    images = jnp.pad(images, ((0, 0), *window.padding, (0, 0)))
    (down, right), (height, width) = window.strides, size
    last_row, last_column = images.shape[1] - height, images.shape[2] - width
    rows = [slice(i, i + last_row + 1, down) for i in range(height)]
    columns = [slice(j, j + last_column + 1, right) for j in range(width)]
    return jnp.concatenate([images[:, row, column] for row in rows for column in columns], axis=-1)


def _convolution_backward(window, residuals, gradient):
    images, kernel = residuals
    _, to_images = jax.vjp(lambda images: _stock_convolution(window, images, kernel), images)

    def stock(images, gradient, kernel):
        return jax.vjp(partial(_stock_convolution, window, images), kernel)[1](gradient)[0]

    chunked = partial(_kernel_gradient, window)
    to_kernel = lax.platform_dependent(images, gradient, kernel, cpu=chunked, default=stock)
    return *to_images(gradient), to_kernel


_convolve = jax.custom_vjp(_stock_convolution, nondiff_argnums=(0,))
_convolve.defvjp(
    lambda window, images, kernel: (_stock_convolution(window, images, kernel), (images, kernel)),
    _convolution_backward,
)


# Pooling -----------------------------------------------------------------------------------


def _stock_pool(images):
    return nn.max_pool(images, (2, 2), strides=(2, 2))


def _to_first_maximum(images, pooled, gradient):
    """Send each cell's gradient to the first of its four pixels that is the maximum."""
    _, height, width, _ = pooled.shape
    taken, shares = False, []
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        is_maximum = images[:, i : 2 * height : 2, j : 2 * width : 2] == pooled
        shares.append(jnp.where(is_maximum & ~taken, gradient, 0))
        taken |= is_maximum
    rows = [jnp.stack(pair, axis=3) for pair in (shares[:2], shares[2:])]
    even = jnp.stack(rows, axis=2).reshape(len(images), 2 * height, 2 * width, -1)
    odd = ((0, 0), (0, images.shape[1] % 2), (0, images.shape[2] % 2), (0, 0))
    return jnp.pad(even, odd)


def _pool_backward(residuals, gradient):
    def stock(images, _, gradient):
        return jax.vjp(_stock_pool, images)[1](gradient)[0]

    return (lax.platform_dependent(*residuals, gradient, cpu=_to_first_maximum, default=stock),)


_pool = jax.custom_vjp(_stock_pool)
_pool.defvjp(lambda images: ((pooled := _stock_pool(images)), (images, pooled)), _pool_backward)
