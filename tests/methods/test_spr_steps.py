"""The two steps of SPR against plain NumPy, and which examples may influence them."""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fakes import make_batch, make_linear, remember, softmax, take_step
from jax import random

from spr_jax.augment import Mixed
from spr_jax.devices import AXIS
from spr_jax.methods.spr import spr
from spr_jax.methods.spr_steps import opposite_partner
from spr_jax.types import Batch

B, SIDE, C, N = 8, 3, 4, 20
CLEAN = np.array([1, 0, 1, 1, 0, 0, 1, 0], bool)
UNEVEN = np.array([0, 2, 0.5, 1, 3, 0, 1, 0.5])  # weights of mean 1
SUPERVISED, CUTMIX = 0, 1
make = cache(spr)


class Case(NamedTuple):
    """One batch, its memory and the network it meets."""

    network: object
    batch: Batch
    memory: dict


def make_case(clean=CLEAN, epoch=1, seed=0, weights=None, views=None):
    generator = np.random.default_rng(seed)
    drawn = generator.standard_normal((2, B, SIDE, SIDE, 1))
    first, second = drawn if views is None else views
    index, labels = generator.permutation(N)[:B], generator.integers(0, C, B)
    batch = make_batch(first, labels, second, index=index, weights=weights, epoch=epoch)
    memory = remember(spr().init(np.zeros(N, int), C), index, clean=clean)
    return Case(make_linear(C, first, seed, width=6), batch, memory)


def take(case, kind=SUPERVISED, make=make, **options):
    return take_step(make(**options), (case.network,), case.batch, case.memory, kind=kind)


def slow_forward(network, images):
    """Features and probabilities of a train-mode pass."""
    params = jax.device_get(network.params)
    features = np.asarray(images).reshape(len(images), -1) @ params["body"]["kernel"]
    return features, softmax(features @ params["head"]["kernel"] + params["head"]["bias"])


def slow_slope(network, images, by_logit):
    """In both layers, given d loss / d logits."""
    features, _ = slow_forward(network, images)
    by_feature = by_logit @ np.asarray(network.params["head"]["kernel"]).T
    return {
        "body": {"kernel": images.reshape(len(images), -1).T @ by_feature},
        "head": {"kernel": features.T @ by_logit, "bias": by_logit.sum(axis=0)},
    }


def assert_close(tree, expected, atol=1e-6):
    """Loose by the single precision of lambda and of CutMix's share."""
    jax.tree.map(partial(np.testing.assert_allclose, atol=atol), tree, expected)


# Supervised step


def slow_supervised(case, weight, q=0.2):
    """Loss of each example; noisy ones have none, not even a constant."""
    _, p = slow_forward(case.network, case.batch.images)
    each = np.zeros(B)
    for i in range(B):
        if case.memory["clean"][case.batch.index[i]]:
            penalty = sum(max(p[i, k], 1e-7) ** q for k in range(C))
            each[i] = -np.log(p[i, case.batch.labels[i]]) + weight * penalty
    return each


@pytest.mark.parametrize("epoch", [0, 3])
def test_supervised_loss_in_slow_numpy(epoch):
    """Divided by the whole batch; lambda is penalty_weight * penalty_growth^epoch."""
    case = make_case(epoch=epoch)
    found = take(case, cutmix=0.0, penalty_weight=1.5, penalty_growth=1.1, penalty_q=0.3)
    expected = slow_supervised(case, 1.5 * 1.1**epoch, q=0.3)
    assert_close(found.each, expected)
    assert found.loss == pytest.approx(expected.sum() / B, abs=1e-6)


def test_supervised_loss_is_weighted():
    case = make_case(weights=UNEVEN)
    expected = UNEVEN @ slow_supervised(case, 1.2 * 1.02) / B
    assert take(case).loss == pytest.approx(expected, abs=1e-6)


def test_divisor_by_clean_is_the_weight_of_clean_examples():
    case = make_case(weights=UNEVEN)
    expected = UNEVEN @ slow_supervised(case, 1.2 * 1.02) / UNEVEN[CLEAN].sum()
    assert take(case, divide_by_clean=True).loss == pytest.approx(expected, abs=1e-6)


def test_devices_share_the_number_of_clean_examples():
    """Two devices with unequal numbers of clean examples are as one with both parts."""
    case, method = make_case(np.arange(B) < 3), make(divide_by_clean=True)
    apart, together = (
        take_step(method, (case.network,), case.batch, case.memory, devices=devices)
        for devices in (2, 1)
    )
    assert apart.loss == pytest.approx(together.loss, abs=1e-6)
    assert_close(apart.slopes, together.slopes)


def disturbed(case, rows):
    """Other images and labels in some rows."""
    images, labels = np.array(case.batch.images), np.array(case.batch.labels)
    images[rows] += 5
    labels[rows] = (labels[rows] + 1) % C
    views = (jnp.asarray(images), case.batch.views[1])
    return case._replace(batch=case.batch._replace(views=views, labels=jnp.asarray(labels)))


