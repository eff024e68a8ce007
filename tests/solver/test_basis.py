import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_data
from reference import pca_scores

from spr_jax.solver import blocks as blocks_module
from spr_jax.solver.basis import point_nearby, principal_basis
from spr_jax.solver.blocks import blocks_of


def basis_of(features, dim, index=None, used=None, exact=True):
    if used is None:
        used = np.ones(len(features) if index is None else len(index), bool)

    @jax.jit
    def basis(features, index, used):
        origin = point_nearby(features, jnp.ones(len(features)))
        return principal_basis(features, index, used, dim, origin=origin, exact=exact)

    blocks = blocks_of(len(used))
    return np.asarray(jax.vmap(blocks.join, in_axes=1)(basis(features, index, used)))


def hat(rows):
    """Projection onto the row space of [p, n]."""
    return np.linalg.pinv(rows) @ rows


@pytest.mark.parametrize(("n", "d"), [(40, 100), (300, 20)])
def test_basis_spans_the_principal_component_scores(n, d):
    features, _, _ = make_data(n, d)
    basis = basis_of(features, 7)
    np.testing.assert_allclose(basis @ basis.T, np.eye(7), atol=1e-10)
    np.testing.assert_allclose(hat(basis), hat(pca_scores(features, 7).T), atol=1e-8)


def test_blocks_of_rows_add_up(monkeypatch):
    features, _, _ = make_data(300, 20)
    whole = basis_of(features, 7)
    monkeypatch.setattr(blocks_module, "ROWS", 64)
    np.testing.assert_allclose(hat(basis_of(features, 7)), hat(whole), atol=1e-10)


def test_subspace_iteration_is_close_to_exact():
    features, _, _ = make_data(100, 300, 10, separation=0.7)
    error = hat(basis_of(features, 10, exact=False)) - hat(basis_of(features, 10))
    assert np.linalg.norm(error, 2) < 0.05  # sine of the largest angle


@pytest.mark.parametrize("exact", [True, False])
def test_rows_not_used_change_nothing(exact):
    features, _, _ = make_data(90, 200)
    index = np.append(np.arange(80), [-1] * 10)
    with_gaps = basis_of(features, 5, index, index >= 0, exact)
    assert not with_gaps[:, 80:].any()
    alone = basis_of(features[:80], 5)
    np.testing.assert_allclose(hat(with_gaps)[:80, :80], hat(alone), atol=1e-2)


@pytest.mark.parametrize(("n", "d"), [(30, 60), (200, 20)])
def test_rank_deficient_rows_give_zero_directions(n, d):
    generator = np.random.default_rng(0)
    features = generator.standard_normal((n, 3)) @ generator.standard_normal((3, d))
    features[:, 0] = 5.0  # and a constant feature
    basis = basis_of(features, 8)
    assert np.isfinite(basis).all()
    assert (np.linalg.norm(basis, axis=1) > 0.5).sum() == 3
    np.testing.assert_allclose(hat(basis), hat(pca_scores(features, 3).T), atol=1e-6)


def test_single_precision_stays_orthonormal_far_from_the_origin():
    features, _, _ = make_data(5000, 20, dtype=np.float32)
    features *= np.logspace(0, -3, 20, dtype=np.float32)  # weak directions
    basis = basis_of(features + 1000, 15)
    assert basis.dtype == np.float32
    np.testing.assert_allclose(basis @ basis.T, np.eye(15), atol=1e-5)
