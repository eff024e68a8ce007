"""Thresholds of Knockoffs-SPR against a slow search."""

import jax
import numpy as np
import pytest

from spr_jax.solver.knockoffs import (
    Trial,
    _select,
    thresholds,
)

# Compiled as a whole, not operation by operation.
find = jax.jit(thresholds, static_argnames="rule")
select = jax.jit(_select, static_argnames="trial")


def slow_thresholds(statistic, label, used, level):
    found = np.zeros(len(level)), np.full(len(level), np.inf)
    for k in range(len(level)):
        mine = statistic[used & (label == k)]
        for candidate in np.unique(np.abs(mine)):  # ascending: the last that passes is the largest
            wins = np.sum((mine < 0) & (mine >= -candidate))
            rate = (1 + np.sum((mine > 0) & (mine <= candidate))) / max(wins, 1)
            if wins and rate <= level[k] + 1e-9:
                found[0][k] = candidate
            found[1][k] = min(found[1][k], rate if wins else np.inf)
    return found


def kept_by(threshold, statistic, label, used):
    return used & (statistic < 0) & (-statistic <= np.asarray(threshold)[label])


@pytest.fixture(params=[2, 6], ids=["ties", "no ties"])
def judged(request):
    """Statistics of 600 rows of four classes, one in five not used."""
    generator = np.random.default_rng(request.param)
    label, used = generator.integers(0, 4, 600), generator.random(600) < 0.8
    sign = np.where(generator.random(600) < 0.15 + 0.1 * label, 1, -1)
    misfit = np.where(sign > 0, 0.4, 0) + generator.random(600)
    return np.round(sign * misfit, request.param), label, used


@pytest.mark.parametrize("level", [0.02, 0.1, 0.25, 0.5])
def test_thresholds_are_those_of_a_slow_search(judged, level):
    statistic, label, used = judged
    levels = np.full(4, level)
    found, lowest = find(*judged, levels)
    expected, expected_lowest = slow_thresholds(*judged, levels)
    np.testing.assert_array_equal(
        kept_by(found, statistic, label, used), kept_by(expected, statistic, label, used)
    )
    np.testing.assert_array_equal(found > 0, expected > 0)
    np.testing.assert_allclose(lowest, expected_lowest)


def test_each_class_may_have_its_own_level(judged):
    levels = np.array([0.05, 0.1, 0.2, 0.4])
    found, _ = find(*judged, levels)
    for k, level in enumerate(levels):
        alone, _ = find(*judged, np.full(4, level))
        assert found[k] == alone[k]


def test_order_of_rows_does_not_matter(judged):
    order = np.random.default_rng(1).permutation(600)
    straight = find(*judged, np.full(4, 0.2))
    permuted = find(*(table[order] for table in judged), np.full(4, 0.2))
    jax.tree.map(np.testing.assert_array_equal, straight, permuted)


def test_a_rate_equal_to_the_level_attains_it():
    """Fifty winners after 0, 1, 2, ... losers, class by class: rates 1 / 50, 2 / 50, ..."""
    rows = [np.append(np.full(k, 0.1), -np.linspace(0.3, 0.4, 50)) for k in range(25)]
    label = np.repeat(np.arange(25), [len(row) for row in rows])
    judged = np.concatenate(rows).astype(np.float32), label, np.ones(len(label), bool)
    count = np.arange(1, 26, dtype=np.float32)
    level = np.float32(0.02) * count
    assert np.any(count / np.float32(50) > level)  # by rounding
    threshold, lowest = find(*judged, level)
    np.testing.assert_array_equal(threshold, np.float32(0.4))
    np.testing.assert_allclose(lowest, level, rtol=1e-6)
    assert not find(*judged, level * np.float32(0.999))[0].any()


@pytest.mark.parametrize("cap", [0.05, 0.1, 0.5])
def test_released_rule_takes_the_first_level_of_its_grid(judged, cap):
    found, _ = find(*judged, np.full(4, cap), rule="released")
    grid = [*np.arange(0.02, cap - 1e-9, 0.02), cap]
    tried = np.array([slow_thresholds(*judged, np.full(4, level))[0] for level in grid])
    first = tried[np.argmax(tried > 0, axis=0), np.arange(4)]
    statistic, label, used = judged
    np.testing.assert_array_equal(
        kept_by(found, statistic, label, used), kept_by(first, statistic, label, used)
    )


def test_released_grid_includes_the_cap():
    statistic = np.append(np.full(24, 0.1), -np.linspace(0.3, 0.4, 50))  # 25 of 50
    rows = statistic, np.zeros(74, int), np.ones(74, bool)
    assert find(*rows, np.array([0.5]), rule="released")[0] == 0.4
    assert find(*rows, np.array([0.48]), rule="released")[0] == 0


def test_fallback_is_for_failing_classes_only():
    """Ten winners among losers attain 0.3 and keep themselves, not the share of 0.9."""
    statistic = np.append(-np.linspace(0.1, 0.2, 10), np.tile([0.3, -0.4], 10))
    rows = statistic[None].repeat(2, axis=0), np.zeros((2, 30), int), np.ones((2, 30), bool)
    trial = Trial(fallback="share", share=0.9)
    kept, _, _ = select(*rows, np.array([0.3]), trial=trial)
    assert kept.sum(axis=1).tolist() == [10, 10]
    kept, _, _ = select(*rows, np.array([0.05]), trial=trial)
    assert kept.sum(axis=1).tolist() == [20, 20]
