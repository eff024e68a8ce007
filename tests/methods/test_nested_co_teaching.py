"""NCT: which half of a batch teaches which network, with nested dropout of one feature.

With a small sigma only the first feature is ever seen, so there is nothing random.
"""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from fakes import make_batch, make_linear, revise, slow_cross_entropy, softmax, take_step

from spr_jax.methods.feature_dropout import nested
from spr_jax.methods.nested_co_teaching import nct

N, B, C, SIGMA = 20, 12, 4, 0.1
FIRST, SECOND = np.arange(B) % 2 == 0, np.arange(B) % 2 == 1


def make_case(weights=None):
    generator = np.random.default_rng(0)
    images, labels = generator.standard_normal((B, 2, 2, 1)), generator.integers(0, C, B)
    index = generator.permutation(N)[:B]
    networks = tuple(make_linear(C, images, seed) for seed in (1, 2))
    return networks, make_batch(images, labels, index=index, weights=weights)


@cache
def stages(forget_rate):
    return nct(SIGMA, forget_rate=forget_rate)


def take(stage, networks, batch, held_out=(), forget_rate=0.3):
    method = stages(forget_rate)[stage].method
    weights = np.ones(N, np.float32)
    weights[batch.index[jnp.array(held_out, int)]] = 0
    memory = method.init(np.zeros(N, int), C) | {"weights": weights / weights.mean()}
    return take_step(method, networks, batch, memory)


def logits_of(network, batch, scale=1):
    head = network.params["head"]
    features = scale * np.asarray(batch.images).reshape(B, -1)
    return features[:, :1] @ np.asarray(head["kernel"])[:1] + head["bias"]


def assert_learns_from(network, slope, batch, chosen):
    """The slope is that of mean cross-entropy over the chosen."""
    _, by_logit = slow_cross_entropy(logits_of(network, batch), batch.labels)
    by_logit = by_logit * chosen[:, None] / chosen.sum()
    features = np.asarray(batch.images).reshape(B, -1) * (np.arange(4) < 1)
    np.testing.assert_allclose(slope["head"]["kernel"], features.T @ by_logit, atol=1e-6)
    np.testing.assert_allclose(slope["head"]["bias"], by_logit.sum(axis=0), atol=1e-6)


def slow_easy(network, batch, among, count):
    """Sifted in eval mode, where features are twice as large."""
    losses, _ = slow_cross_entropy(logits_of(network, batch, 2), batch.labels)
    chosen = sorted(np.flatnonzero(among), key=lambda i: losses[i])[:count]
    return np.isin(np.arange(B), chosen)


def test_each_half_teaches_the_network_that_did_not_sift_it():
    """Of six, at rate 0.3, four."""
    networks, batch = make_case()
    step = take(1, networks, batch)
    by_first, by_second = (
        slow_easy(network, batch, half, 4)
        for network, half in zip(networks, (FIRST, SECOND), strict=True)
    )
    assert_learns_from(networks[0], step.slopes[0], batch, by_second)
    assert_learns_from(networks[1], step.slopes[1], batch, by_first)
    np.testing.assert_array_equal(step.record["clean"], by_first | by_second)


def test_without_forgetting_halves_are_used_whole():
    networks, batch = make_case()
    step = take(1, networks, batch, forget_rate=0.0)
    assert_learns_from(networks[0], step.slopes[0], batch, SECOND)
    assert_learns_from(networks[1], step.slopes[1], batch, FIRST)


def test_held_out_examples_and_rows_that_fill_up_do_not_teach():
    """Of the second half's six two are left, and at rate 0.3 one of them."""
    networks, batch = make_case(weights=np.where(np.arange(B) < 10, 1.2, 0))
    step = take(1, networks, batch, held_out=[3, 5, 7])
    left = np.isin(np.arange(B), [1, 9])
    by_second = slow_easy(networks[1], batch, left, 1)
    assert_learns_from(networks[0], step.slopes[0], batch, by_second)
    np.testing.assert_array_equal(step.record["clean"][SECOND], by_second[SECOND])


def test_right_answers_are_recorded_in_the_order_of_the_batch():
    """Of the network that learns from the example."""
    networks, batch = make_case()
    record = take(1, networks, batch).record["is_right"]
    right = [logits_of(network, batch).argmax(axis=1) == batch.labels for network in networks]
    np.testing.assert_array_equal(record[:, 0], np.where(FIRST, right[1], right[0]))
    record = take(0, networks, batch).record["is_right"]
    np.testing.assert_array_equal(record[:, 0], (right[0] + 1.0 * right[1]) / 2)


def test_networks_are_first_trained_apart():
    networks, batch = make_case()
    step = take(0, networks, batch)
    for network, slope in zip(networks, step.slopes, strict=True):
        assert_learns_from(network, slope, batch, np.ones(B, bool))
    both = [slow_cross_entropy(logits_of(net, batch), batch.labels)[0].mean() for net in networks]
    assert step.loss == pytest.approx(sum(both))


def test_predictions_are_the_mean_of_both():
    networks, batch = make_case()
    method = nct(SIGMA)[1].method
    memory = method.init(np.zeros(N, int), C)
    expected = sum(softmax(logits_of(network, batch, 2)) for network in networks) / 2
    np.testing.assert_allclose(method.predict(networks, memory, batch.images), expected, rtol=1e-6)


def test_memory_holds_the_length_and_what_was_easy():
    method = nct(sigma=30.0)[1].method
    memory, alone = method.init(np.arange(N) % 2, 2), nested(30.0)
    generator = np.random.default_rng(0)
    is_right = generator.random((N, len(np.unique(np.geomspace(1, 90, 32).round())))) < 0.5
    record = {"is_right": is_right, "clean": (np.arange(N) < 5).astype(np.int32)}
    after = revise(method, memory, record)
    np.testing.assert_array_equal(after["clean"], np.arange(N) < 5)
    expected = revise(alone, alone.init(np.arange(N) % 2, 2), {"is_right": is_right})
    assert after["length"] == expected["length"]


def test_stages_have_their_epochs_and_learning_rate():
    apart, together = nct(warmup=7, learning_rate=0.004)
    assert (apart.epochs, apart.schedule) == (7, None) and not apart.restart + together.restart
    rates = [together.schedule(done / 30, 0.1) for done in (0, 4, 6, 29)]  # of 30 epochs
    np.testing.assert_allclose(rates, [0.004, 0.004, 0.0008, 0.0008], rtol=1e-6)
    assert together.fresh_optimizer and nct(learning_rate=0.0)[1].schedule is None
