"""Scores of the kernel regression: against slow NumPy, and where a linear one must fail."""

from functools import partial

import jax
import numpy as np
import pytest
from conftest import make_data

from spr_jax.solver import kernel_scores as kernel
from spr_jax.solver.basis import principal_components
from spr_jax.solver.linear_scores import linear_scores

C, DIM, WIDTH = 3, 4, 2.5  # of a small fit
N = 400  # rows of the rings; more than landmarks, compiled once


def kernel_scores(features, labels, num_classes):
    components = principal_components(features, kernel.MOST_DIMS)
    return kernel.kernel_scores(components, labels, num_classes)


scores_of = jax.jit(kernel_scores, static_argnums=2)


@partial(jax.jit, static_argnums=(2, 3))
def linear_scores_of(features, labels, num_classes, pca_dim):
    return linear_scores(principal_components(features, pca_dim).basis, labels, num_classes)


@jax.jit
def lifted(coordinates, landmarks, width):
    return kernel.lift(kernel.lift_from(coordinates, landmarks, width), coordinates)


@partial(jax.jit, static_argnums=4)
def _fit(coordinates, landmarks, width, targets, penalties):
    """Compiled anew for other penalties."""
    return kernel.fit(coordinates, landmarks, width, targets)


def fit_at(monkeypatch, few, penalties, width=WIDTH):
    monkeypatch.setattr(kernel, "PENALTIES", penalties)
    return jax.device_get(_fit(few[0], few[1], np.float64(width), few[2], penalties))


@pytest.fixture(scope="module")
def few():
    """Centered coordinates, some of them as landmarks, and one-hot targets."""
    coordinates, given, _ = make_data(90, DIM, C, 0.2, separation=1)
    coordinates -= coordinates.mean(axis=0)
    return coordinates, coordinates[::4], np.eye(C)[given]


def slow_kernel(rows, others, width=WIDTH):
    return np.array([[np.exp(-np.sum((x - y) ** 2) / (2 * width)) for y in others] for x in rows])


def slow_lift(coordinates, landmarks):
    """A lift with the same inner products, by Cholesky's factor."""
    ridge = kernel.JITTER * np.eye(len(landmarks))
    factor = np.linalg.cholesky(slow_kernel(landmarks, landmarks) + ridge)
    nystroem = np.linalg.solve(factor, slow_kernel(landmarks, coordinates)).T
    length = np.sqrt(np.mean(np.sum(coordinates**2, axis=1)))
    return np.column_stack([nystroem, coordinates / length])


def slow_ridge(rows, targets, penalty, row):
    """Ridge regression with an intercept, which costs nothing: its prediction for one row."""
    mean, frequency = rows.mean(axis=0), targets.mean(axis=0)
    square = (rows - mean).T @ (rows - mean) + penalty * np.eye(rows.shape[1])
    return frequency + (row - mean) @ np.linalg.solve(square, (rows - mean).T @ targets)


def slow_predictions(few, penalty):
    """Every example from a regression that never saw it, [N, c]."""
    rows, targets = slow_lift(*few[:2]), few[2]
    others = ~np.eye(len(rows), dtype=bool)
    return np.array(
        [
            slow_ridge(rows[others[i]], targets[others[i]], penalty * len(rows), rows[i])
            for i in range(len(rows))
        ]
    )


def test_lift_has_the_kernel_as_its_inner_product(few):
    """At the landmarks Nystroem's kernel is the kernel, but for the jitter."""
    coordinates, landmarks, _ = few
    rows = lifted(landmarks, landmarks, WIDTH)
    length = np.mean(np.sum(landmarks**2, axis=1))
    expected = slow_kernel(landmarks, landmarks) + landmarks @ landmarks.T / length
    np.testing.assert_allclose(rows @ rows.T, expected, atol=1.01 * kernel.JITTER)
    rows, slow = lifted(coordinates, landmarks, WIDTH), slow_lift(coordinates, landmarks)
    np.testing.assert_allclose(rows @ rows.T, slow @ slow.T, atol=1e-8)


@pytest.mark.parametrize("penalty", [1e-3, 0.1])
def test_scores_are_ridge_regressions_without_the_example(few, penalty, monkeypatch):
    """Exactly: the intercept is free, so it does not matter which mean the rows are seen from."""
    found, expected = fit_at(monkeypatch, few, (penalty,)), slow_predictions(few, penalty)
    np.testing.assert_allclose(found.left_out, expected, atol=1e-7)
    np.testing.assert_allclose(found.error, np.mean(np.sum((few[2] - expected) ** 2, axis=1)))


