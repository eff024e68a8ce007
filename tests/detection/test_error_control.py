"""Levels of mistakes: the bound against slow NumPy, the promise against simulated labels."""

from functools import cache

import jax
import numpy as np
import pytest

from spr_jax.detection.error_control import (
    DISAGREEMENT_INFLATION,
    INFLATION,
    LEAST_AUROC,
    LEAST_EVIDENCE,
    UNFORESEEN,
    expected_auroc,
    flag_surest,
    is_explained,
    keep_cleanest,
)
from spr_jax.solver.label_noise import LabelNoise, label_noise

LEVELS = [0.03, 0.08, 0.15, 0.3]


def make_noise(sizes, disagreement=0.01, seed=0):
    """Error probabilities of a good model, for classes of these sizes."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
    wrong = np.where(generator.random(len(labels)) < 0.3, 1 - 1e-4, 1e-4)
    wrong = np.clip(wrong + 0.2 * generator.standard_normal(len(labels)) ** 3, 1e-4, 1 - 1e-4)
    apart = 0.01 * generator.random((2, len(labels)))
    rate = np.full(1 + len(sizes), wrong.mean())
    noise = LabelNoise(
        wrong=wrong,
        by_reading=wrong[None],
        least=np.maximum(wrong - apart[0], 0),
        most=np.minimum(wrong + apart[1], 1),
        suggested=labels,
        other=labels,
        rate=rate,
        low=rate,
        high=rate,
        disagreement=np.full(len(rate), disagreement),
        confusion=np.eye(len(sizes)),
        evidence=np.float64(20),
        left=np.float64(0),
    )
    return noise, labels


def slow_level(noise, labels, level, of_wrong):
    rank = noise.wrong if of_wrong else 1 - noise.wrong
    mistake = np.minimum((noise.most if of_wrong else 1 - noise.least) + UNFORESEEN, 1)
    share = noise.rate[0] if of_wrong else 1 - noise.rate[0]
    inflation = INFLATION + DISAGREEMENT_INFLATION * noise.disagreement[0] / max(share, 0.01)
    chosen, lowest = np.zeros(len(labels), bool), np.full(len(noise.rate) - 1, np.inf)
    for k in range(len(lowest)):
        mine = sorted(np.flatnonzero(labels == k), key=lambda i: rank[i])
        for size in range(1, len(mine) + 1):
            expected = sum(mistake[i] for i in mine[:size])
            variance = sum(mistake[i] * (1 - mistake[i]) for i in mine[:size])
            bound = (1 + inflation * expected + 1.64 * variance**0.5) / size
            if bound <= level:
                chosen[mine[:size]] = True
            lowest[k] = min(lowest[k], bound)
    return chosen, lowest


@pytest.mark.parametrize("disagreement", [0, 0.05])
@pytest.mark.parametrize("level", LEVELS)
def test_choice_is_that_of_slow_numpy(level, disagreement):
    noise, labels = make_noise([200, 60, 100], disagreement)
    for level_of, of_wrong in ((keep_cleanest, True), (flag_surest, False)):
        found = level_of(noise, labels, level)
        chosen, lowest = slow_level(noise, labels, level, of_wrong)
        np.testing.assert_array_equal(found.chosen, chosen)
        np.testing.assert_allclose(found.lowest, lowest, rtol=1e-9)
        np.testing.assert_array_equal(found.attained, lowest <= level)


@pytest.mark.parametrize("level_of", [keep_cleanest, flag_surest])
def test_a_larger_level_chooses_more_of_the_same(level_of):
    noise, labels = make_noise([200, 60, 100])
    chosen = [level_of(noise, labels, level).chosen for level in LEVELS]
    assert all(np.all(more >= less) for less, more in zip(chosen, chosen[1:], strict=False))
    assert chosen[0].sum() < chosen[1].sum() < chosen[-1].sum()


def test_the_same_example_is_not_both_kept_and_flagged():
    noise, labels = make_noise([200, 60, 100])
    kept, flagged = (f(noise, labels, 0.1).chosen for f in (keep_cleanest, flag_surest))
    assert kept.any() and flagged.any() and not np.any(kept & flagged)


def test_models_that_disagree_promise_less():
    chosen = []
    for disagreement in (0, 0.02, 0.1):
        noise, labels = make_noise([200, 60, 100], disagreement)
        chosen.append(keep_cleanest(noise, labels, 0.05).chosen.sum())
    assert chosen[0] > chosen[1] > chosen[2]


@pytest.mark.parametrize("size", [0, 1, 10])
def test_a_class_too_small_for_the_level_has_no_examples(size):
    noise, labels = make_noise([400, size, 400])
    found = keep_cleanest(noise, labels, 0.05)
    assert found.attained.tolist() == [True, False, True]
    assert not found.chosen[labels == 1].any() and found.chosen[labels != 1].any()
    assert found.lowest[1] > 0.05
    assert np.isinf(found.lowest[1]) == (size == 0)


def test_the_lowest_level_is_one_that_can_be_kept():
    noise, labels = make_noise([200, 60, 100])
    lowest = keep_cleanest(noise, labels, 0.1).lowest
    for k, level in enumerate(lowest):
        assert keep_cleanest(noise, labels, level).attained[k]
        assert not keep_cleanest(noise, labels, 0.999 * level).attained[k]


@pytest.mark.parametrize("level_of", [keep_cleanest, flag_surest])
def test_without_an_explanation_nothing_is_claimed(level_of):
    noise, labels = make_noise([200, 60, 100])
    doubtful = np.clip(noise.wrong, 0.2, 0.8)
    assert expected_auroc(doubtful) < LEAST_AUROC < expected_auroc(noise.wrong)
    for poor in (noise._replace(evidence=np.float64(2)), noise._replace(wrong=doubtful)):
        found = level_of(poor, labels, 0.9)
        assert not found.chosen.any() and not found.attained.any()
        assert np.all(np.isinf(found.lowest))


def test_features_explain_labels_if_the_evidence_is_clear():
    noise, _ = make_noise([200, 60, 100])
    assert is_explained(noise._replace(evidence=np.float64(LEAST_EVIDENCE + 0.1)))
    assert not is_explained(noise._replace(evidence=np.float64(LEAST_EVIDENCE)))
    worst = np.full(4, 0.7)  # more than labels at random have
    assert not is_explained(noise._replace(rate=worst))


@pytest.mark.parametrize("digits", [2, 9], ids=["ties", "no ties"])
def test_expected_auroc_is_that_of_all_pairs(digits):
    wrong = np.round(np.random.default_rng(0).beta(0.3, 0.6, 400), digits)
    weight = wrong[:, None] * (1 - wrong)  # that the first is wrong and the second right
    above = (wrong[:, None] > wrong) + 0.5 * (wrong[:, None] == wrong)
    expected = np.sum(weight * above) / weight.sum()
    np.testing.assert_allclose(expected_auroc(wrong), expected, atol=2e-3)
    shuffled = np.random.default_rng(1).permutation(wrong)
    np.testing.assert_allclose(expected_auroc(shuffled), expected_auroc(wrong))


def test_expected_auroc_at_its_limits():
    assert expected_auroc(np.array([0, 0, 1, 1])) == 1
    np.testing.assert_allclose(expected_auroc(np.full(1000, 0.3)), 0.5, atol=1e-3)
    assert np.isfinite(expected_auroc(np.zeros(4)))


# One shape, compiled once.
N, C, D = 1500, 2, 8
RATES = [0.05, 0.15, 0.3]


@cache
def case(rate, seed):
    """Two clusters that overlap a little."""
    generator = np.random.default_rng(seed)
    true = generator.integers(0, C, N)
    features = (1.2 * true[:, None] + generator.standard_normal((N, D))).astype(np.float32)
    given = np.where(generator.random(N) < rate, 1 - true, true).astype(np.int32)
    noise = label_noise(features, given, num_classes=C, pca_dim=D, intervals=False)
    return jax.device_get(noise), given, true


@pytest.mark.slow
def test_two_classes_have_their_rate():
    for rate in RATES:
        noise, given, true = case(rate, 0)
        np.testing.assert_allclose(noise.rate[0], np.mean(given != true), atol=0.03)
        assert np.mean(noise.suggested == true) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.05, 0.1])
def test_level_is_kept_by_nine_of_ten_sets(level):
    within, chosen = [], []
    for rate in RATES:
        for seed in range(6):
            noise, given, true = case(rate, seed)
            for level_of, mistake in ((keep_cleanest, given != true), (flag_surest, given == true)):
                found = level_of(noise, given, level)
                if found.attained.any():
                    within.append(mistake[found.chosen].mean() <= level)
                    chosen.append(found.chosen.sum() / (~mistake).sum())
    assert len(within) >= 20 and np.mean(within) >= 0.9
    assert np.median(chosen) > 0.3


@pytest.mark.slow
def test_labels_at_random_are_not_explained_and_nothing_is_claimed():
    for seed in range(6):
        noise, given, _ = case(0.5, seed)
        assert not is_explained(noise)
        assert not keep_cleanest(noise, given, 0.5).attained.any()
        assert not flag_surest(noise, given, 0.5).attained.any()
