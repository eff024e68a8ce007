"""Columns on one scale, where that predicts the labels better."""

import numpy as np
import pytest
from conftest import make_data

from spr_jax.detection.scaling import (
    NEIGHBOR,
    WIDTH,
    left_out_error,
    lifted,
    scale_if_better,
)
from spr_jax.io.columns import scale_of


def one_scale(features):
    return scale_of(features).apply(features)


def test_units_of_a_table_do_not_matter():
    features, given, _ = make_data(300, 10, 3, 0.1, dtype=np.float32)
    in_other_units = features * np.logspace(0, 6, 10, dtype=np.float32)
    scaled = scale_if_better(in_other_units, given)
    np.testing.assert_allclose(scaled, one_scale(features), rtol=1e-4, atol=1e-4)


def test_scales_that_tell_signal_from_noise_are_kept():
    features, given, _ = make_data(300, 6, 3, 0.1, dtype=np.float32)
    noise = np.random.default_rng(1).standard_normal((300, 200)).astype(np.float32)
    features = np.hstack([features, 0.01 * noise])
    assert scale_if_better(features, given) is features


def test_wild_cells_do_not_decide():
    features, given, _ = make_data(300, 10, 3, 0.1, dtype=np.float32)
    wild = features.copy()
    wild[::15, 2] = -99999
    scaled = scale_if_better(wild, given)
    assert np.abs(scaled).max() <= 8
    others = np.arange(10) != 2
    np.testing.assert_allclose(scaled[:, others], one_scale(features)[:, others], atol=1e-5)


def test_a_column_that_is_mostly_one_value_keeps_its_spread():
    column = np.zeros((100, 1), np.float32)
    column[:10] = 1
    scaled = one_scale(column)
    assert np.ptp(scaled) == pytest.approx(1 / np.sqrt(0.1), rel=1e-3)


def test_constant_columns_become_zero():
    assert (one_scale(np.full((20, 2), 7, np.float32)) == 0).all()


def test_error_is_that_of_fits_without_the_example():
    features, given, _ = make_data(40, 5, 3, 0.1)
    targets = np.eye(3)[given]
    centred = features - features.mean(axis=0)
    energy = np.mean(np.linalg.svd(centred, compute_uv=False) ** 2)
    errors = []
    for penalty in 10.0 ** np.arange(-4, 4) * energy:
        residuals = []
        for i in range(40):
            others = np.arange(40) != i
            # The penalty counts from the mean of all rows, as where nothing is left out.
            design = np.hstack([centred, np.ones((40, 1))])
            weight = np.diag([penalty] * 5 + [1e-12])
            gram = design[others].T @ design[others] + weight
            beta = np.linalg.solve(gram, design[others].T @ targets[others])
            residuals.append(targets[i] - design[i] @ beta)
        errors.append(np.mean(np.sum(np.square(residuals), axis=1)))
    assert left_out_error(features, targets) == pytest.approx(min(errors), rel=1e-6)


def test_units_that_only_distances_notice_decide_as_well():
    generator = np.random.default_rng(0)
    angle, labels = generator.uniform(0, 2 * np.pi, 400), np.arange(400) % 2
    rings = (1 + labels)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    other_unit = 50 * generator.standard_normal((400, 1))  # says nothing, and drowns the rings
    features = np.hstack([rings + 0.05 * generator.standard_normal((400, 2)), other_unit])
    scaled = scale_if_better(features.astype(np.float32), labels)
    assert scaled.std(axis=0).max() < 2 * scaled.std(axis=0).min()
    targets = np.eye(2)[labels]
    linear = [left_out_error(each, targets) for each in (features, one_scale(features))]
    assert linear[0] == pytest.approx(linear[1], rel=0.02)
    kernel = [left_out_error(lifted(each), targets) for each in (features, one_scale(features))]
    assert kernel[1] < 0.5 * kernel[0]


def test_lifted_rows_have_the_kernel_as_their_inner_product():
    rows = np.random.default_rng(0).standard_normal((30, 4))
    squared = np.sum((rows[:, None] - rows) ** 2, axis=2)
    width = WIDTH * np.median(np.sort(squared, axis=1)[:, NEIGHBOR])
    found = lifted(rows)
    np.testing.assert_allclose(found @ found.T, np.exp(-squared / (2 * width)), atol=1e-8)


@pytest.mark.filterwarnings("error")
def test_twins_have_a_kernel():
    """Answers of yes and no: most examples have many others at the same place."""
    rows = np.random.default_rng(0).integers(0, 2, (400, 3)).astype(np.float32)
    coordinates = lifted(rows)
    kernel = coordinates @ coordinates.T
    assert np.isfinite(kernel).all() and np.unique(kernel.round(8)).size == 4
    assert np.isfinite(lifted(np.ones((30, 2), np.float32))).all()
