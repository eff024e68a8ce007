"""Views of fast training: alternating flips and shifts; and the views that tests average."""

import jax.numpy as jnp
import numpy as np
import pytest
from drawn_images import PIXELS, drawn, make_images
from jax import random

from spr_jax import augment


def turned(images, *, seed=0, epoch=0, index=None, view=0):
    """Views by an alternating flip, [b, h, w, channels] pixels."""
    index = np.arange(len(images)) if index is None else index
    options = dict(augmentation="alternate", run_key=random.key(seed), epoch=epoch)
    pixels = (images,) * (view + 1)
    return np.asarray(
        augment.views(pixels, index, random.key(7 + epoch), **options, **PIXELS)[view]
    )


def test_alternating_flip_is_a_function_of_seed_example_and_epoch():
    images = make_images(400, 2, 3, 3)
    first = turned(images)
    mirrored = (first == images[:, :, ::-1]).all(axis=(1, 2, 3))
    np.testing.assert_allclose(first[~mirrored], images[~mirrored], atol=1e-4)
    assert mirrored.mean() == pytest.approx(0.5, abs=0.1)
    np.testing.assert_array_equal(turned(images, epoch=1), first[:, :, ::-1])
    np.testing.assert_array_equal(turned(images, epoch=6), first)
    np.testing.assert_array_equal(turned(images, view=1), first[:, :, ::-1])
    order = np.random.default_rng(1).permutation(400)[:30]
    np.testing.assert_array_equal(turned(images[order], index=order), first[order])
    assert (turned(images, seed=1) != first).any()


def test_shift_reflects_at_the_border_and_reaches_every_window():
    image = make_images(6, 7, 3)
    padded = np.pad(image, ((2, 2), (2, 2), (0, 0)), "reflect")
    windows = {padded[i : i + 6, j : j + 7].tobytes() for i in range(5) for j in range(5)}
    shift = augment.AUGMENTATIONS["shift"]
    assert {result.tobytes() for result in drawn(lambda key: shift(key, image), 400)} == windows


def test_weighted_views_are_mirrored_and_moved():
    images = make_images(2, 4, 5, 3)
    (weight, whole), *none = augment.weighted_views(images, "none")
    assert weight == 1 and not none and whole is images
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), "reflect")
    expected = [(0.25, images), (0.125, framed[:, :4, :5]), (0.125, framed[:, 2:, 2:])]
    found = augment.weighted_views(jnp.asarray(images), "mirror_shift")
    assert len(found) == 6
    for (weight, view), (other_weight, other), (own_weight, own) in zip(
        found[::2], found[1::2], expected, strict=True
    ):
        assert weight == other_weight == own_weight
        np.testing.assert_array_equal(view, own)
        np.testing.assert_array_equal(other, own[:, :, ::-1])
    mirror = augment.weighted_views(images, "mirror")
    assert [weight for weight, _ in mirror] == [0.5, 0.5]
    np.testing.assert_array_equal(mirror[1][1], images[:, :, ::-1])
