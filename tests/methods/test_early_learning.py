"""ELR: its regularizer, the slope of it, and the targets, in plain NumPy."""

import numpy as np
import pytest
from fakes import draw_logits, remember, revise, slow_cross_entropy, softmax, step_on_logits

from spr_jax.methods.early_learning import elr
from spr_jax.methods.robust_loss import ce

N, B, C = 20, 8, 4
INDEX = np.random.default_rng(1).permutation(N)[:B]  # of the batch in the data set
TARGETS = softmax(np.random.default_rng(2).standard_normal((B, C)))


def step_with_targets(method, logits, labels):
    memory = remember(method.init(np.zeros(N, int), C), INDEX, targets=TARGETS)
    return step_on_logits(method, logits, labels, memory, index=INDEX)


def test_loss_and_slope_are_in_closed_form():
    """The slope of log(1 - <p, t>) in logit k is -p_k (t_k - <p, t>) / (1 - <p, t>)."""
    logits, labels = draw_logits()
    step = step_with_targets(elr(weight=2.0, momentum=0.6), logits, labels)
    p = softmax(logits[0])
    target = 0.6 * TARGETS + 0.4 * p  # of this step, and a constant to its slope
    agreement = np.sum(p * target, axis=1, keepdims=True)
    losses, slope = slow_cross_entropy(logits[0], labels)
    expected = losses + 2 * np.log(1 - agreement[:, 0])
    np.testing.assert_allclose(step.each, expected, rtol=1e-5)
    slope -= 2 * p * (target - agreement) / (1 - agreement)
    np.testing.assert_allclose(step.slopes[0], slope / B, atol=1e-6)
    np.testing.assert_allclose(step.record["target"], target, rtol=1e-5)


def test_without_a_weight_it_is_cross_entropy():
    logits, labels = draw_logits()
    step = step_with_targets(elr(weight=0.0), logits, labels)
    np.testing.assert_allclose(step.slopes[0], step_on_logits(ce(), logits, labels).slopes[0])


def test_a_wrong_label_loses_against_a_sure_target():
    """By cross-entropy the logit of the target's class falls, with the regularizer it rises."""
    logits, label = np.array([[[3.0, 0.0, 0.0, 0.0]]]), [1]
    method = elr()
    memory = remember(method.init(np.zeros(1, int), C), [0], targets=np.eye(C)[0])
    assert step_on_logits(ce(), logits, label).slopes[0][0, 0] > 0.5
    assert step_on_logits(method, logits, label, memory).slopes[0][0, 0] < 0


def test_targets_average_the_predictions_of_visited_examples():
    method, generator = elr(momentum=0.9), np.random.default_rng(0)
    given = np.arange(N) % C
    memory, expected = method.init(given, C), np.zeros((N, C))
    for number in range(3):
        logits = generator.standard_normal((1, N, C))
        step = step_on_logits(method, logits, given, memory)
        seen = np.arange(N) != number
        expected[seen] = (0.9 * expected + 0.1 * softmax(logits[0]))[seen]
        memory = revise(method, memory, step.record, given, number=number, skipped=[number])
    np.testing.assert_allclose(memory["targets"], expected, rtol=1e-5)
    np.testing.assert_array_equal(memory["clean"], expected.argmax(axis=1) == given)
    assert memory["targets"].sum(axis=1).max() == pytest.approx(1 - 0.9**3)
