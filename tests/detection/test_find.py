"""The detector on arrays: what it finds, and what does not matter to it."""

import numpy as np
import pytest
from conftest import make_data

from spr_jax import Detection, find_label_errors, sample_weights
from spr_jax.detection.demo import noisy_digits
from spr_jax.solver.noise_model import TOLERANCE


def test_each_criterion_decides_what_is_clean():
    features, given, true = make_data(separation=2.0)
    wrong = given != true
    found = find_label_errors(features, given)
    assert isinstance(found, Detection) and found.promise is None
    np.testing.assert_array_equal(found.clean, found.error_probability <= 0.5)
    assert wrong[found.order[: wrong.sum()]].mean() > 0.9
    assert found.noise.rate == pytest.approx(wrong.mean(), abs=0.05) and found.noise.explained

    half = find_label_errors(features, given, keep=0.5)
    assert half.clean.mean() == pytest.approx(0.5, abs=0.01) and half.promise is None
    np.testing.assert_array_equal(half.order, np.argsort(-half.entry_penalty, kind="stable"))
    np.testing.assert_array_equal(half.entry_penalty, found.entry_penalty)

    kept = find_label_errors(features, given, max_noise_in_clean=0.2)
    assert (kept.promise.level, kept.promise.kind) == (0.2, "clean")
    assert kept.clean.any() and wrong[kept.clean].mean() <= 0.2
    flagged = find_label_errors(features, given, max_false_alarms=0.2)
    assert (flagged.promise.level, flagged.promise.kind) == (0.2, "suspects")
    assert not flagged.clean.all() and (~wrong)[~flagged.clean].mean() <= 0.2
    for each in (kept, flagged):
        np.testing.assert_array_equal(each.order, found.order)


@pytest.mark.slow
def test_errors_in_the_digits_are_found():
    features, given, true = noisy_digits(rate=0.2)
    found = find_label_errors(features, given)
    assert isinstance(found, Detection)
    wrong = given != true
    for order in (found.order, np.argsort(-found.entry_penalty)):
        assert wrong[order[: wrong.sum()]].mean() > 0.9
    assert wrong[found.clean].mean() < 0.03 and wrong[~found.clean].mean() > 0.9
    assert (found.suggested == true).mean() > 0.9
    assert found.duality_gap <= 1e-3 and 0 <= found.noise.fit_gap <= TOLERANCE
    half = find_label_errors(features, given, keep=0.5)
    assert half.clean.mean() == pytest.approx(0.5, abs=0.01) and not wrong[half.clean].any()
    np.testing.assert_array_equal(half.order, np.argsort(-half.entry_penalty, kind="stable"))


