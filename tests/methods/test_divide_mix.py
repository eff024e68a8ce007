"""DivideMix: how it divides, its targets and its loss, in plain NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from fakes import draw_logits, make_batch, make_linear, remember, revise, softmax, take_step
from jax import random

from spr_jax.methods.divide_mix import divide_mix, sharpen, small_loss

N, B, C = 20, 8, 4
INDEX = np.random.default_rng(1).permutation(N)[:B]  # of the batch in the data set


def test_sharpening_has_its_limits():
    p = jnp.array([[0.5, 0.3, 0.2]])
    np.testing.assert_allclose(sharpen(p, 1.0), p)
    np.testing.assert_allclose(sharpen(p, 0.5), [[0.658, 0.237, 0.105]], atol=5e-4)
    np.testing.assert_allclose(sharpen(p, 0.01), [[1, 0, 0]], atol=1e-6)
    np.testing.assert_array_equal(sharpen(jnp.eye(3), 0.5), np.eye(3))


def slow_step(networks, views, labels, w, share, partner, *, temperature, weight):
    """The loss of both networks; views are in turns, 2 B rows."""
    guesses = [
        softmax(np.stack([net.predict(v).logits for v in views])).mean(0) for net in networks
    ]
    rows = np.stack(views, axis=1).reshape(2 * B, *views[0].shape[1:])
    mixed = share * rows + (1 - share) * rows[partner]
    total = 0.0
    for own in (0, 1):
        targets = np.empty((B, C))
        for i in range(B):
            trust = w[i, 1 - own]
            target = trust * np.eye(C)[labels[i]] + (1 - trust) * guesses[own][i]
            if trust <= 0.5:
                target = (guesses[0][i] + guesses[1][i]) / 2
            targets[i] = target ** (1 / temperature) / np.sum(target ** (1 / temperature))
        targets = np.repeat(targets, 2, axis=0)
        targets = share * targets + (1 - share) * targets[partner]
        labeled = np.repeat(w[:, 1 - own] > 0.5, 2)
        p = softmax(np.asarray(networks[own].forward(mixed)[0].logits))
        total += -(targets * np.log(p)).sum(axis=1)[labeled].mean()
        total += weight * ((p - targets) ** 2)[~labeled].mean()
        total -= np.log(C * p.mean(axis=0)).mean()
    return total


def mixing_step(epoch=8, key=0, small=None, **options):
    method = divide_mix(ramp=16, **options)[1].method
    views = np.random.default_rng(3).standard_normal((2, B, 3, 3, 1))
    networks = tuple(make_linear(C, views[0], seed) for seed in (0, 1))
    _, labels = draw_logits()
    w = np.random.default_rng(5).random((B, 2)) if small is None else small
    memory = remember(method.init(np.zeros(N, int), C), INDEX, small_loss=w)
    batch = make_batch(views[0], labels, views[1], index=INDEX, epoch=epoch)
    return take_step(method, networks, batch, memory, key=key), networks, views, labels, w


def test_loss_is_that_of_the_definition():
    """With a huge alpha the share is one half; the partners are those that the key draws."""
    step, networks, views, labels, w = mixing_step(mixup=1e6, temperature=0.5)
    mixing_key, _ = random.split(random.key(0))
    partner = np.asarray(random.permutation(random.split(mixing_key)[0], 2 * B))
    expected = slow_step(
        networks, views, labels, np.float32(w), 0.5, partner, temperature=0.5, weight=12.5
    )
    assert step.loss == pytest.approx(expected, rel=1e-3)
    assert all(network.batch_stats["passes"] == 1 for network in step.networks)


def test_each_network_learns_by_its_peers_division():
    """The second network learns by what the first one finds, whatever itself finds."""
    step, *_ = mixing_step(small=np.ones((B, 2)))
    other, *_ = mixing_step(small=np.stack([np.ones(B), np.zeros(B)], axis=1))
    first, second = zip(step.slopes, other.slopes, strict=True)
    np.testing.assert_allclose(*(slope["head"]["kernel"] for slope in second), rtol=1e-6)
    assert not np.allclose(*(slope["head"]["bias"] for slope in first))


def test_without_labeled_examples_the_step_is_finite():
    step, *_ = mixing_step(small=np.zeros((B, 2)))
    assert np.isfinite(step.loss) and abs(step.slopes[0]["head"]["bias"]).max() > 0


def test_guessed_labels_count_more_and_more():
    nothing = {"small": np.zeros((B, 2))}
    losses = [mixing_step(epoch, **nothing)[0].loss for epoch in (0, 8, 16, 40)]
    assert losses[2] == pytest.approx(losses[3])
    assert losses[1] - losses[0] == pytest.approx((losses[2] - losses[0]) / 2)


def test_small_losses_are_divided_from_large_ones():
    generator = np.random.default_rng(0)
    losses = np.concatenate([generator.gamma(2, 0.1, 60), generator.normal(4, 0.5, 40)])
    visited = np.arange(100) != 3
    w = np.asarray(small_loss(jnp.asarray(losses), visited))
    np.testing.assert_array_equal(w > 0.5, (np.arange(100) < 60) & visited)
    assert np.isfinite(small_loss(jnp.zeros(5), np.ones(5, bool))).all()


def test_losses_of_examples_not_visited_do_not_count():
    generator = np.random.default_rng(0)
    losses = np.concatenate([generator.gamma(2, 0.1, 60), generator.normal(4, 0.5, 40)])
    visited = np.arange(100) != 3
    expected = small_loss(jnp.asarray(losses[visited]), visited[visited])
    losses[3] = 1e3
    np.testing.assert_array_equal(small_loss(jnp.asarray(losses), visited)[visited], expected)


def test_each_network_is_judged_by_its_own_losses():
    method = divide_mix()[0].method
    labels = np.arange(N) % C
    good, bad = 6.0 * np.eye(C)[labels], 6.0 * np.eye(C)[(labels + (np.arange(N) < 8)) % C]
    good[:3] = 0
    memory = revise(method, method.init(labels, C), {"logits": bad, "logits_1": good}, labels)
    np.testing.assert_array_equal(memory["small_loss"][:, 0] > 0.5, np.arange(N) >= 8)
    np.testing.assert_array_equal(memory["small_loss"][:, 1] > 0.5, np.arange(N) >= 3)
    np.testing.assert_array_equal(memory["clean"], np.arange(N) >= 8)
    np.testing.assert_allclose(memory["suspicion"], 1 - memory["small_loss"].mean(axis=1))


def test_warm_up_is_cross_entropy_and_a_penalty_on_confidence():
    views = np.random.default_rng(3).standard_normal((B, 3, 3, 1))
    networks, (_, labels) = tuple(make_linear(C, views, seed) for seed in (0, 1)), draw_logits()
    batch = make_batch(views, labels, index=INDEX)
    losses = [
        take_step(divide_mix(confidence_penalty=on)[0].method, networks, batch).loss
        for on in (False, True)
    ]
    each = [softmax(np.asarray(net.forward(views)[0].logits)) for net in networks]
    plain = sum(-np.log(p[np.arange(B), labels]).mean() for p in each)
    entropy = sum(-(p * np.log(p)).sum(axis=1).mean() for p in each)
    np.testing.assert_allclose(losses, [plain, plain - entropy], rtol=1e-5)
