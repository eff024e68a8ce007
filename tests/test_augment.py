import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_images import KEY, PIXELS, drawn, make_images
from jax import random
from jax.sharding import NamedSharding, PartitionSpec
from PIL import Image

from spr_jax import augment

OF_IMAGES = sorted(set(augment.AUGMENTATIONS) - set(augment.OF_VECTORS)) + ["none"]


def all_crops(image, padding):
    """Every window and its mirror image, by the bytes of its pixels."""
    height, width, _ = image.shape
    padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    crops = {}
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            crop = padded[top : top + height, left : left + width]
            crops[crop.tobytes()] = (top, left, False)
            crops[crop[:, ::-1].tobytes()] = (top, left, True)
    return crops


def far_apart(first, second):
    """Largest distance of two empirical distributions (Kolmogorov and Smirnov)."""
    points = np.union1d(first, second)
    share_below = [np.searchsorted(np.sort(x), points, "right") / len(x) for x in (first, second)]
    return np.abs(share_below[0] - share_below[1]).max()


def test_normalise_is_that_of_torchvision():
    images, mean, std = make_images(2, 4, 4, 3), [0.49, 0.48, 0.45], [0.25, 0.24, 0.26]
    result = augment.normalise(images, mean, std)
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, (images / 255 - mean) / std, atol=1e-6)


def test_flip_mirrors_half_of_the_images():
    image = make_images(3, 5, 2)
    flipped = drawn(lambda key: augment.flip(key, image), 1000)
    mirrored = (flipped == image[:, ::-1]).all(axis=(1, 2, 3))
    assert (mirrored | (flipped == image).all(axis=(1, 2, 3))).all()
    assert mirrored.mean() == pytest.approx(0.5, abs=0.08)


def test_flip_twice_is_nothing():
    image = make_images(3, 5, 2)
    twice = drawn(lambda key: augment.flip(key, augment.flip(key, image)), 20)
    assert (twice == image).all()


def test_crops_and_flips_are_uniform_over_all_there_are():
    image, each = make_images(6, 7, 3), 50
    crops = all_crops(image, padding=4)
    assert len(crops) == 2 * 81
    results = drawn(lambda key: augment.AUGMENTATIONS["crop_flip"](key, image), each * len(crops))
    assert results.dtype == np.uint8
    count = dict.fromkeys(crops.values(), 0)
    for result in results:
        count[crops[result.tobytes()]] += 1
    statistic = sum((found - each) ** 2 / each for found in count.values())
    freedom = len(crops) - 1
    assert abs(statistic - freedom) < 4 * math.sqrt(2 * freedom)


def test_crop_alone_never_flips_and_without_padding_is_nothing():
    image = make_images(6, 6, 3)
    crops = all_crops(image, padding=2)
    results = drawn(lambda key: augment.pad_crop(key, image, padding=2), 300)
    found = {crops[result.tobytes()] for result in results}
    assert found == {(top, left, False) for top in range(5) for left in range(5)}
    assert (drawn(lambda key: augment.pad_crop(key, image, padding=0), 5) == image).all()


def pillow_resize(image, box, size):
    top, bottom, left, right = box
    cropped = Image.fromarray(image).crop((left, top, right, bottom))
    return np.asarray(cropped.resize(size[::-1], Image.Resampling.BILINEAR))


@pytest.mark.parametrize("size", [(24, 17), (9, 40), (5, 3)])
def test_resize_is_that_of_pillow(size):
    image = make_images(24, 17, 3)
    resize = jax.jit(partial(augment.resize, size=size))
    for box in [(0, 24, 0, 17), (3, 14, 2, 17), (10, 11, 4, 8)]:
        result = resize(image, augment.Box(*map(jnp.asarray, box)))
        assert result.dtype == jnp.uint8  # Pillow rounds twice: after columns and after rows
        np.testing.assert_allclose(result, pillow_resize(image, box, size).astype(int), atol=1)
        exact = resize(image.astype(np.float32), augment.Box(*map(jnp.asarray, box)))
        for channel in range(3):
            expected = pillow_resize(image[..., channel].astype(np.float32), box, size)
            np.testing.assert_allclose(exact[..., channel], expected, atol=1e-3)