either_divisor = pytest.mark.parametrize("divide_by_clean", [False, True])


@either_divisor
def test_noisy_examples_have_no_influence(divide_by_clean):
    case = make_case()
    one, two = (
        take(each, divide_by_clean=divide_by_clean) for each in (case, disturbed(case, ~CLEAN))
    )
    assert two.loss == one.loss
    assert_close(two.slopes, one.slopes, atol=0)


def test_clean_examples_have_influence():
    case = make_case()
    one, two = (take(each).slopes[0]["head"]["kernel"] for each in (case, disturbed(case, [0])))
    assert abs(two - one).max() > 1e-2


@either_divisor
def test_examples_of_weight_zero_have_no_influence(divide_by_clean):
    weights = np.where(np.arange(B) < 2, 0, B / (B - 2))
    case = make_case(np.ones(B, bool), weights=weights)
    one, two = (
        take(each, divide_by_clean=divide_by_clean)
        for each in (case, disturbed(case, weights == 0))
    )
    assert two.loss == one.loss
    assert_close(two.slopes, one.slopes, atol=0)


@either_divisor
def test_slope_is_zero_where_nothing_is_clean(divide_by_clean):
    found = take(make_case(np.zeros(B, bool)), divide_by_clean=divide_by_clean)
    assert found.loss == 0
    assert_close(found.slopes, jax.tree.map(np.zeros_like, found.slopes), atol=0)


def test_supervised_step_records_the_features_of_its_pass():
    case = make_case()
    features, _ = slow_forward(case.network, case.batch.images)
    found = take(case)
    assert_close(found.record, {"features": features})
    expected = {"passes": 1, "mean": 0.1 * features.mean(axis=0)}
    assert_close(found.networks[0].batch_stats, expected)


def test_the_penalty_may_be_of_the_logits():
    case = make_case()
    _, p = slow_forward(case.network, case.batch.images)
    logits = np.asarray(case.network.forward(case.batch.images)[0].logits)
    norm = (np.abs(logits) ** 0.5).sum(axis=1) ** 2
    each = -np.log(p[np.arange(B), case.batch.labels]) + 1.2 * 1.02 * norm
    found = take(case, penalty_of="logits", penalty_q=0.5).each
    np.testing.assert_allclose(found, CLEAN * each, rtol=1e-6)


def test_the_penalty_may_be_of_all_examples():
    """Noisy ones are then unlabeled: their labels do not matter, what is predicted does."""
    case = make_case(weights=UNEVEN)
    _, p = slow_forward(case.network, case.batch.images)
    each = -np.log(p[np.arange(B), case.batch.labels]) * CLEAN + 1.2 * 1.02 * (p**0.2).sum(axis=1)
    found = take(case, penalize="all")
    assert_close(found.each, each, atol=1e-5)
    assert found.loss == pytest.approx(UNEVEN @ each / B, abs=1e-5)


def test_first_epoch_has_no_sparse_penalty_where_all_others_are_cutmix():
    case = make_case(epoch=0)
    assert_close(take(case, cutmix=1.0).each, slow_supervised(case, 0.0))
    assert_close(take(case, cutmix=0.5).each, slow_supervised(case, 1.2))


# CutMix step

BOX, SHARE = np.s_[:, 1:3, :2], 1 - 4 / 9
PARTNER = np.array([3, 0, 0, 7, 5, 1, 6, 2])


def fixed_cutmix(key, images, partners):
    return Mixed(images.at[BOX].set(partners[BOX]), jnp.float32(SHARE))


def slow_cutmix(case):
    """Loss of each example and the slope of the loss, with the targets taken as constants."""
    first, second = (slow_forward(case.network, view)[1] for view in case.batch.views)
    targets = np.where(CLEAN, case.batch.labels, np.argmax((first + second) / 2, axis=1))
    images = np.array(case.batch.images)
    images[BOX] = images[PARTNER][BOX]
    target = SHARE * np.eye(C)[targets] + (1 - SHARE) * np.eye(C)[targets[PARTNER]]
    features, p = slow_forward(case.network, images)
    each = -(target * np.log(p)).sum(axis=1)
    by_logit = np.asarray(case.batch.weights)[:, None] * (p - target) / B
    return each, slow_slope(case.network, images, by_logit), features