@pytest.mark.slow
def test_fraction_of_wrong_labels_is_estimated():
    features, given, true = noisy_digits(rate=0.2)
    noise = find_label_errors(features, given).noise
    wrong = given != true
    assert noise.interval[0] < noise.rate < noise.interval[1]
    assert noise.rate == pytest.approx(wrong.mean(), abs=0.03) and noise.explained
    by_class = [wrong[given == label].mean() for label in noise.classes]
    np.testing.assert_allclose(noise.by_class, by_class, atol=0.1)
    np.testing.assert_allclose(noise.confusion.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(1 - np.diag(noise.confusion), noise.by_class, atol=1e-5)


@pytest.mark.slow
def test_levels_are_kept_or_reported():
    features, given, true = noisy_digits(rate=0.2)
    wrong = given != true
    kept = find_label_errors(features, given, max_noise_in_clean=0.05)
    assert 0 < wrong[kept.clean].mean() + 1e-9 <= 0.05 and kept.clean.mean() > 0.5
    assert (kept.promise.level, kept.promise.kind) == (0.05, "clean")
    flagged = find_label_errors(features, given, max_false_alarms=0.1)
    assert (~wrong)[~flagged.clean].mean() <= 0.1 and (~flagged.clean).mean() > 0.05
    strict = find_label_errors(features, given, max_noise_in_clean=0.001)
    assert not strict.promise.attained.any() and not strict.clean.any()
    assert (strict.promise.lowest > 0.001).all()


@pytest.mark.slow
def test_random_labels_are_not_explained():
    features, _, true = noisy_digits()
    random = np.random.default_rng(0).permutation(true)
    assert not find_label_errors(features, random).noise.explained


@pytest.mark.slow
def test_correct_labels_are_rarely_flagged():
    features, _, true = noisy_digits()
    found = find_label_errors(features, true)
    assert found.noise.rate < 0.02 and (~found.clean).mean() < 0.02


@pytest.mark.slow
def test_very_many_classes_of_five():
    generator = np.random.default_rng(0)
    true = np.repeat(np.arange(250), 5)
    features = generator.standard_normal((250, 32))[true]
    features += 0.4 * generator.standard_normal(features.shape)
    is_wrong = generator.random(len(true)) < 0.1
    labels = np.where(is_wrong, (true + generator.integers(1, 250, len(true))) % 250, true)
    found = find_label_errors(features, labels)
    assert found.noise.explained and abs(found.noise.rate - is_wrong.mean()) < 0.03
    assert is_wrong[~found.clean].mean() > 0.9 and (~found.clean)[is_wrong].mean() > 0.9


@pytest.mark.slow
def test_same_call_same_answer(data):
    features, given, _ = data
    first, again = (find_label_errors(features, given, per_class=10, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.entry_penalty, again.entry_penalty)


def test_class_names_and_gaps_in_the_labels_are_the_users(data):
    features, given, _ = data
    numbers = find_label_errors(features, given)
    spread = find_label_errors(features, given * 100 + 7)
    names = np.array(["ant", "bee", "cat", "dog"])
    text = find_label_errors(features, names[given])
    objects = find_label_errors(features, names[given].astype(object))
    encoded = find_label_errors(features, names[given].astype("S"))
    numbers_as_objects = find_label_errors(features, given.astype(object))
    floats = find_label_errors(features, given.astype(np.float32))
    for other in (spread, text, objects, encoded, numbers_as_objects, floats):
        np.testing.assert_array_equal(other.entry_penalty, numbers.entry_penalty)
    np.testing.assert_array_equal(spread.suggested, numbers.suggested * 100 + 7)
    np.testing.assert_array_equal(text.suggested, names[numbers.suggested])


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e3, 1e30])
def test_scale_of_the_features_does_not_matter(data, scale):
    features, given, _ = data
    straight = find_label_errors(features, given)
    scaled = find_label_errors((features * scale).astype(np.float32), given)
    np.testing.assert_allclose(scaled.entry_penalty, straight.entry_penalty, rtol=1e-3)


@pytest.mark.parametrize("scale", [1e-300, 1e30])
def test_double_precision_is_brought_to_scale_before_it_is_rounded(data, scale):
    features, given, _ = data
    straight = find_label_errors(features, given)
    moved = find_label_errors((features + 1e6) * scale, given)
    np.testing.assert_allclose(moved.entry_penalty, straight.entry_penalty, rtol=1e-3)


@pytest.mark.slow
def test_classes_of_unequal_size():
    features, given, true = make_data(2000, 16, 4, rate=0.05, separation=2.0)
    rare = (true >= 2) & (np.arange(2000) % 15 > 0)
    features, given, true = features[~rare], given[~rare], true[~rare]
    found = find_label_errors(features, given)
    wrong = given != true
    assert wrong[np.argsort(-found.entry_penalty)[: wrong.sum()]].mean() > 0.95
    assert (found.suggested == true).mean() > 0.98


@pytest.mark.parametrize("dtype", [np.float16, np.uint8, np.int64, bool])
def test_any_numbers_are_features(data, dtype):
    features, given, _ = data
    assert np.isfinite(find_label_errors(features.astype(dtype), given).entry_penalty).all()


def test_weights_are_probabilities_of_correct_labels():
    features, given, true = make_data(separation=2.0)
    found = find_label_errors(features, given)
    weights = sample_weights(features, given)
    assert isinstance(weights, np.ndarray) and weights.shape == given.shape
    assert weights.min() >= 0 and weights.max() <= 1
    np.testing.assert_array_equal(weights, 1 - found.error_probability)
    right = given == true
    assert weights[right].mean() > 0.9 > 0.2 > weights[~right].mean()
    assert weights.mean() == pytest.approx(right.mean(), abs=0.05)


def test_options_of_the_weights_are_those_of_the_detector(data):
    features, given, _ = data
    with pytest.raises(ValueError, match="pca_dim is -3"):
        sample_weights(features, given, pca_dim=-3)