def test_resize_of_the_whole_image_to_its_own_size_is_nothing():
    image = make_images(8, 8, 3)
    whole = {"scale": (1, 1), "ratio": (1, 1)}
    results = drawn(lambda key: augment.resized_crop(key, image, **whole), 3)
    np.testing.assert_array_equal(results, np.stack([image] * 3))


def test_resized_crop_is_its_box_resized():
    image, options = make_images(12, 20, 3), {"scale": (0.2, 0.6), "ratio": (0.5, 2)}
    box = drawn(lambda key: augment.crop_box(key, 12, 20, **options), 20)
    results = drawn(lambda key: augment.resized_crop(key, image, size=(7, 9), **options), 20)
    for result, *corners in zip(results, *box, strict=True):
        expected = pillow_resize(image, corners, (7, 9)).astype(int)
        np.testing.assert_allclose(result, expected, atol=1)


def torchvision_box(generator, height, width, scale, ratio):
    for _ in range(10):
        area = height * width * generator.uniform(*scale)
        shape = math.exp(generator.uniform(*np.log(ratio)))
        w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < w <= width and 0 < h <= height:
            top = generator.integers(0, height - h + 1)
            left = generator.integers(0, width - w + 1)
            return top, top + h, left, left + w
    if width / height < min(ratio):
        w, h = width, round(width / min(ratio))
    elif width / height > max(ratio):
        w, h = round(height * max(ratio)), height
    else:
        w, h = width, height
    top, left = (height - h) // 2, (width - w) // 2
    return top, top + h, left, left + w


@pytest.mark.parametrize(
    ("shape", "scale", "falls_back"),
    [
        ((32, 32), (0.08, 1), "rarely"),
        ((15, 33), (0.5, 1), "sometimes"),
        ((40, 10), (0.9, 1), "always"),
        ((9, 31), (0.9, 1), "always"),
    ],
)
def test_crop_boxes_are_distributed_as_in_torchvision(shape, scale, falls_back):
    options, num = {"scale": scale, "ratio": (3 / 4, 4 / 3)}, 4000
    box = drawn(lambda key: augment.crop_box(key, *shape, **options), num)
    generator = np.random.default_rng(1)
    expected = np.array([torchvision_box(generator, *shape, **options) for _ in range(num)]).T
    num_distinct = len(np.unique(np.stack(box), axis=1).T)
    assert (num_distinct == 1) == (falls_back == "always")
    for result, reference in zip(box, expected, strict=True):
        assert far_apart(result, reference) < 0.045
    area = (box.bottom - box.top) * (box.right - box.left)
    expected_area = (expected[1] - expected[0]) * (expected[3] - expected[2])
    assert far_apart(area, expected_area) < 0.045


