"""Forward: reading, estimating and using a transition matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fakes import revise, step_on_logits

from spr_jax.losses import cross_entropy, forward_corrected
from spr_jax.methods import METHODS, Method
from spr_jax.methods.forward_correction import anchor_rows
from spr_jax.methods.method import training_weights
from spr_jax.registry import build

C = 3
MATRIX = np.array([[0.8, 0.2, 0.0], [0.1, 0.7, 0.2], [0.0, 0.4, 0.6]])
LOGITS = np.random.default_rng(0).standard_normal((6, C))
LABELS = np.array([0, 1, 2, 2, 1, 0])


def make(**options):
    return build(METHODS, {"name": "forward", **options})


def test_matrix_of_a_file_is_used(tmp_path):
    np.save(tmp_path / "T.npy", MATRIX)
    np.savetxt(tmp_path / "T.csv", MATRIX, delimiter=",")
    expected = forward_corrected(LOGITS, LABELS, MATRIX).mean()
    for name in ("T.npy", "T.csv"):
        method = make(matrix=str(tmp_path / name))
        assert isinstance(method, Method)
        memory = method.init(LABELS, C)
        np.testing.assert_allclose(memory["matrix"], MATRIX, rtol=1e-6)
        assert step_on_logits(method, LOGITS[None], LABELS, memory).loss == pytest.approx(expected)


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (MATRIX * 0.9, r"Row 0 of .*T.npy is \[0.72, 0.18, 0.0\]"),
        (MATRIX.T, r"Row 0 of .*T.npy is \[0.8, 0.1, 0.0\]"),
        (np.eye(3) + [[0, 0, 0], [0, 0.5, -0.5], [0, 0, 0]], r"Row 1 of .* is \[0.0, 1.5, -0.5\]"),
        (MATRIX * np.nan, "Row 0 of"),
        (MATRIX[:2], r"T.npy holds float64 of the shape \(2, 3\)"),
        (MATRIX.astype(str), r"T.npy holds <U\d+ of the shape \(3, 3\)"),
    ],
)
def test_matrix_that_is_none_is_named(matrix, sentence, tmp_path):
    np.save(tmp_path / "T.npy", matrix)
    with pytest.raises(ValueError, match=sentence):
        make(matrix=str(tmp_path / "T.npy"))


def test_matrix_of_another_number_of_classes_is_named(tmp_path):
    np.save(tmp_path / "T.npy", MATRIX)
    with pytest.raises(ValueError, match="method.matrix has 3 rows.*4 classes"):
        make(matrix=str(tmp_path / "T.npy")).init(LABELS, 4)


def test_matrix_of_no_file_is_named():
    with pytest.raises(ValueError, match="nowhere.npy"):
        make(matrix="nowhere.npy")


def test_without_a_file_a_first_stage_estimates_and_a_fresh_network_follows():
    first, second = make(estimate_epochs=7)
    assert (first.epochs, first.restart, second.restart) == (7, "", "fresh")
    assert first.method.record_from == "scan"
    found = first.method.init(LABELS, C) | {"matrix": jnp.asarray(MATRIX, jnp.float32)}
    handed_on = second.method.init(LABELS, C) | found  # as the loop does
    value = step_on_logits(second.method, LOGITS[None], LABELS, handed_on).loss
    assert value == pytest.approx(forward_corrected(LOGITS, LABELS, MATRIX).mean())


def test_every_tenth_of_a_class_is_held_out():
    labels = np.arange(60) % 3  # a fixed stride would take one class only
    weights = training_weights(labels, C)
    np.testing.assert_array_equal(np.flatnonzero(weights == 0), [27, 28, 29, 57, 58, 59])
    np.testing.assert_allclose(weights[weights > 0], 60 / 54, rtol=1e-6)
    assert (jax.jit(training_weights, static_argnums=1)(labels[:12], C) == 1).all()


def test_first_stage_does_not_learn_from_the_held_out():
    method = make()[0].method
    memory = method.init(LABELS, C) | {"weights": jnp.array([1.2, 0, 1.2, 1.2, 1.2, 1.2])}
    index = np.array([1, 0, 2, 3, 4, 5])
    step = step_on_logits(method, LOGITS[None], LABELS, memory, index=index)
    (slope,) = step.slopes
    assert step.loss == pytest.approx(cross_entropy(LOGITS, LABELS)[1:].mean())
    assert (slope[0] == 0).all() and (abs(slope[1:]).max(axis=1) > 0).all()


def test_matrix_is_that_of_the_least_held_out_loss():
    """Also where training examples are fitted better, and never by examples not visited."""
    method = make(percentile=100.0)[0].method
    labels = np.arange(30) % C
    memory = method.init(labels, C)
    trained = (np.asarray(memory["weights"]) > 0)[:, None]
    fit = lambda scale, elsewhere: np.eye(C)[labels] * np.where(trained, elsewhere, scale)  # noqa: E731
    matrices = []
    for logits in (fit(1.0, 1.0), fit(3.0, 2.0), fit(2.0, 9.0), fit(0.0, 9.0)):
        logits[0] = [99, 0, 0]
        memory = revise(method, memory, {"logits": logits}, labels, skipped=[0])
        matrices.append(memory["matrix"])
    row = np.exp([3, 0, 0]) / np.exp([3, 0, 0]).sum()
    np.testing.assert_allclose(matrices[1], [np.roll(row, k) for k in range(C)], rtol=1e-5)
    assert (matrices[0] != matrices[1]).any()
    np.testing.assert_array_equal(matrices[2:], matrices[1:2] * 2)
    assert memory["least"] == pytest.approx(-np.log(row[0]), rel=1e-5)


def test_exact_posteriors_of_pure_examples_give_the_matrix_back():
    shares = np.concatenate([np.random.default_rng(0).dirichlet(np.ones(C), 50), np.eye(C)])
    np.testing.assert_allclose(anchor_rows(shares @ MATRIX, 100.0), MATRIX, rtol=1e-12)


def test_anchor_is_the_likeliest_strictly_below_the_percentile():
    """In slow NumPy, on a copy: rows do not change what later rows read."""
    probability = np.random.default_rng(1).dirichlet(np.ones(C), 200)
    before, expected = probability.copy(), []
    for column in probability.T:
        limit = np.sort(column)[int(np.ceil(0.97 * 199))]
        anchor = max((i for i in range(200) if column[i] < limit), key=lambda i: column[i])
        expected.append(probability[anchor])
    np.testing.assert_allclose(anchor_rows(probability, 97.0), expected, rtol=1e-12)
    np.testing.assert_array_equal(probability, before)
