"""Depthwise convolution: each channel is filtered by a kernel of its own."""

from jax import Array, lax


def depthwise(
    images: Array,  # [b, h, w, channels]
    kernel: Array,  # [k, k, channels]
    stride: int,
) -> Array:
    """Filter every channel, with TensorFlow's SAME padding: [b, ceil(h / stride), ...]."""
    return lax.conv_general_dilated(
        images,
        kernel[:, :, None],
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=images.shape[-1],
    )
