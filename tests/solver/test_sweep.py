"""Passes over blocks give what programs on the whole data in memory give."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_data

from spr_jax.io.rows import Rows
from spr_jax.solver import Options, clean_set, plan_pieces
from spr_jax.solver.groups import group_classes
from spr_jax.solver.label_noise import _views
from spr_jax.solver.sweep import UNUSED, Block, Stream, filled, over_parts, sweep, total
from spr_jax.solver.sweep_basis import class_means, least_squares, map_from, moments_of
from spr_jax.solver.sweep_path import sweep_path
from spr_jax.solver.sweep_scores import fit_views, scores_of

SIZES = (97, 500, 600)  # several blocks with a shorter last one; one block and a few rows; one


def stream_of(features, labels, size):
    return Stream(Rows(np.array_split(features, 3)), labels, lambda block: block, size)


@pytest.fixture(scope="module")
def single():
    return make_data(520, 12, 4, separation=1.0, dtype=np.float32)[:2]


def test_sums_and_rows_do_not_depend_on_blocks(single):
    features, labels = single

    def program(state, features, labels):
        def f(features, labels):
            return jnp.sum(features * (labels >= 0)[:, None] * state, axis=0), features[:, :2].T

        return over_parts(f, features, labels)

    for size in SIZES:
        found, rows = [], []

        def kept(size=size, rows=rows):
            blocks = stream_of(features, labels, size).blocks("rows")
            for block, (sums, given) in sweep(jax.jit(program), blocks, {0: np.float32(2)}):
                rows.append(given.T[: len(block.index)])
                yield block, sums

        found = total(kept())[0]
        np.testing.assert_allclose(found, 2 * features.sum(axis=0, dtype=np.float64), rtol=1e-6)
        np.testing.assert_array_equal(np.concatenate(rows), features[:, :2])


def test_groups_hold_each_of_their_rows_once(single):
    features, labels = single
    groups = np.array([[3, 0, 2], [1, -1, -1]])
    seen = []
    for block in stream_of(features, labels, 97).blocks_by_group("groups", groups):
        m = len(block.index)
        np.testing.assert_array_equal(groups[block.group][block.labels[:m]], labels[block.index])
        np.testing.assert_array_equal(block.features[:m], features[block.index])
        assert (block.labels[m:] == UNUSED).all() and not block.features[m:].any()
        seen.append(block.index)
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(len(labels)))


def test_basis_is_orthonormal_and_the_fit_is_least_squares(single):
    features, labels = single
    features = features * np.logspace(-2, 0, 12, dtype=np.float32) + np.float32(100)
    features[:, 5] = 7  # a constant column
    blocks = stream_of(features, labels, 97).blocks("moments")
    moments = moments_of(blocks, 1, 4)[0]
    centred = features.astype(np.float64) - features.mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(moments.scatter, centred.T @ centred, atol=1e-6 * len(labels))
    place = map_from(moments, 20)
    basis = np.asarray(place.with_intercept(features, np.ones(len(labels), bool)))
    expected = np.diag([0.0] + [1.0] * 12)
    np.testing.assert_allclose(basis @ basis.T, expected, atol=1e-3)
    design = np.column_stack([centred, np.ones(len(labels))])
    fitted = design @ np.linalg.lstsq(design, np.eye(4)[labels], rcond=None)[0]
    beta = least_squares(moments, place)
    np.testing.assert_allclose((beta @ basis).T, fitted, atol=1e-3)
    for classes in (beta, np.repeat(beta, 20, axis=0)):  # both ways to compute it
        fit, back = place.regression(
            jnp.float32(classes), jnp.asarray(features), jnp.ones(len(labels), bool)
        )
        np.testing.assert_allclose(fit, classes @ basis, atol=2e-3)
        np.testing.assert_allclose(back(fit), np.asarray(fit) @ basis.T, atol=5e-2)
    means = class_means(stream_of(features, labels, 97).blocks("means"), 4)
    np.testing.assert_allclose(means[2], features[labels == 2].mean(axis=0, dtype=float), rtol=1e-6)


@pytest.mark.parametrize("per_group", [4, 2])
def test_path_is_that_of_the_whole_data(single, per_group):
    features, labels = single
    plan = plan_pieces(labels, classes_per_group=per_group)
    options = Options(pca_dim=8, intercept=True)
    path = clean_set(features, labels, jax.random.key(0), plan=plan, options=options)
    groups = np.arange(4)[None]
    if per_group == 2:
        means = class_means(stream_of(features, labels, 97).blocks("means"), 4)
        groups = np.asarray(group_classes(jnp.float32(means), 2))
    for size in SIZES:
        stream = stream_of(features, labels, size)
        blocks = stream.blocks_by_group("moments", groups)
        moments = moments_of(blocks, *groups.shape)
        found = sweep_path(stream, groups, moments, options)
        np.testing.assert_allclose(found.entry, path.entry_penalty, atol=2e-5)
        assert found.duality_gap == pytest.approx(float(path.duality_gap), rel=0.01)
        assert found.rounds == path.rounds


def test_scores_are_those_in_memory(single):
    features, labels = single
    with jax.default_matmul_precision("highest"):
        views = jax.jit(partial(_views, num_classes=4, pca_dim=8, lift=True))
        expected = np.asarray(views(features, labels))
    for size in SIZES:
        stream = stream_of(features, labels, size)
        moments = moments_of(stream.blocks("moments"), 1, 4)[0]
        fitted, known, nearest = fit_views(stream, moments, 8)
        everything = Block(np.arange(len(labels)), features, labels)
        mine = known.of(everything, len(labels))[0]
        scores = jax.jit(scores_of)(fitted, features, labels, mine, nearest.astype(np.int32))
        np.testing.assert_allclose(scores, expected, atol=2e-3)
        assert np.abs(scores - expected).mean() < 1e-4


def test_a_block_is_filled_up():
    block = filled(np.arange(3), np.ones((3, 2), np.float32), np.arange(3), 5)
    assert block.features.shape == (5, 2) and block.labels.tolist() == [0, 1, 2, -1, -1]
