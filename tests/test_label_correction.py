"""PENCIL, PLC and SELFIE: their losses and how labels change, against plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from free_logits import revise, slow_cross_entropy, softmax, take_step

from spr_jax.methods.pencil import COMPATIBILITY, pencil
from spr_jax.methods.plc import plc
from spr_jax.methods.robust_loss import ce
from spr_jax.methods.selfie import most_frequent, selfie

N, B, C = 20, 8, 4
CE = ce()


def make_batch(seed=0, scale=2.0):
    """Logits of one network, labels of the batch, and where it is in the data set."""
    generator = np.random.default_rng(seed)
    logits, labels = scale * generator.standard_normal((1, B, C)), generator.integers(0, C, B)
    return logits, labels, generator.permutation(N)[:B]


def in_memory(memory, **values):
    """Values of the batch's examples, at their places."""
    _, _, index = make_batch()
    for name, own in values.items():
        whole = np.array(memory[name])
        whole[index] = own
        memory = memory | {name: whole}
    return memory


def of_stage(number, **options):
    return pencil(**options)[number].method


# PENCIL


def test_first_label_distribution_is_nearly_the_given_label():
    memory = of_stage(0).init(np.array([3, 0]), 10)
    assert jax.nn.softmax(memory["label_logits"])[0, 3] == pytest.approx(0.9996, abs=1e-4)


def test_first_stage_is_cross_entropy():
    logits, labels, index = make_batch()
    memory = of_stage(0).init(np.zeros(N, int), C)
    step = take_step(of_stage(0), logits, labels, memory, index=index)
    plain = take_step(CE, logits, labels)
    assert step.loss == pytest.approx(plain.loss)
    np.testing.assert_allclose(step.slopes[0], plain.slopes[0])


def learned(seed=3):
    """Memory in which the labels of the batch are distributions."""
    logits = 3 * np.random.default_rng(seed).standard_normal((B, C))
    memory = of_stage(1).init(np.zeros(N, int), C)
    return in_memory(memory, label_logits=logits), logits


@pytest.mark.parametrize("stage, beta", [(1, 0.7), (2, 0.0)])
def test_later_stages_descend_divergence_and_entropy(stage, beta):
    logits, labels, index = make_batch()
    memory, label_logits = learned()
    step = take_step(of_stage(stage, beta=0.7), logits, labels, memory, index=index)
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
    logits, labels, index = make_batch()
    memory, label_logits = learned()
    method = of_stage(1, alpha=alpha, compatibility="paper")
    p, d = softmax(logits[0]), softmax(label_logits)
    expected = (d - p) / C + alpha * (d - np.eye(C)[labels])
    found = take_step(method, logits, labels, memory, index=index).record["label_slope"]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_released_compatibility_has_a_second_softmax():
    """So with ten classes it is from 1.461 to 2.461."""
    sure = 100 * jnp.eye(10)[:2]
    found = COMPATIBILITY["released"](sure, jnp.array([0, 0]))
    np.testing.assert_allclose(found, [1.461, 2.461], atol=1e-3)


def label_after(method, epochs):
    """Chance of the given label after epochs of certain denial."""
    labels, logits = np.zeros(2, int), np.array([[[-50.0, 50, 0, 0], [50.0, -50, 0, 0]]])
    memory = method.init(labels, C)
    for _ in range(epochs):
        record = take_step(method, logits, labels, memory).record
        memory = revise(method, memory, record)
    return softmax(memory["label_logits"])[:, 0], memory["clean"]


@pytest.mark.parametrize("compatibility, rest", [("paper", 4 / 9), ("released", 0)])
def test_denied_label_changes_and_others_stay(compatibility, rest):
    """To the balance alpha / (alpha + 1/c) by the paper; wholly by the released one."""
    method = of_stage(1, alpha=0.2, compatibility=compatibility)
    chance, clean = label_after(method, 80)
    np.testing.assert_allclose(chance, [rest, 1], atol=0.06)
    np.testing.assert_array_equal(clean, [False, True])


def test_labels_step_in_the_order_of_the_data():
    method = of_stage(1, label_rate=2.0)
    memory = method.init(np.arange(N) % C, C)
    slope = np.random.default_rng(0).standard_normal((N, C)).astype(np.float32)
    slope[5] = 0  # not visited
    after = revise(method, memory, {"label_slope": slope})
    expected = 10 * np.eye(C)[np.arange(N) % C] - 2 * slope
    np.testing.assert_allclose(after["label_logits"], expected, rtol=1e-6)
    np.testing.assert_array_equal(after["clean"], expected.argmax(axis=1) == np.arange(N) % C)


@pytest.mark.parametrize("stage", [0, 2])
def test_labels_are_learnt_in_one_stage_only(stage):
    method = of_stage(stage)
    memory = jax.device_get(method.init(np.arange(N) % C, C))
    after = revise(method, memory, {"label_slope": np.ones((N, C), np.float32)})
    np.testing.assert_array_equal(after["label_logits"], memory["label_logits"])


