"""Filtering channels by shifted sums is a grouped convolution."""

from functools import partial

import jax
import numpy as np
import pytest

from spr_jax.encoders.depthwise import depthwise, grouped_conv


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [3, 5])
@pytest.mark.parametrize("size", [(1, 1), (4, 7), (8, 8), (9, 6)])
def test_depthwise_is_a_grouped_convolution(size, side, stride):
    generator = np.random.default_rng(0)
    images = generator.standard_normal((2, *size, 4))
    kernel = generator.standard_normal((side, side, 4))
    expected = grouped_conv(images, kernel, stride)
    found = jax.jit(partial(depthwise, stride=stride))(images, kernel)
    assert found.dtype == images.dtype
    np.testing.assert_allclose(found, expected, atol=1e-12)
