"""SELFIE: what it learns from and which labels it refurbishes, in plain NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from fakes import draw_logits, remember, revise, slow_cross_entropy, step_on_logits

from spr_jax.methods.robust_loss import ce
from spr_jax.methods.selfie import most_frequent, selfie

N, B, C = 20, 8, 4
INDEX = np.random.default_rng(1).permutation(N)[:B]  # of the batch in the data set


def predicting(labels):
    """The record of an epoch, in the numbers that the loop makes of masks."""
    return {"predicted": np.asarray(labels, np.int32), "clean": np.ones(len(labels), np.int32)}


def test_most_frequent_label_and_its_entropy():
    """One dissent of fifteen, constant, uniform, and more than that one might guess."""
    predicted = np.zeros((15, 3), int)
    predicted[4, 0] = 7
    predicted[:, 2] = np.arange(15) % 5
    predicted[14, 2] = 2
    label, entropy = most_frequent(jnp.asarray(predicted))
    np.testing.assert_array_equal(label, [0, 0, 2])
    thirds = np.array([3, 3, 4, 3, 2]) / 15
    expected = [0.106 * np.log(10), 0, -np.sum(thirds * np.log(thirds))]
    np.testing.assert_allclose(entropy, expected, atol=2e-3)


def selfie_memory(method, seed=5):
    """Three of the batch's examples are refurbished, one of them to its given label."""
    _, labels = draw_logits()
    refurbished = np.full(B, -1)
    refurbished[1], refurbished[2], refurbished[6] = (labels[1] + 1) % C, labels[2], 0
    memory = method.init(np.zeros(N, int), C)
    return remember(memory, INDEX, refurbished=refurbished), refurbished


@pytest.mark.parametrize("epoch", [3, 4])
def test_selfie_learns_from_small_losses_and_refurbished_labels(epoch):
    """Of eight, at rate 0.3, six are easy: rounded up. In the warm-up, from all."""
    logits, labels = draw_logits()
    method = selfie(noise_rate=0.3, warmup=4, history=2)
    memory, refurbished = selfie_memory(method)
    step = step_on_logits(method, logits, labels, memory, epoch=epoch, index=INDEX)
    by_given, _ = slow_cross_entropy(logits[0], labels)
    easy = np.isin(np.arange(B), np.argsort(by_given)[:6])
    targets = np.where(refurbished >= 0, refurbished, labels)
    chosen = easy | (refurbished >= 0) | (epoch < 4)
    assert refurbished[np.argsort(by_given)[5]] < 0 and (epoch < 4 or 6 < chosen.sum() < B)
    losses, slope = slow_cross_entropy(logits[0], targets)
    assert step.loss == pytest.approx(losses[chosen].mean())
    np.testing.assert_allclose(step.slopes[0], chosen[:, None] * slope / chosen.sum(), atol=1e-7)
    np.testing.assert_array_equal(step.record["clean"], chosen & (targets == labels))
    np.testing.assert_array_equal(step.record["predicted"], logits[0].argmax(axis=1))


def test_selfie_without_noise_and_certainty_is_cross_entropy():
    logits, labels = draw_logits()
    method = selfie(noise_rate=0.0, uncertainty=-1.0, warmup=1, history=1)
    memory = method.init(np.zeros(N, int), C)
    for number in range(3):
        memory = revise(method, memory, predicting(np.ones(N)), number=number)
    assert (memory["refurbished"] == -1).all()
    step = step_on_logits(method, logits, labels, memory, epoch=3, index=INDEX)
    np.testing.assert_allclose(step.slopes[0], step_on_logits(ce(), logits, labels).slopes[0])


def test_selfie_rows_that_fill_up_a_batch_are_not_chosen():
    logits, labels = draw_logits()
    method = selfie(noise_rate=0.5, warmup=1, history=1)
    weights = np.where(np.arange(B) < 2, 0, B / (B - 2))
    logits[0, :2] = 60 * np.eye(C)[labels[:2]]
    memory = method.init(np.zeros(N, int), C)
    options = {"epoch": 1, "index": INDEX, "weights": weights}
    step = step_on_logits(method, logits, labels, memory, **options)
    assert not abs(step.slopes[0][:2]).any()
    assert (abs(step.slopes[0]).sum(axis=1) > 0).sum() == 3


def test_labels_predicted_again_and_again_are_refurbished():
    """Once the warm-up has filled the history; later they stay, until predictions agree anew."""
    method = selfie(noise_rate=0.2, warmup=3, history=3)
    memory = method.init(np.zeros(4, int), C)
    rows = [[1, 1, 2, 0], [1, 1, 2, 0], [1, 2, 2, 0], [3, 1, 2, 1], [3, 1, 2, 1], [3, 1, 1, 0]]
    found = []
    for number, row in enumerate(rows):
        memory = revise(method, memory, predicting(row), number=number)
        found.append(memory["refurbished"].tolist())
    none = [-1] * 4
    assert found == [none, none, [1, -1, 2, 0], [1, -1, 2, 0], [1, -1, 2, 0], [3, 1, 2, 0]]
    assert memory["clean"].dtype == bool
    assert method.describe(memory, 6) == {"refurbished_share": 1.0}


def test_predicted_labels_of_examples_not_visited_stay():
    method = selfie(warmup=2, history=1)
    memory = method.init(np.array([3, 3]), C)
    memory = revise(method, memory, predicting([1, 0]), skipped=[1])
    np.testing.assert_array_equal(memory["predicted"], [[1, 3]])


def test_restarts_keep_labels_and_forget_less():
    """Fresh networks warm up again; of four labels three are refurbished, so one is left."""
    stages = selfie(noise_rate=0.4, warmup=2, history=1, restarts=2, restart_every=4)
    assert [stage.restart for stage in stages] == ["", "fresh", "fresh"]
    assert [stage.epochs for stage in stages[:-1]] == [4, 4]
    memory, rates = stages[0].method.init(np.zeros(4, int), C), []
    for epoch in range(9):
        method = stages[epoch // 4].method
        memory["refurbished"] = np.where(np.arange(4) == 3, -1, memory["refurbished"])
        memory = revise(method, memory, predicting(np.full(4, 1 + epoch // 4)), number=epoch % 4)
        rates.append(round(float(memory["noise_rate"]), 3))
        in_warmup = (epoch + 1) % 4 < 2
        if epoch > 0:
            assert memory["refurbished"][0] == ((epoch + 1) // 4 if in_warmup else 1 + epoch // 4)
    assert rates == [0.4] * 3 + [0.25] * 6
