"""Scores of the linear regression against a slow fit for each example."""

from functools import partial

import jax
import numpy as np
import pytest
from conftest import make_data
from reference import pca_scores

from spr_jax.solver import linear_scores
from spr_jax.solver.basis import principal_components


def scores_of(features, labels, num_classes, pca_dim):
    return np.asarray(_scores_of(features, labels, num_classes, pca_dim, linear_scores.CUT))


@partial(jax.jit, static_argnums=(2, 3, 4))
def _scores_of(features, labels, num_classes, pca_dim, cut):
    """Compiled anew where a test has changed the constant."""
    basis = principal_components(features, pca_dim).basis
    return linear_scores.linear_scores(basis, labels, num_classes)


def standardized(scores):
    scores = scores - scores.mean(axis=1, keepdims=True)
    return scores / np.sqrt(np.mean(scores**2))


def slow_fit(design, targets, cut, rounds=1000):
    """Least squares in which residuals beyond `cut` count as `cut`: [p, c]."""
    inverse = np.linalg.pinv(design)
    beta = inverse @ targets
    for _ in range(rounds):
        residual = targets - design @ beta
        norms = np.linalg.norm(residual, axis=1, keepdims=True)
        step = 1.5 * inverse @ (residual * np.minimum(1, cut / norms))
        beta = beta + step
        if np.abs(step).max() < 1e-9:
            break
    return beta


def slow_scores(features, labels, num_classes, pca_dim, cut, leave_out=True):
    """A fit for each example: [c, n]."""
    n = len(labels)
    design = np.column_stack([pca_scores(features, pca_dim), np.ones(n)])
    targets = np.eye(num_classes)[labels]
    whole = slow_fit(design, targets, cut)
    scores = np.empty((num_classes, n))
    for i in range(n):
        others = np.arange(n) != i
        beta = slow_fit(design[others], targets[others], cut) if leave_out else whole
        scores[:, i] = design[i] @ beta
    return standardized(scores)


@pytest.fixture(scope="module")
def few():
    """Few examples: each weighs much in the fit."""
    features, given, _ = make_data(60, 8, 4, 0.2, separation=1)
    return features, given


def test_scores_are_least_squares_fits_without_the_example(few, monkeypatch):
    monkeypatch.setattr(linear_scores, "CUT", 1e6)
    expected = slow_scores(*few, 4, 6, cut=1e6)
    np.testing.assert_allclose(scores_of(*few, 4, 6), expected, atol=1e-8)
    in_sample = slow_scores(*few, 4, 6, cut=1e6, leave_out=False)
    assert np.abs(in_sample - expected).max() > 0.1


def test_scores_are_nearly_robust_fits_without_the_example(few):
    exact = slow_scores(*few, 4, 6, linear_scores.CUT)
    in_sample = slow_scores(*few, 4, 6, linear_scores.CUT, leave_out=False)
    error = np.linalg.norm(scores_of(*few, 4, 6) - exact)
    assert error < 0.3 * np.linalg.norm(in_sample - exact)


def test_a_label_barely_moves_its_own_score(few):
    features, given = few
    before = scores_of(*few, 4, 6)
    in_sample = slow_scores(*few, 4, 6, linear_scores.CUT, leave_out=False)
    own, through_the_fit = [], []
    for i in range(0, 60, 6):
        other = given.copy()
        other[i] = (given[i] + 1) % 4
        own.append(scores_of(features, other, 4, 6)[:, i] - before[:, i])
        moved = slow_scores(features, other, 4, 6, linear_scores.CUT, leave_out=False)
        through_the_fit.append(moved[:, i] - in_sample[:, i])
    assert np.linalg.norm(own) < 0.35 * np.linalg.norm(through_the_fit)


def test_scores_have_zero_mean_and_unit_mean_square(few):
    scores = scores_of(*few, 4, 6)
    np.testing.assert_allclose(scores.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(np.mean(scores**2), 1)


def test_constant_features_have_no_scores(few):
    assert not scores_of(np.full((60, 8), 7.0), few[1], 4, 6).any()


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", [2, 4])
def test_scores_know_nothing_of_labels_at_random(num_classes):
    """Most residuals are cut then, those of two classes along the only direction there is."""
    own = []
    for seed in range(10):
        generator = np.random.default_rng(seed)
        features, labels = generator.random((500, 32)), generator.integers(0, num_classes, 500)
        own.append(scores_of(features, labels, num_classes, 32)[labels, np.arange(500)].mean())
    assert abs(np.mean(own)) < 0.06
