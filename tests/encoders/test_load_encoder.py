"""Encoders by name."""

import numpy as np
import pytest

from spr_jax.encoders import load_encoder
from spr_jax.encoders.encoder import in_batches


def test_a_misspelt_name_is_corrected():
    with pytest.raises(ValueError, match="'eficientnet_lite0'; did you mean 'efficientnet_lite0'"):
        load_encoder("eficientnet_lite0")


def test_an_unknown_name_lists_all_choices():
    with pytest.raises(ValueError, match="auto.*efficientnet_lite2.*onnx:FILE.*scratch"):
        load_encoder("zzz")


@pytest.mark.parametrize("count", [0, 1, 4, 6, 9])
def test_any_number_of_images_in_batches_of_one_size(count):
    images = np.arange(count * 12, dtype=np.uint8).reshape(count, 2, 2, 3)
    seen = []

    def double(batch):
        seen.append(len(batch))
        return 2.0 * batch[:, 0, 0]

    np.testing.assert_array_equal(in_batches(double, 4, images), 2.0 * images[:, 0, 0])
    assert set(seen) == {4}