def test_a_label_does_not_move_its_own_score(few, monkeypatch):
    coordinates, landmarks, targets = few
    before = fit_at(monkeypatch, few, (0.01,)).left_out
    other = targets.copy()
    other[7] = np.roll(targets[7], 1)
    after = fit_at(monkeypatch, (coordinates, landmarks, other), (0.01,)).left_out
    np.testing.assert_allclose(after[7], before[7], atol=1e-12)
    assert np.abs(after - before).max() > 0.01


def test_penalty_has_the_smallest_error(few, monkeypatch):
    penalties = kernel.PENALTIES
    found = fit_at(monkeypatch, few, penalties)
    alone = [fit_at(monkeypatch, few, (penalty,)) for penalty in penalties]
    errors = np.array([each.error for each in alone])
    best = np.argmin(errors)
    assert 0 < best < len(penalties) - 1  # neither end: a choice
    np.testing.assert_allclose(found.error, errors[best], rtol=1e-12)
    np.testing.assert_allclose(found.left_out, alone[best].left_out, rtol=1e-12)


def test_other_examples_are_predicted_by_the_same_regression(few, monkeypatch):
    """With a row more than a block holds, so that blocks meet."""
    coordinates, landmarks, targets = few
    found = fit_at(monkeypatch, few, (0.01,))
    others = np.random.default_rng(2).standard_normal((2049, DIM))
    lift = kernel.lift_from(coordinates, landmarks, WIDTH)
    predicted = jax.jit(kernel.predict)(found, lift, others)
    # The slow lift's coordinates differ by a rotation, which a ridge regression does not see.
    ridge = kernel.JITTER * np.eye(len(landmarks))
    factor = np.linalg.cholesky(slow_kernel(landmarks, landmarks) + ridge)
    length = np.sqrt(np.mean(np.sum(coordinates**2, axis=1)))
    for row in (0, 1024, 1025, 2048):
        place = others[row : row + 1]
        lifted_row = np.linalg.solve(factor, slow_kernel(landmarks, place))[:, 0]
        lifted_row = np.append(lifted_row, place[0] / length)
        rows = slow_lift(coordinates, landmarks)
        expected = slow_ridge(rows, targets, 0.01 * len(rows), lifted_row)
        np.testing.assert_allclose(predicted[row], expected, atol=1e-7)


