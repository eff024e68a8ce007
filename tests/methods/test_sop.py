"""SOP: its loss and the steps of u and v, in plain NumPy."""

import jax
import numpy as np
import pytest
from fakes import draw_logits, remember, revise, slow_cross_entropy, softmax, step_on_logits

from spr_jax.losses import kl_divergence
from spr_jax.methods.robust_loss import ce
from spr_jax.methods.sop import START, sop

N, B, C = 20, 8, 4
INDEX = np.random.default_rng(1).permutation(N)[:B]  # of the batch in the data set
ALONE = {"balance": 0.0, "consistency": 0.0}


def slow_terms(u, v, labels):
    given = np.eye(C)[labels]
    return np.clip(u[:, None] ** 2 * given, 0, 1), np.clip(v**2 * (1 - given), 0, 1)


def slow_loss(u, v, logits, labels, constant_v):
    """Of each example: the corrected cross-entropy, and the square."""
    plus, minus = slow_terms(u, v, labels)
    q = np.maximum(softmax(logits) + plus - slow_terms(u, constant_v, labels)[1], 1e-4)
    rows = np.arange(len(labels))
    hard = np.eye(C)[logits.argmax(axis=1)]
    square = ((hard + plus - minus - np.eye(C)[labels]) ** 2).sum(axis=1)
    return -np.log((q / q.sum(axis=1, keepdims=True))[rows, labels]), square


def remembered(method, seed=4):
    generator = np.random.default_rng(seed)
    u, v = generator.uniform(-0.9, 0.9, B), generator.uniform(-0.5, 0.5, (B, C))
    memory = remember(jax.device_get(method.init(np.zeros(N, int), C)), INDEX, u=u, v=v)
    return memory, np.float32(u).astype(float), np.float32(v).astype(float)


def test_at_the_beginning_it_is_cross_entropy():
    logits, labels = draw_logits()
    step = step_on_logits(sop(**ALONE), logits, labels)
    np.testing.assert_allclose(step.slopes[0], step_on_logits(ce(), logits, labels).slopes[0])


def test_loss_and_slopes_are_those_of_the_definition():
    logits, labels = draw_logits()
    method = sop(**ALONE)
    memory, u, v = remembered(method)
    step = step_on_logits(method, logits, labels, memory, index=INDEX)
    by_label, _ = slow_loss(u, v, logits[0], labels, v)
    assert step.loss == pytest.approx(by_label.mean(), rel=1e-6)

    def total(u, v_now):
        return np.sum(slow_loss(u, v_now, logits[0], labels, v))

    eye, h = np.eye(B), 1e-5
    for i in range(B):
        slope = (total(u + h * eye[i], v) - total(u - h * eye[i], v)) / (2 * h)
        assert step.record["u_slope"][i] == pytest.approx(slope, rel=1e-4, abs=1e-4)
    for i, k in np.ndindex(B, C):
        change = h * np.outer(eye[i], np.eye(C)[k])
        slope = (total(u, v + change) - total(u, v - change)) / (2 * h)
        assert step.record["v_slope"][i, k] == pytest.approx(slope, rel=1e-4, abs=1e-4)


def test_an_example_whose_label_is_explained_teaches_nothing():
    """With U = 1 at a label that the network denies, q_y stays above one half."""
    logits, labels = draw_logits()
    method = sop(**ALONE)
    memory = remember(jax.device_get(method.init(np.zeros(N, int), C)), INDEX, u=np.ones(B))
    step = step_on_logits(method, logits, labels, memory, index=INDEX)
    plain, slopes = slow_cross_entropy(logits[0], labels)
    denied = softmax(logits[0])[np.arange(B), labels] < 0.05
    assert denied.any() and step.each.max() <= np.log(2) + 1e-6
    ratio = abs(B * step.slopes[0]).sum(axis=1) / abs(slopes).sum(axis=1)
    assert ratio[denied].max() < 0.1


def test_terms_grow_where_network_and_label_disagree():
    """Labels 0, predictions 1: after a few epochs U is 1 at the label, V at the prediction."""
    method = sop(u_rate=0.5, v_rate=0.5, **ALONE)
    logits = np.zeros((1, B, C))
    logits[0, :4, 1] = logits[0, 4:, 0] = 9.0
    labels = np.zeros(B, int)
    memory = jax.device_get(method.init(labels, C))
    for number in range(40):
        step = step_on_logits(method, logits, labels, memory)
        memory = revise(method, memory, step.record, labels, number=number)
    np.testing.assert_array_equal(memory["clean"], np.arange(B) >= 4)
    assert memory["suspicion"][:4].min() > 0.9 and memory["suspicion"][4:].max() < 1e-10
    assert memory["v"][:4, 1].min() ** 2 > 0.9 and abs(memory["v"][4:]).max() <= START
    assert memory["u"].dtype == memory["v"].dtype == np.float32


def test_examples_not_visited_keep_their_terms():
    method = sop(**ALONE)
    record = {"u_slope": np.array([1.0, 0.0]), "v_slope": np.array([[1.0] * C, [0.0] * C])}
    memory = revise(method, method.init(np.zeros(2, int), C), record, skipped=[1])
    assert memory["u"][1] == np.float32(START) and memory["u"][0] == pytest.approx(-0.078)


def test_balance_is_the_cross_entropy_of_the_mean_prediction():
    logits, labels = draw_logits()
    weights = np.where(np.arange(B) < 2, 0, B / (B - 2))
    losses = [
        step_on_logits(sop(balance=b, consistency=0.0), logits, labels, weights=weights).loss
        for b in (0.0, 0.5)
    ]
    mean = softmax(logits[0])[2:].mean(axis=0)
    assert losses[1] - losses[0] == pytest.approx(-0.5 * np.log(mean).mean(), rel=1e-6)
    assert -np.log(mean).mean() >= np.log(C)


def test_divergence_is_that_of_kullback_and_leibler():
    (first, second), _ = draw_logits(2)
    p, q = softmax(first), softmax(second)
    np.testing.assert_allclose(kl_divergence(first, second), (p * np.log(p / q)).sum(axis=1))
    np.testing.assert_allclose(kl_divergence(first, first), 0, atol=1e-12)


def test_consistency_asks_for_a_strong_view():
    assert sop().on_top == ("none", "rand_augment") and sop().num_views == 2
    assert sop(consistency=0.0).num_views == 1 and sop(consistency=0.0).on_top == ()
