import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spr_jax.solver.pieces import cut_pieces, plan_pieces

SIZES = [23, 7, 1, 12, 40]


def labels_of(sizes, seed=0):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(seed).permutation(labels).astype(np.int32)


def cut(labels, groups, seed=0, **options):
    plan = plan_pieces(labels, **options)
    groups = np.asarray(groups)
    cut_jitted = jax.jit(cut_pieces, static_argnums=3)
    pieces = cut_jitted(jnp.asarray(labels), jnp.asarray(groups), jax.random.key(seed), plan)
    return plan, jax.device_get(pieces)


@pytest.mark.parametrize(
    ("groups", "per_class"),
    [([[0, 1, 2, 3, 4]], 10), ([[0, 3, 2], [1, 4, -1]], 4), ([[0, 3, 2], [1, 4, -1]], None)],
)
def test_every_example_is_examined_with_its_own_class(groups, per_class):
    labels = labels_of(SIZES)
    plan, pieces = cut(labels, groups, per_class=per_class, classes_per_group=len(groups[0]))
    used = pieces.index >= 0
    assert pieces.index.shape == (plan.num_pieces, plan.rows)
    assert set(pieces.index[used]) == set(range(len(labels)))
    classes = np.asarray(groups)[pieces.group][np.arange(plan.num_pieces)[:, None], pieces.slot]
    np.testing.assert_array_equal(classes[used], labels[pieces.index[used]])


def test_pieces_are_balanced_and_small_classes_wrap_around():
    labels = labels_of(SIZES)
    plan, pieces = cut(labels, [[0, 1, 2, 3, 4]], per_class=10)
    assert plan.num_pieces == 4  # ceil(40 / 10)
    for index in pieces.index:
        np.testing.assert_array_equal(np.bincount(labels[index]), [10] * 5)
    times = np.bincount(pieces.index.ravel())
    for label, size in enumerate(SIZES):
        mine = times[labels == label]
        assert mine.sum() == 40
        assert mine.max() - mine.min() <= 1
        assert mine.min() == 40 // size


def test_whole_data_examines_each_example_once():
    labels = labels_of(SIZES)
    _, pieces = cut(labels, [[0, 3, 2], [1, 4, -1]], per_class=None, classes_per_group=3)
    np.testing.assert_array_equal(np.sort(pieces.index[pieces.index >= 0]), np.arange(len(labels)))


def test_whole_data_of_one_group_is_the_data_itself():
    labels = labels_of(SIZES)
    plan, pieces = cut(labels, [[0, 1, 2, 3, 4]])
    assert plan.is_whole
    np.testing.assert_array_equal(pieces.index[0], np.arange(len(labels)))
    np.testing.assert_array_equal(pieces.slot[0], labels)


def test_any_grouping_fits_in_the_plan():
    labels = labels_of(SIZES)
    generator = np.random.default_rng(0)
    for per_class in (4, None):
        for _ in range(10):
            groups = np.append(generator.permutation(5), -1).reshape(2, 3)
            _, pieces = cut(labels, groups, per_class=per_class, classes_per_group=3)
            assert set(pieces.index[pieces.index >= 0]) == set(range(len(labels)))


def test_visiting_order_is_random_and_a_function_of_the_key():
    labels = labels_of([200, 200])
    first, again, other = (cut(labels, [[0, 1]], seed, per_class=10)[1].index for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.9
    order = first[:, :10].ravel()  # class 0 in visiting order: neither sorted nor clustered
    assert abs(np.corrcoef(order, np.arange(len(order)))[0, 1]) < 0.3


def test_class_that_does_not_occur_has_no_rows():
    labels = np.array([0, 0, 2, 2, 2], np.int32)
    plan, pieces = cut(labels, [[0, 1, 2]], per_class=2, num_classes=3)
    assert plan.num_pieces == 2
    assert set(pieces.slot[pieces.index >= 0]) == {0, 2}


def test_pieces_are_rounded_up_for_the_devices():
    plan, pieces = cut(labels_of([25, 25]), [[0, 1]], per_class=10, multiple_of=4)
    assert plan.num_pieces == 4
    assert (pieces.index[3] == -1).all()