def test_stages_have_their_epochs_and_learning_rate():
    first, second, third = pencil(warmup=3, learn=4, learning_rate=0.06)
    assert (first.epochs, second.epochs) == (3, 4)
    assert (first.learning_rate, second.learning_rate, third.learning_rate) == (0.06, 0.06, None)
    assert pencil()[0].learning_rate is None
    assert not any(stage.restart for stage in (first, second, third))


# PLC


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
    memory = method.init(np.arange(N) % C, C)
    for own in predictions:
        memory = revise(method, memory, {"prediction": own})
    return memory, predictions


def test_labels_that_predictions_contradict_are_corrected():
    """By the mean of the last three, at first after the third epoch."""
    method = plc(warmup=2, window=3, threshold=0.6, rise=0.0)
    for epochs, last in ((2, None), (3, slice(0, 3))):
        memory, predictions = after_epochs(method, epochs)
        given = np.arange(N) % C
        expected = given if last is None else slow_plc(given, predictions[last], 0.6)
        np.testing.assert_array_equal(memory["labels"], expected)
    assert 3 < (expected != given).sum() < N
    np.testing.assert_array_equal(memory["clean"], expected == given)
    memory, predictions = after_epochs(method, 4)
    again = slow_plc(expected, predictions[1:], 0.6)  # of corrected labels
    np.testing.assert_array_equal(memory["labels"], again)


def test_threshold_rises_when_few_labels_change():
    method = plc(warmup=0, threshold=0.0, rise=0.35, highest=0.9, few=0.06, window=1)
    memory, thresholds = method.init(np.zeros(N, int), C), []
    for changes in (0, 1, 2, 1, 0, 0):  # of twenty
        labels = np.asarray(memory["labels"])
        prediction = np.eye(C)[labels] * 0.5 + 0.1
        prediction[:changes] = np.eye(C)[(labels[:changes] + 1) % C]
        memory = revise(method, memory, {"prediction": prediction.astype(np.float32)})
        thresholds.append(float(memory["threshold"]))
    # Nothing is below 0 times anything; then one is few, two are not.
    np.testing.assert_allclose(thresholds, [0.35, 0.7, 0.7, 0.9, 0.9, 0.9], atol=1e-6)
    assert method.describe(memory) == {"threshold": pytest.approx(0.9)}


def test_without_a_threshold_plc_is_cross_entropy():
    method = plc(warmup=0, threshold=0.0, rise=0.0)
    memory, _ = after_epochs(method, 3)
    np.testing.assert_array_equal(memory["labels"], np.arange(N) % C)
    logits, _, index = make_batch()
    labels = index % C
    step = take_step(method, logits, labels, memory, epoch=3, index=index)
    np.testing.assert_allclose(step.slopes[0], take_step(CE, logits, labels).slopes[0])


def test_plc_trains_on_corrected_labels():
    logits, labels, index = make_batch()
    method = plc()
    corrected = (labels + 1) % C
    memory = in_memory(method.init(np.zeros(N, int), C), labels=corrected)
    step = take_step(method, logits, labels, memory, index=index)
    losses, slope = slow_cross_entropy(logits[0], corrected)
    assert step.loss == pytest.approx(losses.mean())
    np.testing.assert_allclose(step.slopes[0], slope / B, atol=1e-7)
    np.testing.assert_allclose(step.record["prediction"], softmax(logits[0]), atol=1e-6)


def test_predictions_of_examples_not_visited_stay():
    method = plc(warmup=9, window=2)
    memory, predictions = after_epochs(method, 2)
    visited = np.arange(N) != 4
    newest = np.zeros((N, C), np.float32)
    memory = revise(method, memory, {"prediction": newest}, visited=visited)
    np.testing.assert_allclose(memory["predictions"][0, 4], predictions[0, 4], atol=1e-6)
    assert not memory["predictions"][0, visited].any()
    np.testing.assert_allclose(memory["predictions"][1], predictions[1], atol=1e-6)


# SELFIE


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
    _, labels, index = make_batch()
    refurbished = np.full(B, -1)
    refurbished[1], refurbished[2], refurbished[6] = (labels[1] + 1) % C, labels[2], 0
    memory = method.init(np.zeros(N, int), C)
    return in_memory(memory, refurbished=refurbished), refurbished


