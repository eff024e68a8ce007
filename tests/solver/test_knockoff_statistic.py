"""Halves, rivals and statistic of Knockoffs-SPR against slow NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spr_jax.solver import plan_pieces
from spr_jax.solver.knockoffs import (
    _without_repeats,
    compare_labels,
    deal_halves,
    fit_other_half,
    knockoff_slots,
)
from spr_jax.solver.pieces import cut_pieces

cut_up = jax.jit(cut_pieces, static_argnums=3)

deal = jax.jit(deal_halves, static_argnums=(2, 3))

fit = jax.jit(fit_other_half, static_argnums=3)

compare = jax.jit(compare_labels)


@pytest.fixture
def halves():
    """Points, slots and sure rows of two halves of 40 rows, three classes."""
    generator = np.random.default_rng(0)
    points, slot = generator.standard_normal((2, 40, 4)), generator.integers(0, 3, (2, 40))
    return points, slot, generator.random((2, 40)) < 0.6


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


def test_statistic_is_that_of_slow_numpy(halves):
    fitted, slot = np.random.default_rng(3).random((2, 40, 3)), halves[1]
    rival = (slot + 1) % 3
    found = compare(fitted, slot, rival)
    for half, row in np.ndindex(2, 40):
        expected = fitted[half, row]
        given = np.linalg.norm(np.eye(3)[slot[half, row]] - expected)
        knockoff = np.linalg.norm(np.eye(3)[rival[half, row]] - expected)
        size = min(given, knockoff)
        np.testing.assert_allclose(found[half, row], size * np.sign(given - knockoff))


def test_exchanging_label_and_knockoff_turns_the_statistic_around(halves):
    fitted, slot = np.random.default_rng(3).random((2, 40, 3)), halves[1]
    rival = (slot + 1) % 3
    straight, exchanged = compare(fitted, slot, rival), compare(fitted, rival, slot)
    np.testing.assert_array_equal(straight, -exchanged)


def test_a_perfect_fit_still_has_a_sign():
    fitted, slot = np.eye(3)[None], np.arange(3)[None]
    assert np.all(compare(fitted, slot, (slot + 1) % 3) < 0)
    assert np.all(compare(fitted, (slot + 1) % 3, slot) > 0)
