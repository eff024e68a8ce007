"""Structures that modules pass to each other."""

import numpy as np
import pytest

from spr_jax.datasets.images import ImageFiles
from spr_jax.types import Split

NAMES = np.array(["a.png", "b.png", "c.png", "d.png"])
LABELS = np.array([3, 1, 2, 0])


@pytest.mark.parametrize("index", [np.array([2, 0]), np.array([True, False, True, True])])
def test_take_keeps_each_example_together(index):
    images = np.arange(4 * 2 * 2).reshape(4, 2, 2, 1).astype(np.uint8)
    part = Split(images, LABELS, LABELS + 10, NAMES).take(index)
    np.testing.assert_array_equal(part.images, images[index])
    np.testing.assert_array_equal(part.labels, LABELS[index])
    np.testing.assert_array_equal(part.true_labels, LABELS[index] + 10)
    np.testing.assert_array_equal(part.names, NAMES[index])


def test_take_leaves_out_what_is_unknown():
    part = Split(np.zeros((4, 2, 2, 1), np.uint8), LABELS).take(np.array([1]))
    assert part.labels.tolist() == [1] and part.true_labels is None and part.names is None


def test_take_does_not_decode_image_files():
    files = ImageFiles(NAMES, size=8, short_side=8)  # there are no such files
    part = Split(files, LABELS).take(np.array([3, 1]))
    assert isinstance(part.images, ImageFiles)
    assert list(part.images.paths) == ["d.png", "b.png"] and part.images.size == 8
