"""The mixture of two normal distributions, next to scikit-learn's."""

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from spr_jax.solver.two_gaussians import fit_two_gaussians


def drawn(seed=0, far=0.5):
    generator = np.random.default_rng(seed)
    near = generator.normal(0.1, 0.05, 300)
    values = np.concatenate([near, generator.normal(0.1 + far, 0.15, 200)])
    return values, np.arange(500) < 300


@pytest.mark.parametrize("far", [0.3, 0.5])
def test_fit_is_that_of_sklearn(far):
    values, _ = drawn(far=far)
    found = fit_two_gaussians(values)
    reference = GaussianMixture(
        2, means_init=[[0.1], [0.1 + far]], reg_covar=5e-4, tol=1e-12, max_iter=2000
    ).fit(values[:, None])
    np.testing.assert_allclose(found.means, reference.means_[:, 0], atol=2e-3)
    np.testing.assert_allclose(found.weights, reference.weights_, atol=5e-3)
    np.testing.assert_allclose(found.variances, reference.covariances_[:, 0, 0], rtol=0.03)
    expected = reference.predict_proba(values[:, None])
    np.testing.assert_allclose(found.posterior(values), expected, atol=0.02)


def test_posterior_is_bayes_rule():
    values, _ = drawn()
    found = fit_two_gaussians(values)
    scale = np.sqrt(2 * np.pi * np.asarray(found.variances))
    joint = np.exp(-((values[:, None] - found.means) ** 2) / (2 * found.variances)) / scale
    joint = joint * found.weights
    np.testing.assert_allclose(found.posterior(values), joint / joint.sum(axis=1, keepdims=True))


def test_separate_clusters_are_told_apart():
    values, is_near = drawn(far=1.5)
    posterior = np.asarray(fit_two_gaussians(values).posterior(values))
    np.testing.assert_array_equal(posterior[:, 0] > 0.5, is_near)


@pytest.mark.parametrize("values", [np.zeros(9), np.array([0.0, 1.0]), np.eye(30)[0]])
def test_degenerate_values_give_probabilities(values):
    posterior = np.asarray(fit_two_gaussians(values).posterior(values))
    assert np.isfinite(posterior).all()
    np.testing.assert_allclose(posterior.sum(axis=1), 1)