def released_boxes(generator, height, width, num):
    share = generator.beta(1, 1, num)
    cut = np.sqrt(1 - np.maximum(share, 1 - share))
    cut_height, cut_width = (height * cut).astype(int), (width * cut).astype(int)
    y, x = generator.integers(height, size=num), generator.integers(width, size=num)
    top, bottom = (np.clip(y + sign * (cut_height // 2), 0, height) for sign in (-1, 1))
    left, right = (np.clip(x + sign * (cut_width // 2), 0, width) for sign in (-1, 1))
    return augment.Box(top, bottom, left, right)


def test_cutmix_boxes_are_distributed_as_in_the_released_code():
    height, width, num = 32, 21, 20_000
    box = drawn(lambda key: augment.cutmix_box(key, height, width), num)
    expected = released_boxes(np.random.default_rng(0), height, width, num)
    for result, reference in zip(box, expected, strict=True):
        assert far_apart(result, reference) < 0.02
    sides = [box.bottom - box.top, box.right - box.left]
    expected_sides = [expected.bottom - expected.top, expected.right - expected.left]
    assert far_apart(sides[0] * sides[1], expected_sides[0] * expected_sides[1]) < 0.02
    assert 0.6 * height < sides[0].max() <= math.sqrt(0.5) * height
    assert 0.6 * width < sides[1].max() <= math.sqrt(0.5) * width
    assert min(map(np.min, box)) == 0 and box.bottom.max() == height and box.right.max() == width
    assert min(map(np.min, sides)) >= 0


def test_cutmix_pastes_one_box_of_each_partner():
    images = np.arange(4 * 8 * 9 * 2, dtype=np.float32).reshape(4, 8, 9, 2)
    partners = images[[2, 0, 1, 3]]
    mixed = drawn(lambda key: augment.cutmix(key, jnp.asarray(images), partners), 100)
    for result, share in zip(*mixed, strict=True):
        pasted = (result != images).any(axis=(0, 3))  # [h, w]
        expected = np.where(pasted[..., None], partners, images)
        np.testing.assert_array_equal(result, expected)
        rows, columns = (np.flatnonzero(pasted.any(axis=axis)) for axis in (1, 0))
        assert share == pytest.approx(1 - len(rows) * len(columns) / 72)
        if share < 1:
            box = pasted[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            assert box.all() and box.shape == (len(rows), len(columns))
    assert 0.5 <= mixed.share.min() < 0.7 and mixed.share.max() > 0.9


@pytest.fixture(scope="module")
def two_views():
    make = partial(augment.views, augmentation="crop_flip", **PIXELS)
    return jax.jit(lambda images, index, key: make((images, images), index, key))


def test_views_are_crops_of_their_own_image(two_views):
    images, index = make_images(16, 8, 8, 3), np.arange(16)
    for view in two_views(images, index, KEY):
        assert view.dtype == jnp.float32
        pixels = np.round(view).astype(np.uint8)
        np.testing.assert_allclose(view, pixels, atol=1e-3)
        for image, result in zip(images, pixels, strict=True):
            assert result.tobytes() in all_crops(image, padding=4)


def test_views_depend_on_the_index_not_on_the_batch(two_views):
    images, index = make_images(16, 8, 8, 3), 7 * np.arange(16)
    order = np.random.default_rng(0).permutation(16)
    whole = two_views(images, index, KEY)
    for chosen in (order, order[:5]):
        part = two_views(images[chosen], index[chosen], KEY)
        for view, result in zip(whole, part, strict=True):
            np.testing.assert_array_equal(view[chosen], result)


def test_views_differ_by_index_number_and_key(two_views):
    images = np.tile(make_images(8, 8, 3), (64, 1, 1, 1))
    epochs = [two_views(images, np.arange(64), random.fold_in(KEY, epoch)) for epoch in (0, 1)]
    results = np.concatenate(epochs)  # [4, 64, 8, 8, 3]
    num_distinct = len({result.tobytes() for result in results[0]})
    assert num_distinct > 35  # 64 draws from 162 crops: 53 are expected
    for first in range(4):
        for second in range(first):
            equal = (results[first] == results[second]).all(axis=(1, 2, 3))
            assert equal.mean() < 0.1


def test_views_do_not_depend_on_the_number_of_devices(two_views):
    images, index = make_images(16, 8, 8, 3), np.arange(16)
    mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])
    spread = jax.device_put((images, index), NamedSharding(mesh, PartitionSpec("data")))
    for alone, shared in zip(two_views(images, index, KEY), two_views(*spread, KEY), strict=True):
        assert len(shared.sharding.device_set) == 2
        np.testing.assert_array_equal(alone, shared)


@pytest.mark.parametrize("augmentation", OF_IMAGES)
def test_jitted_views_are_those_of_one_image_at_a_time(augmentation):
    images, index = make_images(3, 8, 8, 3), np.arange(3)
    options = {"augmentation": augmentation, "run_key": KEY, **PIXELS}
    (jitted,) = jax.jit(partial(augment.views, **options))((images,), index, KEY)
    key, image = random.fold_in(random.fold_in(KEY, 0), 2), jnp.asarray(images[2])
    if augmentation in augment.ALTERNATING:
        image = augment.flip(random.fold_in(KEY, 2), image)
    plain = augment.AUGMENTATIONS[augmentation](key, image).astype(int)
    # A grey level that falls between two may be rounded to either.
    rounds = "resized" in augmentation or "rand" in augmentation
    np.testing.assert_allclose(jitted[2], plain, atol=1.001 if rounds else 1e-3)


def test_what_follows_on_top_is_drawn_for_itself():
    images, index = make_images(6, 16, 16, 3), np.arange(6)
    make = partial(augment.views, augmentation="crop_flip", **PIXELS)
    make = jax.jit(make, static_argnames="on_top")
    weak, own = make((images, images), index, KEY, on_top=())
    same, strong = make((images, images), index, KEY, on_top=("none", "rand_augment"))
    np.testing.assert_array_equal(weak, same)
    key = random.fold_in(random.fold_in(KEY, augment.ON_TOP + 1), 4)
    expected = augment.rand_augment(key, jnp.round(own[4]).astype(jnp.uint8)).astype(int)
    np.testing.assert_allclose(strong[4], expected, atol=1.001)
    assert (abs(strong - own).max(axis=(1, 2, 3)) > 1).all()


def test_without_augmentation_the_images_are_normalised():
    images = make_images(2, 3, 8, 8, 3)
    options = {"augmentation": "none", **PIXELS}
    views = augment.views(images, np.arange(3), KEY, **options)
    np.testing.assert_allclose(views, images, atol=1e-3)


def test_unknown_augmentation_is_refused():
    with pytest.raises(ValueError, match="'blur'; choose from .*'crop_flip'"):
        augment.views(make_images(1, 1, 8, 8, 3), np.arange(1), KEY, augmentation="blur", **PIXELS)


def test_numbers_that_are_no_pixels_are_not_divided_by_255():
    vectors = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_allclose(augment.normalise(vectors, [0.5], [2.0]), (vectors - 0.5) / 2)


def test_feature_noise_and_dropout_keep_the_mean():
    vector = np.array([1.0, -2.0, 0.0, 4.0], np.float32)
    noisy = drawn(lambda key: augment.feature_noise(key, vector, deviation=0.3), 4000)
    np.testing.assert_allclose(noisy.mean(axis=0), vector, atol=0.02)
    np.testing.assert_allclose(noisy.std(axis=0), 0.3, atol=0.02)
    dropped = drawn(lambda key: augment.feature_dropout(key, vector, rate=0.25), 4000)
    np.testing.assert_allclose(dropped.mean(axis=0), vector, atol=0.1)
    assert np.mean(dropped[:, 0] == 0) == pytest.approx(0.25, abs=0.03)
    assert set(np.unique(dropped[:, 0])) == {0, np.float32(1 / 0.75)}


@pytest.mark.parametrize("shape", [(6, 4), (6, 3, 3, 1)])
def test_mixup_averages_with_partners(shape):
    inputs = jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)
    mixed = augment.mixup(KEY, inputs, inputs[::-1])
    share = float(mixed.share)
    assert 0.5 <= share <= 1
    expected = share * inputs + (1 - share) * inputs[::-1]
    np.testing.assert_allclose(mixed.images, expected, rtol=1e-6)
    given = augment.mixup(KEY, inputs, inputs)
    np.testing.assert_allclose(given.images, inputs, rtol=1e-6)
    shares = drawn(lambda key: augment.mixup(key, inputs, inputs).share, 4000)
    assert far_apart(shares, np.linspace(0.5, 1, 4000)) < 0.04  # uniform above one half
    shares = drawn(lambda key: augment.mixup(key, inputs, inputs, alpha=4.0).share, 4000)
    expected = np.random.default_rng(0).beta(4, 4, 4000)
    assert far_apart(shares, np.maximum(expected, 1 - expected)) < 0.04
