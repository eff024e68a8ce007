import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import released_selection

from spr_jax.solver.pieces import Pieces
from spr_jax.solver.top_share import clean_by_class, clean_by_piece, keep_lowest


def kept_of(entry, slot, share, used=None):
    used = np.ones(len(entry), bool) if used is None else used
    kept = jax.jit(keep_lowest)(*map(np.asarray, (entry, slot, used, share)))
    return set(np.flatnonzero(kept).tolist())


def test_lowest_entries_of_each_class_are_kept():
    entry = np.array([0.4, 0.1, 0.3, 0.2, 9.0, 8.0])
    assert kept_of(entry, [0, 0, 0, 0, 1, 1], [0.5, 0.5]) == {1, 3, 5}


def test_each_class_may_have_its_own_share():
    assert kept_of(np.arange(8.0), [0] * 4 + [1] * 4, [0.25, 0.75]) == {0, 4, 5, 6}


def test_a_class_keeps_at_least_one_example():
    assert kept_of(np.array([3.0, 1.0, 2.0]), [0, 1, 1], [0.5, 0.5]) == {0, 1}


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_quota_is_exact_in_single_precision(share):
    kept = kept_of(np.arange(10, dtype=np.float32), [0] * 10, np.array([share], np.float32))
    assert len(kept) == round(10 * share)


def test_rows_not_used_are_never_kept():
    used = np.array([False, True, False, True])
    assert kept_of(np.zeros(4), [0, 0, 0, 0], [0.5], used) == {1}


def test_ties_keep_the_order_of_the_rows():
    assert kept_of(np.ones(6), [0] * 6, [0.5]) == {0, 1, 2}


@pytest.mark.parametrize("n", [1, 2, 300, 5000])  # one radix and the other
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_selection_is_that_of_a_stable_sort(n, dtype):
    generator = np.random.default_rng(n)
    entry = np.round(generator.random(n), 2).astype(dtype) * 1e-3  # many ties, small numbers
    slot, used = generator.integers(0, 3, n), generator.random(n) < 0.8
    share = np.array([0.2, 0.5, 0.9])
    expected = set()
    for k in range(3):
        rows = np.flatnonzero((slot == k) & used)
        quota = max(1, int(share[k] * len(rows) + 1e-3))
        expected |= set(rows[np.argsort(entry[rows], kind="stable")][:quota].tolist())
    assert kept_of(entry, slot, share, used) == expected


def test_released_rule_is_ranking_by_grid_entry():
    generator = np.random.default_rng(0)
    grid = np.logspace(0, -3, 100)
    entry_step = generator.integers(2, 14, 100)  # few levels, many ties
    entry_step[7] = 100  # never enters
    nonzero = np.arange(100)[:, None] >= entry_step
    slots = np.repeat(np.arange(10), 10)
    grid_entry = np.append(grid, 0.0)[entry_step]
    theirs = released_selection(nonzero, slots, quota=5)
    assert kept_of(grid_entry, slots, np.full(10, 0.5)) == set(np.flatnonzero(theirs))


def test_union_over_pieces_is_in_dataset_order():
    pieces = Pieces(
        index=jnp.asarray([[4, 0, 2, -1], [4, 3, 1, 2]]),
        slot=jnp.asarray([[0, 0, 1, 1], [0, 0, 1, 1]]),
        group=jnp.asarray([0, 0]),
    )
    entry = jnp.asarray([[0.1, 0.2, 0.5, 0.0], [0.9, 0.3, 0.4, 0.6]])
    groups, labels = jnp.asarray([[0, 1]]), jnp.asarray([0, 1, 1, 0, 0])
    clean = jax.jit(clean_by_piece)(entry, pieces, groups, labels, jnp.asarray([0.5, 0.5]))
    assert np.flatnonzero(clean).tolist() == [1, 2, 3, 4]


def test_whole_data_rule_keeps_a_share_of_each_class():
    generator = np.random.default_rng(0)
    labels = jnp.asarray(generator.integers(0, 3, 300))
    entry = jnp.asarray(generator.random(300))
    everyone = jnp.arange(300)
    pieces = Pieces(everyone[None], labels[None], jnp.zeros(1, int))
    groups = jnp.arange(3)[None]
    clean = jax.jit(clean_by_class)(
        entry[None], pieces, groups, labels, jnp.asarray([0.2, 0.5, 0.9])
    )
    for k, share in enumerate([0.2, 0.5, 0.9]):
        mine = np.asarray(labels) == k
        assert np.asarray(clean)[mine].sum() == int(share * mine.sum() + 1e-9)
        assert entry[mine & clean].max() < entry[mine & ~clean].min()