def test_examples_beyond_the_fit_are_scored_as_well(monkeypatch):
    features, given, true = circles()
    monkeypatch.setattr(kernel, "FIT_ROWS", N // 2)
    scores = np.asarray(jax.jit(lambda *data: kernel_scores(*data, 2))(features, given))
    fitted = np.isin(np.arange(N), jax.random.permutation(jax.random.key(1), N)[: N // 2])
    for rows in (fitted, ~fitted):
        assert quality(scores[:, rows], true[rows]) > 0.9


def test_where_all_penalties_are_too_free_the_largest_is_used(few, monkeypatch):
    penalties, apart = kernel.PENALTIES, 9 * (np.eye(9) - 1 / 9)
    tiny = apart, apart, few[2][:9]
    found = fit_at(monkeypatch, tiny, penalties, width=0.1)
    assert np.isinf(found.error)
    expected = fit_at(monkeypatch, tiny, (max(penalties),), width=0.1)
    np.testing.assert_allclose(found.left_out, expected.left_out, rtol=1e-12)


def circles(n=N, rate=0.2, seed=0):
    """Class 0 in a ring around class 1 in a ring around class 0: features, given, true."""
    generator = np.random.default_rng(seed)
    angle, ring = generator.uniform(0, 2 * np.pi, n), generator.integers(0, 3, n)
    radius = 1 + ring + 0.15 * generator.standard_normal(n)
    features = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    true = (ring == 1).astype(np.int32)
    return features, np.where(generator.random(n) < rate, 1 - true, true), true


def auroc(values, positive):
    """Probability that a positive example has the larger value."""
    rank = np.argsort(np.argsort(values))
    first, count = rank[positive].sum(), positive.sum()
    return (first - count * (count - 1) / 2) / (count * (~positive).sum())


def quality(scores, true):
    return auroc(np.asarray(scores[1] - scores[0]), true == 1)


def test_rings_are_separated_where_no_plane_can():
    features, given, true = circles()
    assert quality(scores_of(features, given, 2), true) > 0.97
    assert abs(quality(linear_scores_of(features, given, 2, 2), true) - 0.5) < 0.06


@pytest.mark.slow
def test_width_has_the_smallest_error(monkeypatch):
    features, given, _ = circles()
    chosen, alone = scores_of(features, given, 2), []
    for width in kernel.WIDTHS:
        monkeypatch.setattr(kernel, "WIDTHS", (width,))
        alone.append(jax.jit(lambda *data: kernel_scores(*data, 2))(features, given))
    # Scores are of one scale, so the smallest error is the largest product with the labels.
    products = [np.mean(score[given, np.arange(N)]) for score in alone]
    best = np.argmax(products)
    same = [np.allclose(chosen, score, rtol=1e-9) for score in alone]
    assert same == [index == best for index in range(len(alone))]


def test_scores_have_zero_mean_and_unit_mean_square():
    features, given, _ = circles()
    scores = np.asarray(scores_of(features, given, 2))
    np.testing.assert_allclose(scores.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(np.mean(scores**2), 1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("value", [0, 7])
def test_constant_features_have_no_scores(value, dtype):
    given = circles()[1]
    scores = scores_of(np.full((N, 2), value, dtype), given, 2)
    assert scores.dtype == dtype and not np.asarray(scores).any()


def test_single_precision_is_enough():
    features, given, _ = circles()
    single = scores_of(features.astype(np.float32), given, 2)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, scores_of(features, given, 2), atol=0.02)


def test_order_of_few_examples_does_not_matter():
    """All of them are landmarks."""
    features, given, _ = circles(200)
    order = np.random.default_rng(1).permutation(200)
    straight, permuted = (scores_of(features[o], given[o], 2) for o in (np.arange(200), order))
    assert len(features) <= kernel.MOST_LANDMARKS
    np.testing.assert_allclose(permuted, straight[:, order], atol=1e-6)


def test_order_of_many_examples_matters_little():
    """Landmarks are other examples then, and as good."""
    features, given, true = circles()
    order = np.random.default_rng(1).permutation(len(given))
    assert len(features) > kernel.MOST_LANDMARKS
    straight = np.asarray(scores_of(features, given, 2))
    permuted = np.asarray(scores_of(features[order], given[order], 2))
    assert not np.allclose(permuted, straight[:, order])
    assert np.corrcoef(permuted[1], straight[1, order])[0, 1] > 0.98
    np.testing.assert_allclose(quality(permuted, true[order]), quality(straight, true), atol=0.01)


def test_only_distances_count():
    """Not rotation, shift or a common scale."""
    features, given, _ = circles(200)
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((2, 2)))[0]
    seen = 30 * features @ turn + [500, -200]
    straight, other = scores_of(features, given, 2), scores_of(seen, given, 2)
    np.testing.assert_allclose(other, straight, atol=1e-6)
    stretched = scores_of(features * [1, 10], given, 2)
    assert np.abs(stretched - straight).max() > 0.1


@pytest.mark.parametrize("copies", [2, 20])
def test_copies_of_examples(copies):
    """Twenty: the nearest landmarks of every example are at distance zero."""
    features, _, true = (np.repeat(part, copies, axis=0) for part in circles(N // copies))
    given = np.where(np.random.default_rng(4).random(N) < 0.2, 1 - true, true)
    scores = np.asarray(scores_of(features, given, 2))
    assert quality(scores, true) > 0.95


@pytest.mark.parametrize("n", [2, 5, 40])
def test_few_examples_do_no_harm(n):
    features, given, _ = circles(n)
    scores = np.asarray(scores_of(features, given, 2))
    assert np.isfinite(scores).all()


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", [2, 4])
def test_scores_know_nothing_of_labels_at_random(num_classes):
    own = []
    for seed in range(10):
        generator = np.random.default_rng(seed)
        features, labels = generator.random((500, 32)), generator.integers(0, num_classes, 500)
        scores = np.asarray(scores_of(features, labels, num_classes))
        own.append(scores[labels, np.arange(500)].mean())
    # Below zero: the mean of the others' labels is lower in one's own class, and little is added
    # to it. That an example explains itself would be above zero.
    assert -0.25 < np.mean(own) < 0.06