@pytest.fixture(scope="module")
def mixed():
    """A CutMix step with a known box and known partners, and its case."""
    case = make_case(weights=UNEVEN, seed=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spr_jax.augment.cutmix", fixed_cutmix)
        patch.setattr("spr_jax.methods.spr.any_partner", lambda key, clean: jnp.asarray(PARTNER))
        return take(case, CUTMIX, make=spr), case


def test_cutmix_loss_in_slow_numpy(mixed):
    found, case = mixed
    each, _, _ = slow_cutmix(case)
    assert_close(found.each, each)
    assert found.loss == pytest.approx(UNEVEN @ each / B, abs=1e-6)


def test_both_views_decide_on_pseudo_labels(mixed):
    """So that the test above would notice if one were left out."""
    _, case = mixed
    views = [slow_forward(case.network, view)[1] for view in case.batch.views]
    alone = [p[~CLEAN].argmax(axis=1) for p in views]
    together = sum(views)[~CLEAN].argmax(axis=1)
    assert all((guess != together).any() for guess in alone)
    assert (together != case.batch.labels[~CLEAN]).any()


def test_no_slope_passes_through_pseudo_labels(mixed):
    found, case = mixed
    _, slope, _ = slow_cutmix(case)
    assert_close(found.slopes, (slope,))


def test_cutmix_step_records_unmixed_features_of_the_first_view(mixed):
    found, case = mixed
    features, _ = slow_forward(case.network, case.batch.images)
    assert_close(found.record, {"features": features})


def test_three_passes_of_a_cutmix_step_change_batch_statistics(mixed):
    found, case = mixed
    mean = np.zeros(6)
    views = [slow_forward(case.network, view)[0] for view in case.batch.views]
    for features in (*views, slow_cutmix(case)[2]):
        mean = 0.9 * mean + 0.1 * features.mean(axis=0)
    assert_close(found.networks[0].batch_stats, {"passes": 3, "mean": mean})


def alone(step, network, case, batch, key):
    """A step on the only device."""
    on_device = jax.vmap(
        lambda _: step((network,), batch, case.memory, key), axis_name=AXIS, out_axes=0
    )
    return jax.tree.map(lambda leaf: leaf[0], on_device(jnp.zeros(1)))


def test_passes_for_pseudo_labels_carry_no_slope():
    case = make_case()

    def recorded(params):
        network = case.network.replace(params=params)
        _, (_, record) = alone(make().steps[CUTMIX], network, case, case.batch, random.key(0))
        return record["features"].sum()

    slope = jax.jit(jax.grad(recorded))(case.network.params)
    assert_close(slope, jax.tree.map(np.zeros_like, slope), atol=0)


def test_noisy_labels_have_no_influence_on_a_cutmix_step():
    case = make_case()
    labels = jnp.where(CLEAN, case.batch.labels, (case.batch.labels + 1) % C)
    other = case._replace(batch=case.batch._replace(labels=labels))
    one, two = (take(each, CUTMIX) for each in (case, other))
    assert two.loss == one.loss


# Partners


def over_keys(function, num=400):
    return jax.device_get(jax.jit(jax.vmap(function))(random.split(random.key(1), num)))


def each_by_key(case, **options):
    """Loss of each example at many keys, [keys, b]."""
    step = make(**options).steps[CUTMIX]

    def loss(weights, key):
        batch = case.batch._replace(weights=weights)
        return alone(step, case.network, case, batch, key)[0]

    return over_keys(lambda key: B * jax.grad(loss)(jnp.ones(B), key), num=50)


@pytest.mark.parametrize("pairing", ["clean_noisy", "batch"])
def test_clean_are_mixed_with_noisy_only_if_asked(pairing):
    """All images are equal, so is the guess g; clean examples have the label g + 1."""
    images = np.ones((B, SIDE, SIDE, 1))
    case = make_case(views=(images, images))
    _, p = slow_forward(case.network, images)
    guess = p[0].argmax()
    label = (guess + 1) % C
    case = case._replace(batch=case.batch._replace(labels=jnp.full(B, label)))
    each = each_by_key(case, pairing=pairing)
    assert np.ptp(each[:, CLEAN]) > 0.01  # not among themselves
    # s a + (1 - s) b and s b + (1 - s) a sum to a + b, whatever the share s.
    sums = each[:, CLEAN][:, :, None] + each[:, ~CLEAN][:, None]
    opposite = np.isclose(sums, -np.log(p[0, guess] * p[0, label]), atol=1e-5)
    assert opposite.all() == (pairing == "clean_noisy")


def test_opposite_partners_are_drawn_evenly():
    partners = over_keys(lambda key: opposite_partner(key, CLEAN), num=2000)
    for i in range(B):
        share = np.bincount(partners[:, i], minlength=B) / 2000
        np.testing.assert_allclose(share, (CLEAN != CLEAN[i]) / 4, atol=0.05)


@pytest.mark.parametrize("clean", [True, False])
def test_partners_are_anyone_where_all_are_of_one_kind(clean):
    partners = over_keys(lambda key: opposite_partner(key, jnp.full(B, clean)), num=2000)
    share = np.bincount(partners[:, 5], minlength=B) / 2000
    np.testing.assert_allclose(share, 1 / B, atol=0.05)
