"""The conditions of Theorem 1 against their definitions, with the whole n x n matrix."""

import numpy as np
import pytest

from experiments import theory
from experiments.theory import conditions


def make_piece(seed=0, n=40, p=4, c=3, wrong=5):
    generator = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(generator.standard_normal((n, p)))
    true = generator.integers(0, c, n)
    given = true.copy()
    given[:wrong] = (true[:wrong] + generator.integers(1, c, wrong)) % c
    return basis, given, true


def by_definition(basis, given, true):
    """C_min, eta, mu and ||(X'X)^-1 sign||, from the block-diagonal design of all columns."""
    n, c = len(basis), max(given.max(), true.max()) + 1
    design = np.kron(np.eye(c), np.eye(n) - basis @ basis.T)
    shift = np.concatenate([(given == k) * 1.0 - (true == k) for k in range(c)])
    inside, outside = design[:, shift != 0], design[:, shift == 0]
    gram = inside.T @ inside
    ratio = np.abs(outside.T @ inside @ np.linalg.inv(gram)).sum(axis=1).max()
    sign = np.abs(np.linalg.inv(gram) @ np.sign(shift[shift != 0])).max()
    return np.linalg.eigvalsh(gram)[0], 1 - ratio, (outside**2).sum(axis=0).max(), sign


@pytest.mark.parametrize("seed", range(3))
def test_conditions_are_as_defined(seed, monkeypatch):
    monkeypatch.setattr(theory, "BLOCK", 7)  # several
    piece = make_piece(seed)
    found = conditions(*piece)
    np.testing.assert_allclose(found[:4], by_definition(*piece), rtol=1e-9)
    assert (found.examples, found.classes) == (40, 3)


def test_bounds_are_as_in_the_theorem():
    found = conditions(*make_piece(n=400, wrong=3))
    c_min, eta, mu, sign = found[:4]
    assert eta > 0
    penalty = 2 * 0.1 * np.sqrt(mu) / eta * np.sqrt(np.log(3 * 400))
    assert found.least_penalty(0.1) == pytest.approx(penalty)
    shift = penalty * eta / np.sqrt(c_min * mu) + penalty * sign
    assert found.least_shift(penalty) == pytest.approx(shift)


def test_features_that_wrong_labels_alone_span_break_the_conditions():
    _, given, true = make_piece()
    basis = np.eye(40)[:, :4]  # each direction is one example's
    found = conditions(basis, given, true)
    assert found.c_min == 0 and found.eta < 0
    assert found.least_penalty(1.0) == found.least_shift(1.0) == np.inf


def test_no_wrong_label_is_an_error():
    basis, _, true = make_piece()
    with pytest.raises(ValueError, match="No label is wrong"):
        conditions(basis, true, true)
