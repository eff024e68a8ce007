"""The noise model as a whole, against known noise."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spr_jax.detection.error_control import flag_surest, is_explained, keep_cleanest
from spr_jax.detection.suspects import worth_a_look
from spr_jax.solver import label_noise as module
from spr_jax.solver.label_noise import MOST_ROWS, READING_WEIGHTS, label_noise
from spr_jax.solver.top_share import keep_lowest

# One shape, compiled once.
N, C, D = 3000, 10, 12


def transitions(kind, rate):
    if kind == "symmetric":
        return np.where(np.eye(C) > 0, 1 - rate, rate / (C - 1))
    return (1 - rate) * np.eye(C) + rate * np.roll(np.eye(C), 1, axis=1)  # t becomes t + 1


def make_noise(transition, seed=0):
    """Gaussian clusters, given labels, true labels."""
    generator = np.random.default_rng(seed)
    true = generator.integers(0, C, N)
    centres = 2 * generator.standard_normal((C, D))
    features = (centres[true] + generator.standard_normal((N, D))).astype(np.float32)
    given = np.sum(generator.random(N)[:, None] > np.cumsum(transition[true], axis=1), axis=1)
    return features, np.minimum(given, C - 1).astype(np.int32), true


def study(features, given, num_classes=C, lift=True):
    noise = label_noise(features, given, num_classes=num_classes, pca_dim=D, lift=lift)
    return jax.device_get(noise)


@cache
def case(kind, rate, seed):
    features, given, true = make_noise(transitions(kind, rate), seed)
    return study(features, given), given, true


def true_rates(given, true):
    wrong = given != true
    return np.append(wrong.mean(), [wrong[given == k].mean() for k in range(C)])


RATES = [0.05, 0.2, 0.4, 0.6, 0.8]
FAST_AND_SLOW = [
    0.4,
    *(pytest.param(rate, marks=pytest.mark.slow) for rate in RATES if rate != 0.4),
]


@pytest.mark.slow
@pytest.mark.parametrize("rate", FAST_AND_SLOW)
def test_rate_of_symmetric_noise(rate):
    for seed in range(2):
        noise, given, true = case("symmetric", rate, seed)
        expected = true_rates(given, true)
        np.testing.assert_allclose(noise.rate[0], expected[0], atol=0.03)
        np.testing.assert_allclose(noise.rate, expected, atol=0.12)
        assert np.abs(noise.rate - expected).mean() < 0.04


def test_rate_of_noise_from_class_to_class():
    noise, given, true = case("pair", 0.3, 0)
    expected = true_rates(given, true)
    np.testing.assert_allclose(noise.rate[0], expected[0], atol=0.05)
    np.testing.assert_allclose(noise.rate, expected, atol=0.1)


def test_rate_of_one_noisy_class():
    transition = np.eye(C)
    transition[3] = transitions("symmetric", 0.5)[3]
    features, given, true = make_noise(transition)
    noise, expected = study(features, given), true_rates(given, true)
    np.testing.assert_allclose(noise.rate, expected, atol=0.03)
    assert noise.rate[1 + 3] < 0.01 < noise.rate[1:][np.arange(C) != 3].min()


@pytest.mark.slow
def test_intervals_cover():
    """Intervals of the overall rate, and of most classes."""
    cases = [case("symmetric", rate, seed) for rate in RATES for seed in range(2)]
    cases += [case("pair", 0.3, seed) for seed in range(3)]
    covered = []
    for noise, given, true in cases:
        expected = true_rates(given, true)
        covered.append((noise.low <= expected) & (expected <= noise.high))
        assert np.all(noise.low <= noise.rate) and np.all(noise.rate <= noise.high)
    assert np.mean([each[0] for each in covered]) >= 0.85
    assert np.mean(covered) >= 0.85


@pytest.mark.slow
def test_intervals_are_not_too_wide():
    for rate in RATES[:4]:
        noise = case("symmetric", rate, 0)[0]
        assert noise.high[0] - noise.low[0] < 0.12


def test_more_noise_than_half_is_outside_the_interval_of_little():
    little, much = (case("symmetric", rate, 0)[0] for rate in (0.2, 0.6))
    assert little.high[0] < much.low[0]


def test_right_labels_are_found_right():
    noise, given, _ = case("symmetric", 0, 0)
    assert noise.rate[0] < 0.01
    assert np.mean(noise.wrong > 0.5) < 0.005
    assert np.mean(noise.suggested == given) > 0.995
    assert noise.low[0] == 0


def test_wrong_labels_are_found_and_corrected():
    noise, given, true = case("symmetric", 0.4, 0)
    wrong = given != true
    assert noise.wrong[wrong].mean() > 0.9 and noise.wrong[~wrong].mean() < 0.1
    assert np.mean(noise.suggested == true) > 0.95
    assert np.mean((noise.wrong > 0.5) == wrong) > 0.95


@pytest.mark.slow
def test_error_probabilities_are_calibrated():
    """Nearly, where they are sure; more often wrong, where they are not."""
    runs = [case("symmetric", rate, seed) for rate in RATES for seed in range(2)]
    probability = np.concatenate([noise.wrong for noise, _, _ in runs])
    wrong = np.concatenate([given != true for _, given, true in runs])
    for within in (probability < 0.05, probability > 0.95):
        np.testing.assert_allclose(wrong[within].mean(), probability[within].mean(), atol=0.02)
    unsure = (probability > 0.2) & (probability < 0.8)
    assert 0.3 < wrong[unsure].mean() < 0.9


def test_models_enclose_the_probability():
    noise, _, _ = case("pair", 0.3, 0)
    assert np.all(noise.least <= noise.wrong) and np.all(noise.wrong <= noise.most)
    assert np.any(noise.least < noise.most)
    assert np.all(noise.disagreement >= 0) and np.any(noise.disagreement > 0)


def test_rates_are_means_of_probabilities():
    noise, given, _ = case("pair", 0.3, 0)
    expected = [noise.wrong.mean(), *(noise.wrong[given == k].mean() for k in range(C))]
    np.testing.assert_allclose(noise.rate, expected, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.05, 0.1])
def test_levels_are_kept(level):
    """In nine of ten sets that claim it."""
    kept, within = [], []
    for rate in RATES:
        for seed in range(2):
            noise, given, true = case("symmetric", rate, seed)
            for level_of, mistake in ((keep_cleanest, given != true), (flag_surest, given == true)):
                found = level_of(noise, given, level)
                if found.attained.any():
                    within.append(mistake[found.chosen].mean() <= level)
                    kept.append(found.chosen.sum() / (~mistake).sum())
    assert len(within) >= 12 and np.mean(within) >= 0.9
    assert np.median(kept) > 0.6


@pytest.mark.parametrize(("kind", "rate"), [("symmetric", 0.4), ("pair", 0.3)])
def test_confusion_shows_the_flips(kind, rate):
    noise, given, true = case(kind, rate, 0)
    np.testing.assert_allclose(noise.confusion.sum(axis=1), 1, rtol=1e-4)
    np.testing.assert_allclose(1 - np.diag(noise.confusion), noise.rate[1:], atol=1e-4)
    counts = np.zeros((C, C))
    np.add.at(counts, (given, true), 1)
    expected = counts / counts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(noise.confusion, expected, atol=0.08)


@pytest.mark.slow
def test_labels_at_random_are_not_explained():
    assert is_explained(case("symmetric", 0.6, 0)[0])
    for seed in range(2):
        noise, given, _ = case("symmetric", 1 - 1 / C, seed)
        assert not is_explained(noise)
        for level_of in (keep_cleanest, flag_surest):
            assert not level_of(noise, given, 0.5).attained.any()


def test_order_of_the_examples_does_not_matter():
    features, given, _ = make_noise(transitions("symmetric", 0.4))
    order = np.random.default_rng(4).permutation(N)
    assert N <= MOST_ROWS  # and not too many for the jackknife; only its groups differ
    straight, permuted = case("symmetric", 0.4, 0)[0], study(features[order], given[order])
    # Landmarks of the kernel are other examples then: a few unsure labels change.
    change = np.abs(permuted.wrong - straight.wrong[order])
    assert change.mean() < 0.003 and change.max() < 0.25
    assert np.mean(permuted.suggested == straight.suggested[order]) > 0.998
    np.testing.assert_allclose(permuted.rate, straight.rate, atol=5e-3)
    np.testing.assert_allclose(permuted.evidence, straight.evidence, rtol=5e-3)


def assert_nearly_the_same(found, expected):
    """Fits stop short of the optimum at other places: a few unsure labels move a little."""
    change = np.abs(found - expected)
    assert change.mean() < 2e-3 and change.max() < 0.08


@pytest.mark.slow
def test_names_of_the_classes_do_not_matter():
    features, given, _ = make_noise(transitions("symmetric", 0.4))
    name = np.random.default_rng(5).permutation(C).astype(np.int32)
    straight, renamed = case("symmetric", 0.4, 0)[0], study(features, name[given])
    assert_nearly_the_same(renamed.wrong, straight.wrong)
    np.testing.assert_allclose(renamed.rate[1:][name], straight.rate[1:], atol=5e-3)
    assert np.mean(renamed.suggested == name[straight.suggested]) > 0.998


@pytest.mark.slow
def test_any_affine_view_of_the_features_is_the_same_to_the_linear_model():
    """All components are used, so the space that they span is all that counts."""
    features, given, _ = make_noise(transitions("symmetric", 0.4))
    generator = np.random.default_rng(6)
    view = generator.standard_normal((D, D)) + 3 * np.eye(D)
    seen = (5 * features @ view + 100 * generator.standard_normal(D)).astype(np.float32)
    straight, other = (study(x, given, lift=False) for x in (features, seen))
    # The fit ends where it improves little; an unsure label is decided only so far.
    np.testing.assert_allclose(other.wrong, straight.wrong, atol=0.04)
    np.testing.assert_allclose(other.rate, straight.rate, atol=5e-3)


@pytest.mark.slow
def test_rotation_shift_and_scale_of_the_features_do_not_matter():
    """They keep the distances, in units of each other, and the kernel sees nothing else."""
    features, given, _ = make_noise(transitions("symmetric", 0.4))
    generator = np.random.default_rng(6)
    turn = np.linalg.qr(generator.standard_normal((D, D)))[0]
    seen = (5 * features @ turn + 100 * generator.standard_normal(D)).astype(np.float32)
    straight, other = case("symmetric", 0.4, 0)[0], study(seen, given)
    assert_nearly_the_same(other.wrong, straight.wrong)
    np.testing.assert_allclose(other.rate, straight.rate, atol=5e-3)


@pytest.mark.slow
def test_half_precision_is_only_a_way_to_store_features():
    features, given, _ = make_noise(transitions("symmetric", 0.4))
    half = features.astype(np.float16)
    stored, widened = study(half, given), study(half.astype(np.float32), given)
    np.testing.assert_allclose(stored.wrong, widened.wrong, atol=1e-5)


def test_a_class_of_one_example():
    features, given, true = make_noise(transitions("symmetric", 0.2))
    rare = given == C - 1
    given = np.where(rare, true % (C - 1), given).astype(np.int32)
    given[0] = C - 1
    noise = study(features, given)
    assert all(np.isfinite(part).all() for part in noise)
    settled = (true != C - 1) & (np.arange(N) > 0)
    error = noise.wrong[settled].mean() - np.mean((given != true)[settled])
    assert abs(error) < 0.05


def test_a_class_without_examples():
    features, given, true = make_noise(transitions("symmetric", 0.2))
    kept = np.resize(np.flatnonzero((given != 0) & (true != 0)), N)
    noise = study(features[kept], given[kept])
    assert all(np.isfinite(part).all() for part in noise)
    assert noise.rate[1] == 0 and np.mean(noise.suggested == 0) < 0.01
    np.testing.assert_allclose(noise.rate[0], np.mean((given != true)[kept]), atol=0.03)


@pytest.mark.parametrize("columns", [0, 3])
def test_constant_features_do_no_harm(columns):
    features, given, _ = make_noise(transitions("symmetric", 0.2))
    features[:, columns:] = 7
    noise = study(features, given)
    assert all(np.isfinite(part).all() for part in noise)
    assert is_explained(noise) == (columns > 0)
    assert noise.high[0] > 0.15


def two_classes(apart, seed=0):
    """Two Gaussian classes, the distance between their means, and the true labels."""
    generator = np.random.default_rng(seed)
    true = generator.integers(0, 2, N).astype(np.int32)
    features = generator.standard_normal((N, D))
    features[:, 0] += apart * (true - 0.5)
    return features.astype(np.float32), true


def wrong_near_the_border(features, apart, rate):
    """Errors in proportion to the root of the probability of the other class, `rate` of all."""
    weight = np.sqrt(1 / (1 + np.exp(apart * np.abs(features[:, 0].astype(float)))))
    low, high = 0.0, 1 / weight.min()
    for _ in range(60):
        factor = (low + high) / 2
        enough = np.minimum(factor * weight, 1).mean() > rate
        low, high = (low, factor) if enough else (factor, high)
    return np.random.default_rng(1).random(N) < np.minimum(factor * weight, 1)


def test_errors_near_a_border_are_found():
    features, true = two_classes(apart=5)
    wrong = wrong_near_the_border(features, 5, 0.2)
    assert 0.17 < wrong.mean() < 0.23
    noise = study(features, np.where(wrong, 1 - true, true), num_classes=2)
    flagged = worth_a_look(noise.by_reading, READING_WEIGHTS, np.argsort(-noise.wrong))
    border_noise, overlap = noise.by_reading.mean(axis=1)
    assert overlap < 0.01 < wrong.mean() / 2 < border_noise
    assert noise.low[0] <= wrong.mean() <= noise.high[0]
    assert 2 * np.sum(flagged & wrong) / (flagged.sum() + wrong.sum()) > 0.75


def test_probability_is_the_mean_of_the_readings():
    noise, _, _ = case("pair", 0.3, 0)
    expected = READING_WEIGHTS @ noise.by_reading
    np.testing.assert_allclose(noise.wrong, expected, atol=1e-5)


def test_another_class_is_known_for_every_label():
    noise, given, _ = case("pair", 0.3, 0)
    changed = noise.suggested != given
    assert np.all(noise.other != given) and changed.any()
    np.testing.assert_array_equal(noise.other[changed], noise.suggested[changed])


@pytest.mark.parametrize("apart", [4, 5, 6])
def test_without_errors_near_a_border_none_are_found(apart):
    features, true = two_classes(apart=apart)
    noise = study(features, true, num_classes=2)
    assert not worth_a_look(noise.by_reading, READING_WEIGHTS, np.argsort(-noise.wrong)).any()
    assert np.mean(noise.wrong > 0.5) < 0.01
    assert noise.low[0] == 0


def test_overlap_of_classes_is_not_surely_noise():
    """Each class has 15 % of its examples on the other side; all labels are right."""
    features, true = two_classes(apart=2.073)
    noise = study(features, true, num_classes=2)
    assert noise.low[0] == 0
    # By their places the classes do overlap, so this is not read as errors.
    assert np.mean(noise.wrong > 0.5) < 0.03


def test_a_posterior_above_one_makes_the_surest_label_no_suspect():
    """As accelerators may round it; the rule that keeps the lowest takes a sign for a large one."""
    posterior = jnp.float32([[1 + 2**-23, 0.8, 0.1, 0.05, 0.9], [0, 0.2, 0.9, 0.95, 0.1]])
    labels = np.zeros(5, np.int32)
    wrong = module._wrong(posterior, labels)
    assert wrong.min() == 0 and not np.signbit(wrong).any()
    kept = keep_lowest(wrong, labels, np.ones(5, bool), jnp.float32([0.6]))
    np.testing.assert_array_equal(kept, [1, 1, 0, 0, 1])
