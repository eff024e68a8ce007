"""Knockoffs-SPR: the parts against slow NumPy, the whole against the level that was set."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_data

from spr_jax.devices import device_mesh
from spr_jax.solver import Options, plan_pieces
from spr_jax.solver.knockoffs import (
    Trial,
    _select,
    _without_repeats,
    compare_labels,
    deal_halves,
    fit_other_half,
    knockoff_set,
    knockoff_slots,
    thresholds,
)
from spr_jax.solver.pieces import cut_pieces

OPTIONS = Options(pca_dim=6, num_penalties=20, tolerance=1e-2)

# Compiled as a whole, not operation by operation.
find = jax.jit(thresholds, static_argnames="rule")
cut_up = jax.jit(cut_pieces, static_argnums=3)
deal = jax.jit(deal_halves, static_argnums=(2, 3))
fit = jax.jit(fit_other_half, static_argnums=3)
compare = jax.jit(compare_labels, static_argnums=3)


def run(features, labels, seed=0, level=0.2, scores=None, trial=None, mesh=None, plan=None, **cut):
    plan = plan or plan_pieces(labels, multiple_of=2, **cut)
    arrays = jnp.asarray(features), jnp.asarray(labels), jax.random.key(seed), None, scores
    trial = trial or Trial()
    level = jnp.broadcast_to(jnp.asarray(level), plan.num_classes)  # one type, one compilation
    found = knockoff_set(*arrays, level, plan=plan, options=OPTIONS, trial=trial, mesh=mesh)
    return jax.device_get(found)


@pytest.fixture
def halves():
    """Points, slots and sure rows of two halves of 40 rows, three classes."""
    generator = np.random.default_rng(0)
    points, slot = generator.standard_normal((2, 40, 4)), generator.integers(0, 3, (2, 40))
    return points, slot, generator.random((2, 40)) < 0.6


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


GROUPS = {"classes_per_group": 3}


def test_halves_hold_each_row_once_and_every_class():
    labels = np.repeat(np.arange(5), [2, 3, 20, 31, 6]).astype(np.int32)
    for cut in ({}, {"per_class": 8}, GROUPS):
        plan = plan_pieces(labels, **cut)
        groups = jnp.asarray([[0, 1, 4], [2, 3, -1]]) if cut == GROUPS else jnp.arange(5)[None]
        pieces = cut_up(labels, groups, jax.random.key(0), plan)
        halves, row, _ = jax.device_get(deal(pieces, jax.random.key(1), plan, 2))
        assert halves.index.shape[1] % 2 == 0
        flat = np.asarray(pieces.index).ravel()
        used = np.asarray(halves.index) >= 0
        np.testing.assert_array_equal(flat[row][used], halves.index[used])
        assert sorted(row[used]) == np.flatnonzero(flat >= 0).tolist()
        counts = np.zeros((len(row), plan.classes_per_group), int)
        np.add.at(counts, (np.nonzero(used)[0], halves.slot[used]), 1)
        assert abs(counts[::2] - counts[1::2]).max() <= 1


def test_halves_are_drawn_anew_with_the_key():
    labels = np.arange(40) % 2
    plan = plan_pieces(labels)
    pieces = cut_up(labels, jnp.arange(2)[None], jax.random.key(0), plan)
    first, second = (deal(pieces, jax.random.key(seed), plan)[0].index for seed in (0, 1))
    assert set(np.asarray(first[0]).tolist()) != set(np.asarray(second[0]).tolist())


def test_a_piece_holds_no_example_twice():
    labels = np.repeat([0, 1, 2], [40, 7, 15])
    plan = plan_pieces(labels, per_class=10)
    groups = jnp.arange(3)[None]
    pieces = cut_up(labels, groups, jax.random.key(0), plan)
    index = np.asarray(_without_repeats(pieces, groups, labels, plan).index)
    for piece in index:
        examples = piece[piece >= 0]
        assert len(examples) == len(set(examples.tolist()))
    assert set(index.ravel().tolist()) >= set(range(62))


def test_each_half_is_judged_by_least_squares_on_the_other(halves):
    points, slot, sure = halves
    fitted, known = fit(*halves, 3)
    design = np.concatenate([points, np.ones((2, 40, 1))], axis=2)
    for this, other in ((0, 1), (1, 0)):
        rows = sure[other]
        beta = np.linalg.lstsq(design[other][rows], np.eye(3)[slot[other][rows]], rcond=None)[0]
        np.testing.assert_allclose(fitted[this], design[this] @ beta, atol=1e-10)
    assert known.all()


@pytest.mark.parametrize("num_sure", [0, 3, 30])
def test_missing_class_and_missing_rank_do_no_harm(halves, num_sure):
    points, slot, _ = halves
    points = points.astype(np.float32)
    points[..., 3] = points[..., 2]  # and two features are the same
    sure = (np.arange(40) < num_sure) & (slot != 1)
    fitted, known = fit(points, slot, sure, 3)
    assert np.isfinite(fitted).all() and np.abs(fitted).max() < 10
    assert not known[:, 1].any()
    rival = knockoff_slots(fitted, slot, known)
    assert not np.any((rival == 1) & (slot != 1))


def test_confident_knockoff_is_the_best_scored_other_class():
    scores = jnp.asarray([[[0.1, 0.7, 0.2], [0.1, 0.7, 0.2], [0.1, 0.7, 0.2]]])
    slot = jnp.asarray([[0, 1, 2]])
    known = jnp.ones((1, 3), bool)
    assert knockoff_slots(scores, slot, known).tolist() == [[1, 2, 1]]
    assert knockoff_slots(scores, slot, known.at[0, 1].set(False)).tolist() == [[2, 2, 0]]
    alone = jnp.zeros((1, 3), bool).at[0, 2].set(True)
    assert knockoff_slots(scores, slot, alone).tolist() == [[2, 2, 2]]


def test_random_knockoffs_are_uniform_over_the_other_classes():
    scores = jax.random.uniform(jax.random.key(0), (1, 6000, 4))
    slot = jnp.zeros((1, 6000), int) + 2
    counts = np.bincount(knockoff_slots(scores, slot, jnp.ones((1, 4), bool))[0], minlength=4)
    assert counts[2] == 0
    assert abs(counts[[0, 1, 3]] - 2000).max() < 150


@pytest.mark.parametrize("magnitude", ["smaller", "given"])
def test_statistic_is_that_of_slow_numpy(halves, magnitude):
    fitted, slot = np.random.default_rng(3).random((2, 40, 3)), halves[1]
    rival = (slot + 1) % 3
    found = compare(fitted, slot, rival, magnitude)
    for half, row in np.ndindex(2, 40):
        expected = fitted[half, row]
        given = np.linalg.norm(np.eye(3)[slot[half, row]] - expected)
        knockoff = np.linalg.norm(np.eye(3)[rival[half, row]] - expected)
        size = given if magnitude == "given" else min(given, knockoff)
        np.testing.assert_allclose(found[half, row], size * np.sign(given - knockoff))


def test_exchanging_label_and_knockoff_turns_the_statistic_around(halves):
    fitted, slot = np.random.default_rng(3).random((2, 40, 3)), halves[1]
    rival = (slot + 1) % 3
    straight, exchanged = compare(fitted, slot, rival), compare(fitted, rival, slot)
    np.testing.assert_array_equal(straight, -exchanged)
    given = [compare(fitted, *pair, "given") for pair in ((slot, rival), (rival, slot))]
    np.testing.assert_array_equal(np.sign(given[0]), -np.sign(given[1]))


def test_a_perfect_fit_still_has_a_sign():
    fitted, slot = np.eye(3)[None], np.arange(3)[None]
    assert np.all(compare(fitted, slot, (slot + 1) % 3) < 0)
    assert np.all(compare(fitted, (slot + 1) % 3, slot) > 0)


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


@pytest.mark.parametrize("cut", SHAPES)
def test_share_of_wrong_labels_stays_below_the_level(cut):
    for rate in (0.2, 0.4, 0.6):
        for level in (0.1, 0.2):
            assert wrong_share(Trial(), rate, level, cut) <= level


def test_most_right_labels_are_kept_where_the_noise_is_low():
    features, given, true = make_noise(0.2, 0)
    clean = run(features, given, level=0.1).clean
    assert clean[given == true].mean() > 0.5


def test_magnitude_of_the_paper_exceeds_the_level():
    """Why it is not the default."""
    assert wrong_share(Trial(magnitude="given"), 0.6, 0.1, {}) > 0.15


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


def test_a_class_too_small_for_the_level_keeps_nothing(small_class):
    features, given = small_class
    found = run(features, given, level=0.05)
    assert found.attained.tolist() == [True, True, True, False]
    assert not found.clean[given == 3].any()
    assert 1 / 5 <= found.lowest_level[3] < np.inf  # five examples in each half
    again = run(features, given, level=found.lowest_level)  # is attained, and
    lower = run(features, given, level=0.99 * found.lowest_level)  # nothing below it is
    assert again.attained.all() and not lower.attained.any()


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


def test_fallback_is_for_failing_classes_only():
    """Ten winners among losers attain 0.3 and keep themselves, not the share of 0.9."""
    statistic = np.append(-np.linspace(0.1, 0.2, 10), np.tile([0.3, -0.4], 10))
    rows = statistic[None].repeat(2, axis=0), np.zeros((2, 30), int), np.ones((2, 30), bool)
    trial = Trial(fallback="share", share=0.9)
    kept, _, _ = _select(*rows, np.array([0.3]), trial)
    assert kept.sum(axis=1).tolist() == [10, 10]
    kept, _, _ = _select(*rows, np.array([0.05]), trial)
    assert kept.sum(axis=1).tolist() == [20, 20]


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


def test_pieces_may_have_thresholds_of_their_own():
    features, given, _ = make_data(400, rate=0.0, separation=3.0)
    over_all = run(features, given, per_class=50)
    in_each = run(features, given, per_class=50, trial=Trial(scope="piece"))
    np.testing.assert_array_equal(in_each.statistic, over_all.statistic)
    assert in_each.lowest_level.min() == 1 / 25  # 25 examples of a class in a half
    assert over_all.lowest_level.max() < 1 / 25


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
