"""Probabilities that labels are correct, by a network's predictions."""

import jax.numpy as jnp
import numpy as np
import pytest
from fakes import revise

from spr_jax.methods import refinement
from spr_jax.methods.refinement import probability_correct
from spr_jax.methods.spr import spr

RULE = {"name": "noise_model"}
OPTIONS = {"select": RULE, "weights": "probability", "record_from": "inputs", "cutmix": 0.0}
TRANSITION = np.array([[0.7, 0.3, 0.0], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])


def draw(count=4000, spread=4.0, seed=0):
    """P(true | x) [N, c], true classes drawn from it, given ones by TRANSITION."""
    generator = np.random.default_rng(seed)
    logits = spread * generator.standard_normal((count, 3))
    probability = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    true = (probability.cumsum(axis=1) > generator.random((count, 1))).argmax(axis=1)
    given = (TRANSITION[true].cumsum(axis=1) > generator.random((count, 1))).argmax(axis=1)
    return probability, true, given


def slow(probability, labels, rate):
    """The two equations of the docstring in turns, example by example."""
    count, classes = probability.shape
    transition = (1 - rate) * np.eye(classes) + rate / classes
    for last in range(refinement.ROUNDS + 1):
        true = np.array([p * transition[:, y] for p, y in zip(probability, labels, strict=True)])
        true /= true.sum(axis=1, keepdims=True)
        if last == refinement.ROUNDS:
            return true[np.arange(count), labels]
        transition = np.full((classes, classes), 1 / classes)
        for share, label in zip(true, labels, strict=True):
            transition[:, label] += share
        transition /= transition.sum(axis=1, keepdims=True)


def test_probabilities_in_slow_numpy():
    probability, _, given = draw(60)
    found = probability_correct(jnp.asarray(probability), given, 0.3)
    np.testing.assert_allclose(found, slow(probability, given, 0.3), atol=1e-4)


def test_probabilities_are_calibrated_where_the_model_holds():
    probability, true, given = draw(20_000)
    found = np.asarray(probability_correct(jnp.asarray(probability), given, 0.5))
    for low in np.arange(0, 1, 0.2):
        chosen = (found >= low) & (found < low + 0.2)
        assert chosen.sum() > 200
        # Four deviations of the mean of Bernoulli draws, and the error of the matrix.
        allowed = 4 * 0.5 / np.sqrt(chosen.sum()) + 0.02
        assert abs(np.mean(true[chosen] == given[chosen]) - found[chosen].mean()) < allowed


def test_certain_predictions_decide_alone():
    labels = np.array([0, 1, 2, 0])
    found = probability_correct(jnp.eye(3)[jnp.array([0, 1, 2, 2])], labels, 0.2)
    np.testing.assert_allclose(found, [1, 1, 1, 0], atol=1e-6)


def test_a_class_nobody_predicts_gives_numbers():
    predictions = jnp.tile(jnp.array([[1.0, 0.0]]), (4, 1))
    assert np.isfinite(probability_correct(predictions, np.array([0, 1, 0, 1]), 0.2)).all()


@pytest.mark.parametrize(("known", "is_taken"), [(0.5, True), (0.4, False)])
def test_predictions_must_leave_half_of_the_noise(known, is_taken, monkeypatch):
    monkeypatch.setattr(refinement, "LEAST_EXAMPLES", 8)
    labels = np.array([0, 1, 2, 0, 1, 2, 2, 2])  # two are contradicted, a quarter
    logits = 50 * np.eye(3)[[0, 1, 2, 0, 1, 2, 0, 1]]
    method = spr(**OPTIONS, refine_after=2)
    memory = method.init(labels, 3) | {"correct": jnp.full(8, known), "clean": np.arange(8) < 3}
    after = revise(method, memory, {}, labels, number=1, scan=lambda: {"logits": logits})
    if is_taken:
        np.testing.assert_allclose(after["correct"], [1] * 6 + [0] * 2, atol=1e-5)
        return
    assert after.keys() == memory.keys()
    for name in ("clean", "correct", "suspicion"):
        np.testing.assert_array_equal(after[name], memory[name])
    assert after["selection"] == memory["selection"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_spr_refines_once(number, monkeypatch):
    monkeypatch.setattr(refinement, "LEAST_EXAMPLES", 300)
    probability, _, given = draw(300)
    method = spr(**OPTIONS, refine_after=3)
    memory = method.init(given, 3) | {"correct": jnp.full(300, 0.6)}
    scan = lambda: {"logits": np.log(probability)}  # noqa: E731
    after = revise(method, memory, {}, given, number=number, scan=scan)
    if number != 2:
        np.testing.assert_array_equal(after["correct"], memory["correct"])
        return
    expected = np.asarray(probability_correct(jnp.asarray(probability), given, 0.4))
    np.testing.assert_allclose(after["correct"], expected, atol=1e-5)
    np.testing.assert_array_equal(after["clean"], expected > 0.5)
    np.testing.assert_allclose(after["suspicion"], 1 - expected, atol=1e-5)
    assert after["selection"]["estimated_noise"] == pytest.approx(1 - expected.mean(), abs=1e-5)
    assert set(after) == set(memory)


def test_few_examples_are_not_refined():
    _, _, given = draw(300)
    method = spr(**OPTIONS, refine_after=3)
    memory = method.init(given, 3) | {"correct": jnp.full(300, 0.6)}
    after = revise(method, memory, {}, given, number=2)
    np.testing.assert_array_equal(after["correct"], memory["correct"])


@pytest.mark.parametrize("changed", [{"weights": "hard"}, {"record_from": "scan"}])
def test_only_probabilities_of_inputs_are_refined(changed):
    with pytest.raises(ValueError, match=r"refine_after is 3.*weights=.*record_from="):
        spr(**OPTIONS | changed, refine_after=3)


@pytest.mark.parametrize("epochs", [-1, 1])
def test_the_epoch_that_selects_cannot_refine(epochs):
    with pytest.raises(ValueError, match=f"refine_after is {epochs}"):
        spr(**OPTIONS, refine_after=epochs)
