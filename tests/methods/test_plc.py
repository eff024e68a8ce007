"""PLC: which labels are corrected and when the threshold rises, in plain NumPy."""

import numpy as np
import pytest
from fakes import draw_logits, remember, revise, slow_cross_entropy, softmax, step_on_logits

from spr_jax.methods.plc import plc
from spr_jax.methods.robust_loss import ce

N, B, C = 20, 8, 4
INDEX = np.random.default_rng(1).permutation(N)[:B]  # of the batch in the data set

GIVEN = np.arange(N) % C


def slow_plc(labels, predictions, threshold):
    labels, mean = labels.copy(), predictions.mean(axis=0)
    for i in range(len(labels)):
        if mean[i, labels[i]] / mean[i].max() < threshold:
            labels[i] = mean[i].argmax()
    return labels


def after_epochs(method, epochs, seed=0, scale=1.0):
    """Memory after random predictions, and these, [epochs, N, c]."""
    generator = np.random.default_rng(seed)
    predictions = np.stack(
        [softmax(scale * generator.standard_normal((N, C))) for _ in range(epochs)]
    ).astype(np.float32)
    memory = method.init(GIVEN, C)
    for number, own in enumerate(predictions):
        memory = revise(method, memory, {"prediction": own}, GIVEN, number=number)
    return memory, predictions


def test_labels_that_predictions_contradict_are_corrected():
    """By the mean of the last three, at first after the third epoch."""
    method = plc(warmup=2, window=3, threshold=0.6, rise=0.0)
    for epochs, last in ((2, None), (3, slice(0, 3))):
        memory, predictions = after_epochs(method, epochs)
        expected = GIVEN if last is None else slow_plc(GIVEN, predictions[last], 0.6)
        np.testing.assert_array_equal(memory["labels"], expected)
    assert 3 < (expected != GIVEN).sum() < N
    np.testing.assert_array_equal(memory["clean"], expected == GIVEN)
    memory, predictions = after_epochs(method, 4)
    again = slow_plc(expected, predictions[1:], 0.6)  # of corrected labels
    np.testing.assert_array_equal(memory["labels"], again)


def test_threshold_rises_when_few_labels_change():
    method = plc(warmup=0, threshold=0.0, rise=0.35, highest=0.9, min_changed=0.06, window=1)
    given, thresholds = np.zeros(N, int), []
    memory = method.init(given, C)
    for number, changes in enumerate((0, 1, 2, 1, 0, 0)):  # of twenty
        labels = np.asarray(memory["labels"])
        prediction = np.eye(C)[labels] * 0.5 + 0.1
        prediction[:changes] = np.eye(C)[(labels[:changes] + 1) % C]
        record = {"prediction": prediction.astype(np.float32)}
        memory = revise(method, memory, record, given, number=number)
        thresholds.append(float(memory["threshold"]))
    # Nothing is below 0 times anything; then one is few, two are not.
    np.testing.assert_allclose(thresholds, [0.35, 0.7, 0.7, 0.9, 0.9, 0.9], atol=1e-6)
    assert method.describe(memory, 6) == {"threshold": pytest.approx(0.9)}


def test_without_a_threshold_plc_is_cross_entropy():
    method = plc(warmup=0, threshold=0.0, rise=0.0)
    memory, _ = after_epochs(method, 3)
    np.testing.assert_array_equal(memory["labels"], GIVEN)
    logits, _ = draw_logits()
    labels = GIVEN[INDEX]
    step = step_on_logits(method, logits, labels, memory, epoch=3, index=INDEX)
    np.testing.assert_allclose(step.slopes[0], step_on_logits(ce(), logits, labels).slopes[0])


def test_plc_trains_on_corrected_labels():
    logits, labels = draw_logits()
    method = plc()
    corrected = (labels + 1) % C
    memory = remember(method.init(np.zeros(N, int), C), INDEX, labels=corrected)
    step = step_on_logits(method, logits, labels, memory, index=INDEX)
    losses, slope = slow_cross_entropy(logits[0], corrected)
    assert step.loss == pytest.approx(losses.mean())
    np.testing.assert_allclose(step.slopes[0], slope / B, atol=1e-7)
    np.testing.assert_allclose(step.record["prediction"], softmax(logits[0]), atol=1e-6)


def test_predictions_of_examples_not_visited_stay():
    method = plc(warmup=9, window=2)
    memory, predictions = after_epochs(method, 2)
    record = {"prediction": np.zeros((N, C), np.float32)}
    memory = revise(method, memory, record, GIVEN, number=2, skipped=[4])
    np.testing.assert_allclose(memory["predictions"][0, 4], predictions[0, 4], atol=1e-6)
    assert not memory["predictions"][0, np.arange(N) != 4].any()
    np.testing.assert_allclose(memory["predictions"][1], predictions[1], atol=1e-6)