@pytest.mark.parametrize("epoch", [3, 4])
def test_selfie_learns_from_small_losses_and_refurbished_labels(epoch):
    """Of eight, at rate 0.3, six are easy: rounded up. In the warm-up, from all."""
    logits, labels, index = make_batch()
    method = selfie(noise_rate=0.3, warmup=4, history=2)
    memory, refurbished = selfie_memory(method)
    step = take_step(method, logits, labels, memory, epoch=epoch, index=index)
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
    logits, labels, index = make_batch()
    method = selfie(noise_rate=0.0, uncertainty=-1.0, warmup=1, history=1)
    memory = method.init(np.zeros(N, int), C)
    for _ in range(3):
        memory = revise(method, memory, predicting(np.ones(N)))
    assert (memory["refurbished"] == -1).all()
    step = take_step(method, logits, labels, memory, epoch=3, index=index)
    np.testing.assert_allclose(step.slopes[0], take_step(CE, logits, labels).slopes[0])


def test_selfie_rows_that_fill_up_a_batch_are_not_chosen():
    logits, labels, index = make_batch()
    method = selfie(noise_rate=0.5, warmup=1, history=1)
    weights = np.where(np.arange(B) < 2, 0, B / (B - 2))
    logits[0, :2] = 60 * np.eye(C)[labels[:2]]
    memory = method.init(np.zeros(N, int), C)
    options = {"epoch": 1, "index": index, "weights": weights}
    step = take_step(method, logits, labels, memory, **options)
    assert not abs(step.slopes[0][:2]).any()
    assert (abs(step.slopes[0]).sum(axis=1) > 0).sum() == 3


def test_labels_predicted_again_and_again_are_refurbished():
    """Once the warm-up has filled the history; later they stay, until predictions agree anew."""
    method = selfie(noise_rate=0.2, warmup=3, history=3)
    memory = method.init(np.zeros(4, int), C)
    rows = [[1, 1, 2, 0], [1, 1, 2, 0], [1, 2, 2, 0], [3, 1, 2, 1], [3, 1, 2, 1], [3, 1, 1, 0]]
    found = []
    for row in rows:
        memory = revise(method, memory, predicting(row))
        found.append(memory["refurbished"].tolist())
    none = [-1] * 4
    assert found == [none, none, [1, -1, 2, 0], [1, -1, 2, 0], [1, -1, 2, 0], [3, 1, 2, 0]]
    assert memory["clean"].dtype == bool
    assert method.describe(memory) == {"refurbished_share": 1.0}


def test_predicted_labels_of_examples_not_visited_stay():
    method = selfie(warmup=2, history=1)
    memory = method.init(np.array([3, 3]), C)
    memory = revise(method, memory, predicting([1, 0]), visited=np.array([True, False]))
    np.testing.assert_array_equal(memory["predicted"], [[1, 3]])


def test_restarts_keep_labels_and_forget_less():
    """Fresh networks warm up again; of four labels three are refurbished, so one is left."""
    stages = selfie(noise_rate=0.4, warmup=2, history=1, restarts=2, restart_every=4)
    assert [stage.restart for stage in stages] == [False, True, True]
    assert [stage.epochs for stage in stages[:-1]] == [4, 4]
    method = stages[0].method
    memory, rates = method.init(np.zeros(4, int), C), []
    for epoch in range(9):
        memory["refurbished"] = np.where(np.arange(4) == 3, -1, memory["refurbished"])
        memory = revise(method, memory, predicting(np.full(4, 1 + epoch // 4)))
        rates.append(round(float(memory["noise_rate"]), 3))
        in_warmup = (epoch + 1) % 4 < 2
        if epoch > 0:
            assert memory["refurbished"][0] == ((epoch + 1) // 4 if in_warmup else 1 + epoch // 4)
    assert rates == [0.4] * 3 + [0.25] * 6


# All


@pytest.mark.parametrize("method", [of_stage(1), of_stage(2), plc(), selfie()])
def test_slopes_are_finite_for_extreme_logits(method):
    logits, labels, index = make_batch(scale=1e4)
    memory = method.init(np.zeros(N, int), C)
    step = take_step(method, logits.astype(np.float32), labels, memory, epoch=30, index=index)
    assert np.isfinite(step.loss)
    assert all(np.isfinite(leaf).all() for leaf in (*step.slopes, *step.record.values()))


@pytest.mark.parametrize(
    "make, options, sentence",
    [
        (pencil, {"alpha": -1.0}, "alpha is -1.0; expected 0 or more"),
        (pencil, {"learn": -1}, "learn is -1; expected 0 or more"),
        (pencil, {"compatibility": "papers"}, "did you mean 'paper'"),
        (plc, {"window": 0}, "window is 0; expected 1 or more"),
        (plc, {"threshold": 0.95}, "threshold is 0.95; expected a share up to the highest=0.9"),
        (plc, {"highest": 1.1}, "highest is 1.1; expected a share from 0 to 1"),
        (selfie, {"noise_rate": 1.0}, "noise_rate is 1.0; expected a share from 0 to below 1"),
        (selfie, {"warmup": 14}, "warmup is 14; expected enough to fill the history of 15"),
        (selfie, {"restarts": -1}, "restarts is -1; expected 0 or more"),
    ],
)
def test_options_out_of_range_are_named(make, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(**options)
