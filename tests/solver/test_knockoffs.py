"""Knockoffs-SPR as a whole, against the level that was set."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_data

from spr_jax.devices import device_mesh
from spr_jax.solver import Options, plan_pieces
from spr_jax.solver.knockoffs import (
    Trial,
    knockoff_set,
)

OPTIONS = Options(pca_dim=6, num_penalties=20, tolerance=1e-2)


def run(features, labels, seed=0, level=0.2, scores=None, trial=None, mesh=None, plan=None, **cut):
    plan = plan or plan_pieces(labels, multiple_of=2, **cut)
    arrays = jnp.asarray(features), jnp.asarray(labels), jax.random.key(seed), None, scores
    trial = trial or Trial()
    level = jnp.broadcast_to(jnp.asarray(level), plan.num_classes)  # one type, one compilation
    found = knockoff_set(*arrays, level, plan=plan, options=OPTIONS, trial=trial, mesh=mesh)
    return jax.device_get(found)


SHAPES = [pytest.param({}, id="whole"), pytest.param({"per_class": 50}, id="split")]


def make_noise(rate, seed, n=3000, num_classes=10):
    """Gaussian clusters, given labels with symmetric noise, true labels."""
    generator = np.random.default_rng(seed)
    centres, true = 0.8 * generator.standard_normal((num_classes, 20)), np.arange(n) % num_classes
    features = (centres[true] + generator.standard_normal((n, 20))).astype(np.float32)
    shift = np.where(generator.random(n) < rate, generator.integers(1, num_classes, n), 0)
    return features, ((true + shift) % num_classes).astype(np.int32), true


def wrong_share(trial, rate, level, cut, seeds=6):
    shares = []
    for seed in range(seeds):
        features, given, true = make_noise(rate, seed)
        plan = plan_pieces(given, **cut)
        plan = plan if plan.is_whole else plan._replace(num_pieces=8)  # one shape for all draws
        clean = run(features, given, seed, level, trial=trial, plan=plan).clean
        shares.append(np.mean(given[clean] != true[clean]) if clean.any() else 0.0)
    return np.mean(shares)


@pytest.mark.slow
@pytest.mark.parametrize("cut", SHAPES)
def test_share_of_wrong_labels_stays_below_the_level(cut):
    for rate in (0.2, 0.4, 0.6):
        for level in (0.1, 0.2):
            assert wrong_share(Trial(), rate, level, cut) <= level


def test_most_right_labels_are_kept_where_the_noise_is_low():
    features, given, true = make_noise(0.2, 0)
    clean = run(features, given, level=0.1).clean
    assert clean[given == true].mean() > 0.5
    assert (given != true)[clean].mean() <= 0.1


@pytest.mark.slow
@pytest.mark.parametrize("cut", SHAPES)
def test_a_larger_level_keeps_more_of_the_same(data, cut):
    features, given, _ = data
    kept = [run(features, given, level=level, **cut).clean for level in (0.05, 0.1, 0.3, 0.6)]
    assert all(np.all(more >= less) for less, more in zip(kept, kept[1:], strict=False))
    assert kept[0].sum() < kept[-1].sum()


def test_the_best_fits_are_kept(data):
    features, given, true = data
    found = run(features, given)
    wins = found.statistic < 0
    assert np.all(wins[found.clean])
    assert -found.statistic[found.clean].mean() < -found.statistic[wins & ~found.clean].mean()
    assert wins[given == true].mean() > wins[given != true].mean() + 0.3


@pytest.fixture
def small_class():
    """Four classes that are easily told apart, the last of ten examples."""
    features, given, _ = make_data(600, separation=3.0, rate=0.0)
    kept = np.flatnonzero((given < 3) | (np.cumsum(given == 3) <= 10))[:400]
    return features[kept], given[kept]


@pytest.mark.slow
def test_a_class_too_small_for_the_level_keeps_nothing(small_class):
    features, given = small_class
    found = run(features, given, level=0.05)
    assert found.attained.tolist() == [True, True, True, False]
    assert not found.clean[given == 3].any()
    assert 1 / 5 <= found.lowest_level[3] < np.inf  # five examples in each half
    again = run(features, given, level=found.lowest_level)  # is attained, and
    lower = run(features, given, level=0.99 * found.lowest_level)  # nothing below it is
    assert again.attained.all() and not lower.attained.any()


@pytest.mark.slow
def test_fallback_keeps_a_share_of_the_best_fits(small_class):
    features, given = small_class
    trial = Trial(fallback="share", share=0.6)
    found = run(features, given, level=0.05, trial=trial)
    assert found.attained.tolist() == [True, True, True, False]
    assert 0 < found.clean[given == 3].sum() <= 6
    at_random = np.random.default_rng(0).permutation(given)
    everyone = run(features, at_random, level=0.0, trial=trial)
    assert not everyone.attained.any()
    assert np.all(everyone.statistic[everyone.clean] < 0)  # though fewer than the share win
    for k in range(4):
        assert 0 < everyone.clean[at_random == k].sum() <= 0.6 * np.sum(at_random == k)


@pytest.mark.slow
def test_scaled_level_is_that_of_the_paper(data):
    features, given, _ = data
    scaled = run(features, given, level=0.4, trial=Trial(scale_level=True))
    plain = run(features, given, level=0.4 * (4 - 2) / (2 * 4))
    jax.tree.map(np.testing.assert_array_equal, scaled, plain)
    assert plain.clean.any()


def test_rare_and_absent_classes_leave_no_trace(data):
    features, given, _ = data
    given = given % 2
    given[5] = 2  # a single example; and class 3 has none
    found = run(features, given, num_classes=4, level=0.5)
    assert np.isfinite(found.statistic).all()
    assert found.attained.tolist() == [True, True, False, False]
    assert found.statistic[5] > 0
    assert np.isinf(found.lowest_level[2:]).all()


@pytest.mark.slow
def test_scores_of_the_network_choose_confident_knockoffs():
    """Six classes in two groups: a wrong label loses to the true class if that is its knockoff."""
    features, given, true = make_data(600, num_classes=6)
    knows = np.eye(6)[true]
    trial = Trial(knockoffs="confident")
    cut = {"per_class": 50, "classes_per_group": 3}
    right, wrong = (
        run(features, given, scores=scores, trial=trial, **cut) for scores in (knows, -knows)
    )
    lost = given != true
    assert np.mean(right.statistic[lost] > 0) > np.mean(wrong.statistic[lost] > 0) + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("cut", SHAPES)
def test_two_devices_equal_one(data, cut):
    features, given, _ = data
    one = run(features, given, **cut)
    two = run(features, given, mesh=device_mesh(), **cut)
    np.testing.assert_array_equal(two.clean, one.clean)
    np.testing.assert_allclose(two.statistic, one.statistic, atol=1e-9)


def test_answer_is_one_program_without_host_round_trips(data):
    features, given, _ = data
    plan = plan_pieces(given, multiple_of=2)
    device = jnp.asarray(features), jnp.asarray(given), jax.random.key(0), None, None
    level = jnp.full(4, 0.2)
    program = knockoff_set.lower(*device, level, plan=plan, options=OPTIONS).compile()
    assert "callback" not in program.as_text()
    with jax.transfer_guard("disallow"):
        jax.block_until_ready(program(*device, level))
