"""PENCIL: its losses in plain NumPy, and how label distributions are learned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fakes import draw_logits, remember, revise, softmax, step_on_logits

from spr_jax.methods.pencil import COMPATIBILITY, pencil
from spr_jax.methods.robust_loss import ce

N, B, C = 20, 8, 4
INDEX = np.random.default_rng(1).permutation(N)[:B]  # of the batch in the data set


def of_stage(number, **options):
    return pencil(**options)[number].method


def test_first_label_distribution_is_nearly_the_given_label():
    memory = of_stage(0).init(np.array([3, 0]), 10)
    assert jax.nn.softmax(memory["label_logits"])[0, 3] == pytest.approx(0.9996, abs=1e-4)


def test_first_stage_is_cross_entropy():
    logits, labels = draw_logits()
    memory = of_stage(0).init(np.zeros(N, int), C)
    step = step_on_logits(of_stage(0), logits, labels, memory, index=INDEX)
    plain = step_on_logits(ce(), logits, labels)
    assert step.loss == pytest.approx(plain.loss)
    np.testing.assert_allclose(step.slopes[0], plain.slopes[0])


def learned(seed=3):
    """Memory in which the labels of the batch are distributions."""
    logits = 3 * np.random.default_rng(seed).standard_normal((B, C))
    memory = of_stage(1).init(np.zeros(N, int), C)
    return remember(memory, INDEX, label_logits=logits), logits


@pytest.mark.parametrize("stage, beta", [(1, 0.7), (2, 0.0)])
def test_later_stages_descend_divergence_and_entropy(stage, beta):
    logits, labels = draw_logits()
    memory, label_logits = learned()
    step = step_on_logits(of_stage(stage, beta=0.7), logits, labels, memory, index=INDEX)
    p, d, expected = softmax(logits[0]), softmax(label_logits), 0
    for i in range(B):
        for k in range(C):
            expected += p[i, k] * np.log(p[i, k] / d[i, k]) / C / B
            expected -= beta * p[i, k] * np.log(p[i, k]) / C / B
    assert step.loss == pytest.approx(expected, rel=1e-6)
    assert abs(step.slopes[0]).max() > 1e-3


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_slope_of_label_logits_in_closed_form(alpha):
    """(d - p) / c + alpha (d - e_y), by the paper's compatibility."""
    logits, labels = draw_logits()
    memory, label_logits = learned()
    method = of_stage(1, alpha=alpha, compatibility="paper")
    p, d = softmax(logits[0]), softmax(label_logits)
    expected = (d - p) / C + alpha * (d - np.eye(C)[labels])
    found = step_on_logits(method, logits, labels, memory, index=INDEX).record["label_slope"]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_released_compatibility_has_a_second_softmax():
    """So with ten classes it is from 1.461 to 2.461."""
    sure = 100 * jnp.eye(10)[:2]
    found = COMPATIBILITY["released"](sure, jnp.array([0, 0]))
    np.testing.assert_allclose(found, [1.461, 2.461], atol=1e-3)


def label_after(method, epochs):
    """Probability of the given label after epochs of certain denial."""
    labels, logits = np.zeros(2, int), np.array([[[-50.0, 50, 0, 0], [50.0, -50, 0, 0]]])
    memory = method.init(labels, C)
    for _ in range(epochs):
        record = step_on_logits(method, logits, labels, memory).record
        memory = revise(method, memory, record, labels)
    return softmax(memory["label_logits"])[:, 0], memory["clean"]


@pytest.mark.parametrize("compatibility, rest", [("paper", 4 / 9), ("released", 0)])
def test_denied_label_changes_and_others_stay(compatibility, rest):
    """To the balance alpha / (alpha + 1/c) by the paper; wholly by the released one."""
    method = of_stage(1, alpha=0.2, compatibility=compatibility)
    probability, clean = label_after(method, 80)
    np.testing.assert_allclose(probability, [rest, 1], atol=0.06)
    np.testing.assert_array_equal(clean, [False, True])


def test_labels_step_in_the_order_of_the_data():
    method = of_stage(1, label_rate=2.0)
    memory = method.init(np.arange(N) % C, C)
    slope = np.random.default_rng(0).standard_normal((N, C)).astype(np.float32)
    slope[5] = 0  # not visited
    after = revise(method, memory, {"label_slope": slope}, np.arange(N) % C)
    expected = 10 * np.eye(C)[np.arange(N) % C] - 2 * slope
    np.testing.assert_allclose(after["label_logits"], expected, rtol=1e-6)
    np.testing.assert_array_equal(after["clean"], expected.argmax(axis=1) == np.arange(N) % C)


@pytest.mark.parametrize("stage", [0, 2])
def test_labels_are_learned_in_one_stage_only(stage):
    method = of_stage(stage)
    memory = jax.device_get(method.init(np.arange(N) % C, C))
    after = revise(method, memory, {"label_slope": np.ones((N, C), np.float32)})
    np.testing.assert_array_equal(after["label_logits"], memory["label_logits"])


def test_stages_have_their_epochs_and_learning_rate():
    """Constant until the labels are final, then a tenth after each third."""
    stages = pencil(warmup=3, label_epochs=4, learning_rate=0.06, final_rate=0.2)
    assert [stage.epochs for stage in stages[:2]] == [3, 4]
    assert not any(stage.restart for stage in stages)
    for given, usual in ((stages, [0.06, 0.06, 0.2]), (pencil(), [0.01] * 3)):
        rates = [[stage.schedule(done / 12, 0.01) for done in range(12)] for stage in given]
        falling = np.repeat([1, 0.1, 0.01], 4)
        expected = np.outer(usual, np.ones(12)) * [np.ones(12), np.ones(12), falling]
        np.testing.assert_allclose(rates, expected, rtol=1e-6)
