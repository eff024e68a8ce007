"""SPR: its two steps against plain NumPy, who may influence them, and the clean set after an epoch.

The network is linear and has no batch norm, so that examples meet in the loss alone; in the place
of batch statistics it counts its passes and keeps a running mean.
"""

from functools import cache, partial
from importlib import import_module
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_data
from flax import linen as nn
from jax import random

from spr_jax.augment import Mixed
from spr_jax.devices import AXIS
from spr_jax.methods.spr import spr
from spr_jax.network import make_network
from spr_jax.solver import CleanSet, Options
from spr_jax.types import Batch, Output

SPR = import_module("spr_jax.methods.spr")
RULES = import_module("spr_jax.methods.rules")
B, SIDE, C, N = 8, 3, 4, 20
CLEAN = np.array([1, 0, 1, 1, 0, 0, 1, 0], bool)
UNEVEN = np.array([0, 2, 0.5, 1, 3, 0, 1, 0.5])  # weights of mean 1


class Linear(nn.Module):
    @nn.compact
    def __call__(self, images, train, feature_mask=None):
        wide = partial(nn.Dense, use_bias=False, param_dtype=jnp.float64)
        features = wide(6, name="body")(images.reshape(len(images), -1))
        passes = self.variable("batch_stats", "passes", lambda: jnp.zeros(()))
        mean = self.variable("batch_stats", "mean", lambda: jnp.zeros(6))
        if train:
            passes.value += 1
            mean.value = 0.9 * mean.value + 0.1 * features.mean(axis=0)
        return Output(wide(C, name="head")(features), features)


class Case(NamedTuple):
    """One batch, its memory and the network it meets."""

    network: object
    batch: Batch
    memory: dict


def make_case(clean=CLEAN, epoch=1, seed=0, **changes):
    generator = np.random.default_rng(seed)
    views = tuple(generator.standard_normal((2, B, SIDE, SIDE, 1)))
    index = generator.permutation(N)[:B]
    batch = Batch(views, generator.integers(0, C, B), index, np.ones(B))._replace(**changes)
    network = make_network(Linear(), random.key(seed), jnp.asarray(views[0]))
    memory = spr().init(np.zeros(N, int), C)
    memory["clean"] = memory["clean"].at[index].set(clean)
    return Case(network, batch, memory | {"epoch": jnp.int32(epoch)})


class Step(NamedTuple):
    loss: float
    network: object
    record: dict
    slope: dict  # of the loss in the parameters
    each: np.ndarray  # loss of each example, when weighed by ones

    @property
    def passes(self):
        return int(self.network.batch_stats["passes"])


def loss_of(method, epoch):
    """The kind of step that comes after even chances in an epoch."""
    return method.other_loss if method.takes_other(epoch, 0.5) else method.loss


def make_step(epoch=1, **options):
    """Loss and slopes in parameters and weights, compiled."""
    loss_of_kind = loss_of(spr(**options), epoch)

    def loss(params, weights, case, key):
        network, batch = case.network.replace(params=params), case.batch._replace(weights=weights)
        return loss_of_kind((network,), batch, case.memory, key)

    @partial(jax.vmap, in_axes=None, out_axes=None, axis_name=AXIS, axis_size=1)
    def on_one_device(*arguments):
        return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(*arguments)

    return jax.jit(on_one_device)


kept_step = cache(make_step)


def run(case, step_of=kept_step, **options):
    """The step that SPR takes, on the host."""
    options["epoch"] = int(case.memory["epoch"])
    weights = jnp.asarray(case.batch.weights)
    found = step_of(**options)(case.network.params, weights, case, random.key(0))
    (loss, ((network,), record)), (slope, by_weight) = found
    return jax.device_get(Step(loss, network, record, slope, B * by_weight))


def slow_forward(network, images):
    features = images.reshape(len(images), -1) @ np.asarray(network.params["body"]["kernel"])
    logits = features @ np.asarray(network.params["head"]["kernel"])
    return features, np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def slow_slope(network, images, by_logit):
    """In both layers, given d loss / d logits."""
    features, _ = slow_forward(network, images)
    by_feature = by_logit @ np.asarray(network.params["head"]["kernel"]).T
    return {
        "body": {"kernel": images.reshape(len(images), -1).T @ by_feature},
        "head": {"kernel": features.T @ by_logit},
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
    """Divided by the whole batch; lambda is sparse * growth^epoch."""
    case = make_case(epoch=epoch)
    found = run(case, cutmix=0.0, sparse=1.5, growth=1.1, q=0.3)
    expected = slow_supervised(case, 1.5 * 1.1**epoch, q=0.3)
    assert_close(found.each, expected)
    assert found.loss == pytest.approx(expected.sum() / B, abs=1e-6)


def test_supervised_loss_is_weighted():
    case = make_case(weights=UNEVEN)
    expected = UNEVEN @ slow_supervised(case, 1.2 * 1.02) / B
    assert run(case, cutmix=0.0).loss == pytest.approx(expected, abs=1e-6)


def test_divisor_by_clean_is_the_weight_of_clean_examples():
    case = make_case(weights=UNEVEN)
    expected = UNEVEN @ slow_supervised(case, 1.2 * 1.02) / UNEVEN[CLEAN].sum()
    assert run(case, cutmix=0.0, by_clean=True).loss == pytest.approx(expected, abs=1e-6)


def disturbed(case, rows):
    """Other images and labels in some rows."""
    images, labels = case.batch.images.copy(), case.batch.labels.copy()
    images[rows] += 5
    labels[rows] = (labels[rows] + 1) % C
    views = (images, case.batch.views[1])
    return case._replace(batch=case.batch._replace(views=views, labels=labels))


@pytest.mark.parametrize("by_clean", [False, True])
def test_noisy_examples_have_no_influence(by_clean):
    case = make_case()
    one, two = (run(c, cutmix=0.0, by_clean=by_clean) for c in (case, disturbed(case, ~CLEAN)))
    assert two.loss == one.loss
    assert_close(two.slope, one.slope, atol=0)


def test_clean_examples_have_influence():
    case = make_case()
    one, two = (run(c, cutmix=0.0) for c in (case, disturbed(case, [0])))
    assert abs(two.slope["head"]["kernel"] - one.slope["head"]["kernel"]).max() > 1e-2


@pytest.mark.parametrize("by_clean", [False, True])
def test_examples_of_weight_zero_have_no_influence(by_clean):
    weights = np.where(np.arange(B) < 2, 0, B / (B - 2))
    case = make_case(np.ones(B, bool), weights=weights)
    one, two = (
        run(c, cutmix=0.0, by_clean=by_clean) for c in (case, disturbed(case, weights == 0))
    )
    assert two.loss == one.loss
    assert_close(two.slope, one.slope, atol=0)


@pytest.mark.parametrize("by_clean", [False, True])
def test_slope_is_zero_where_nothing_is_clean(by_clean):
    found = run(make_case(np.zeros(B, bool)), cutmix=0.0, by_clean=by_clean)
    assert found.loss == 0
    assert_close(found.slope, jax.tree.map(np.zeros_like, found.slope), atol=0)


def test_supervised_step_records_the_features_of_its_pass():
    case = make_case()
    features, _ = slow_forward(case.network, case.batch.images)
    found = run(case, cutmix=0.0)
    assert_close(found.record, {"features": features})
    assert_close(found.network.batch_stats, {"passes": 1, "mean": 0.1 * features.mean(axis=0)})


# CutMix step

BOX, SHARE = np.s_[:, 1:3, :2], 1 - 4 / 9
PARTNER = np.array([3, 0, 0, 7, 5, 1, 6, 2])


def fixed_cutmix(key, images, partner=None):
    return Mixed(images.at[BOX].set(images[PARTNER][BOX]), PARTNER, jnp.float32(SHARE))


def slow_cutmix(case):
    """Loss of each example and the slope of the loss, with the targets taken as constants."""
    first, second = (slow_forward(case.network, view)[1] for view in case.batch.views)
    targets = np.where(CLEAN, case.batch.labels, np.argmax((first + second) / 2, axis=1))
    images = case.batch.images.copy()
    images[BOX] = case.batch.images[PARTNER][BOX]
    target = SHARE * np.eye(C)[targets] + (1 - SHARE) * np.eye(C)[targets[PARTNER]]
    features, p = slow_forward(case.network, images)
    each = -(target * np.log(p)).sum(axis=1)
    by_logit = case.batch.weights[:, None] * (p - target) / B
    return each, slow_slope(case.network, images, by_logit), features


@pytest.fixture(scope="module")
def mixed():
    """A CutMix step with a known box and known partners, and its case."""
    case = make_case(weights=UNEVEN, seed=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SPR, "paste_boxes", fixed_cutmix)
        return run(case, step_of=make_step, cutmix=1.0), case


def test_cutmix_loss_in_slow_numpy(mixed):
    found, case = mixed
    each, _, _ = slow_cutmix(case)
    assert_close(found.each, each)
    assert found.loss == pytest.approx(case.batch.weights @ each / B, abs=1e-6)


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
    assert_close(found.slope, slope)


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
    assert_close(found.network.batch_stats, {"passes": 3, "mean": mean})


def test_passes_for_pseudo_labels_carry_no_slope():
    case = make_case()

    def recorded(params):
        network, batch = case.network.replace(params=params), jax.tree.map(jnp.asarray, case.batch)
        loss = spr(cutmix=1.0).other_loss
        _, (_, record) = loss((network,), batch, case.memory, random.key(0))
        return record["features"].sum()

    slope = jax.jit(jax.grad(recorded))(case.network.params)
    assert_close(slope, jax.tree.map(np.zeros_like, slope), atol=0)


def test_noisy_labels_have_no_influence_on_a_cutmix_step():
    case = make_case()
    labels = np.where(CLEAN, case.batch.labels, (case.batch.labels + 1) % C)
    other = case._replace(batch=case.batch._replace(labels=labels))
    one, two = (run(c, cutmix=1.0) for c in (case, other))
    assert two.loss == one.loss


def over_keys(function, num=400):
    return jax.device_get(jax.jit(jax.vmap(function))(random.split(random.key(1), num)))


def each_by_key(case, **options):
    """Loss of each example at many keys, [keys, b]."""
    method = spr(cutmix=1.0, **options)

    def loss(weights, key):
        batch = jax.tree.map(jnp.asarray, case.batch)._replace(weights=weights)
        return method.other_loss((case.network,), batch, case.memory, key)[0]

    return over_keys(lambda key: B * jax.grad(loss)(jnp.ones(B), key), num=50)


@pytest.mark.parametrize("pairing", ["clean_noisy", "batch"])
def test_clean_are_mixed_with_noisy_only_if_asked(pairing):
    """All images are equal, so is the guess g; clean examples have the label g + 1."""
    images = np.ones((B, SIDE, SIDE, 1))
    case = make_case(views=(images, images))
    _, p = slow_forward(case.network, images)
    guess = p[0].argmax()
    label = (guess + 1) % C
    case = case._replace(batch=case.batch._replace(labels=np.full(B, label)))
    each = each_by_key(case, pairing=pairing)
    assert np.ptp(each[:, CLEAN]) > 0.01  # not among themselves
    # s a + (1 - s) b and s b + (1 - s) a sum to a + b, whatever the share s.
    sums = each[:, CLEAN][:, :, None] + each[:, ~CLEAN][:, None]
    opposite = np.isclose(sums, -np.log(p[0, guess] * p[0, label]), atol=1e-5)
    assert opposite.all() == (pairing == "clean_noisy")


def test_opposite_partners_are_drawn_evenly():
    partners = over_keys(lambda key: SPR._opposite(key, CLEAN), num=2000)
    for i in range(B):
        share = np.bincount(partners[:, i], minlength=B) / 2000
        np.testing.assert_allclose(share, (CLEAN != CLEAN[i]) / 4, atol=0.05)


@pytest.mark.parametrize("clean", [True, False])
def test_partners_are_anyone_where_all_are_of_one_kind(clean):
    partners = over_keys(lambda key: SPR._opposite(key, jnp.full(B, clean)), num=2000)
    share = np.bincount(partners[:, 5], minlength=B) / 2000
    np.testing.assert_allclose(share, 1 / B, atol=0.05)


# Which step


@pytest.mark.parametrize("cutmix", [0.0, 0.2, 0.5, 1.0])
def test_cutmix_steps_are_as_frequent_as_asked(cutmix):
    takes = spr(cutmix=cutmix).takes_other
    assert np.mean([takes(1, step / 1000) for step in range(1000)]) == cutmix


@pytest.mark.parametrize("cutmix", [0.5, 1.0])
def test_first_epoch_is_supervised(cutmix):
    method = spr(cutmix=cutmix)
    assert not method.takes_other(0, 0.0) and method.takes_other(1, 0.0)
    assert run(make_case(epoch=0), cutmix=cutmix).passes == 1


def test_the_penalty_may_be_of_the_logits():
    case = make_case()
    _, p = slow_forward(case.network, case.batch.images)
    logits = slow_forward(case.network, case.batch.images)[0] @ np.asarray(
        case.network.params["head"]["kernel"]
    )
    norm = (np.abs(logits) ** 0.5).sum(axis=1) ** 2
    each = -np.log(p[np.arange(B), case.batch.labels]) + 1.2 * 1.02 * norm
    assert_close(run(case, cutmix=0.0, sparse_on="logits", q=0.5).each, CLEAN * each, atol=1e-5)


def test_the_penalty_may_be_of_all_examples():
    """Noisy ones are then unlabelled: their labels do not matter, what is predicted does."""
    case = make_case(weights=UNEVEN)
    _, p = slow_forward(case.network, case.batch.images)
    each = -np.log(p[np.arange(B), case.batch.labels]) * CLEAN + 1.2 * 1.02 * (p**0.2).sum(axis=1)
    found = run(case, cutmix=0.0, sparse_over="all")
    assert_close(found.each, each, atol=1e-5)
    assert found.loss == pytest.approx(case.batch.weights @ each / B, abs=1e-5)


def test_devices_share_the_number_of_clean_examples():
    """Two devices with unequal numbers of clean examples are as one with both parts."""
    case, half = make_case(np.arange(B) < 3), B // 2
    step = partial(spr(cutmix=0.0, by_clean=True).loss, (case.network,))

    def loss(rows):
        batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows], case.batch)
        return step(batch, case.memory, random.key(0))[0]

    rows = jnp.arange(B)
    apart = jax.vmap(loss, axis_name=AXIS)(rows.reshape(2, half))
    together = jax.vmap(loss, axis_name=AXIS)(rows[None])
    assert apart.mean() == pytest.approx(float(together[0]), abs=1e-6)


def test_first_epoch_has_no_sparse_penalty_where_all_others_are_cutmix():
    case = make_case(epoch=0)
    assert_close(run(case, cutmix=1.0).each, slow_supervised(case, 0.0))
    assert_close(run(case, cutmix=0.5).each, slow_supervised(case, 1.2))


def test_second_view_is_made_only_for_cutmix():
    assert spr(cutmix=0.0).num_views == 1
    assert spr(cutmix=0.1).num_views == 2


# After an epoch


def make_epoch(num_missed=0):
    """Memory before the first revision, the record of an epoch, true labels."""
    features, given, true = make_data(rate=0.4)
    position = np.random.default_rng(1).permutation(len(given))
    visited = position < len(given) - num_missed
    features = np.where(visited[:, None], features, 0)
    record = {"features": features, "position": position, "visited": visited}
    return spr().init(given, 4), record, true


def revise(memory, record, **options):
    method = spr(**{"pca_dim": 6} | options)
    return jax.device_get(method.revise(memory, record, random.key(0)))


def precision(memory, true):
    return (memory["labels"] == true)[memory["clean"]].mean()


@pytest.mark.parametrize("options", [{}, {"per_class": 0}, {"select": "class"}])
def test_clean_labels_are_right(options):
    memory, record, true = make_epoch()
    assert precision(memory, true) < 0.65
    revised = revise(memory, record, **options)
    assert precision(revised, true) > 0.8
    assert 0.45 < revised["clean"].mean() < 0.65


def test_revision_ends_the_epoch():
    memory, record, _ = make_epoch()
    revised = revise(memory, record)
    assert revised["epoch"] == 1
    assert revise(revised, record)["epoch"] == 2
    np.testing.assert_array_equal(revised["labels"], memory["labels"])


WHOLE = {"per_class": 0, "intercept": True}


def test_auto_keeps_what_is_more_likely_right():
    memory, record, true = make_epoch()
    revised = revise(memory, record, select="auto", **WHOLE)
    right = memory["labels"] == true
    assert precision(revised, true) > 0.9 and revised["clean"][right].mean() > 0.8
    assert revised["selection"]["estimated_noise"] == pytest.approx(
        1 - float(right.mean()), abs=0.08
    )
    realised = 1 - float(precision(revised, true))
    assert revised["selection"]["expected_wrong_in_clean"] == pytest.approx(realised, abs=0.06)


def with_poor_features(record):
    features = np.random.default_rng(0).standard_normal(record["features"].shape)
    return record | {"features": features.astype(np.float32)}


def shares_by_class(clean, labels):
    return np.array([clean[np.asarray(labels) == label].mean() for label in range(4)])


def test_knockoffs_leave_a_least_share_of_poor_features():
    memory, record, _ = make_epoch()
    rule = {"select": "knockoffs", "least_keep": 0.2, "fallback": "none", "level": 0.01, **WHOLE}
    clean = revise(memory, with_poor_features(record), **rule)["clean"]
    shares = shares_by_class(clean, memory["labels"])
    assert (shares > 0.18).all() and shares.mean() < 0.5


@pytest.mark.parametrize("poor", [True, False])
def test_auto_leaves_a_share_of_what_is_likely_right(poor):
    memory, record, _ = make_epoch()
    record = with_poor_features(record) if poor else record
    few, most, all_right = (
        revise(memory, record, select="auto", most_wrong=1e-6, least_right=share, **WHOLE)
        for share in (0, 0.5, 1)
    )
    right = 1 - shares_by_class(few["suspicion"], memory["labels"])  # suspicion: chance of wrong
    for share, revised in ((0.5, most), (1, all_right)):
        shares = shares_by_class(revised["clean"], memory["labels"])
        size = np.bincount(memory["labels"])
        assert (np.abs(shares - share * right) * size <= 1).all()
    assert (few["clean"] <= most["clean"]).all() and (most["clean"] <= all_right["clean"]).all()
    dropped = ~most["clean"]  # of each class, the surest are kept
    for label in range(4):
        own = np.asarray(memory["labels"]) == label
        kept = most["suspicion"][own & most["clean"]]
        assert kept.max() <= most["suspicion"][own & dropped].min()


def test_good_features_need_no_least_share():
    memory, record, _ = make_epoch()
    without, by_default = (
        revise(memory, record, select="auto", **WHOLE, **options)["clean"]
        for options in ({"least_right": 0}, {})
    )
    assert (without == by_default).mean() > 0.99


def test_knockoffs_keep_a_level_or_fall_back():
    memory, record, true = make_epoch()
    rule = {"select": "knockoffs", "least_keep": 0.05, **WHOLE}
    kept = revise(memory, record, level=0.3, **rule)
    assert precision(kept, true) > 0.7 and kept["selection"]["classes_attained"] > 0
    beyond = {"level": 1e-6, **rule}
    none, share = (revise(memory, record, fallback=name, **beyond) for name in ("none", "share"))
    assert none["selection"]["classes_attained"] == share["selection"]["classes_attained"] == 0
    assert none["clean"].mean() < 0.06 and share["clean"].mean() > 0.3


def test_without_selection_all_are_clean():
    memory, record, _ = make_epoch()
    assert revise(memory, record, select="none")["clean"].all()


def test_a_random_share_is_clean_if_asked():
    memory, record, true = make_epoch()
    revised = revise(memory, record, select="random", keep=0.3)
    assert revised["clean"].mean() == pytest.approx(0.3, abs=0.07)
    assert precision(revised, true) == pytest.approx(float(precision(memory, true)), abs=0.12)


def test_share_of_clean_examples_is_as_asked():
    memory, record, _ = make_epoch()
    revised = revise(memory, record, per_class=0, keep=0.3)
    assert revised["clean"].mean() == pytest.approx(0.3, abs=0.01)


def test_suspects_have_higher_entries_than_clean_examples():
    memory, record, _ = make_epoch()
    found = revise(memory, record, per_class=0)
    for k in range(4):
        entry, clean = (found[name][memory["labels"] == k] for name in ("suspicion", "clean"))
        assert entry[clean].max() <= entry[~clean].min()


def test_clean_set_follows_the_order_of_the_data():
    memory, record, _ = make_epoch()
    order = np.random.default_rng(7).permutation(400)
    moved = spr().init(np.asarray(memory["labels"])[order], 4)
    straight = revise(memory, record, per_class=0)
    permuted = revise(moved, {name: values[order] for name, values in record.items()}, per_class=0)
    np.testing.assert_array_equal(permuted["clean"], straight["clean"][order])


def test_clean_set_does_not_depend_on_the_visiting_order():
    memory, record, _ = make_epoch()
    other = record | {"position": record["position"][::-1]}
    one, two = (revise(memory, r)["clean"] for r in (record, other))
    np.testing.assert_array_equal(one, two)


def test_examples_not_visited_are_not_clean():
    memory, record, true = make_epoch(num_missed=40)
    found = revise(memory, record)
    assert not found["clean"][~record["visited"]].any()
    assert precision(found, true) > 0.8


def test_visit_order_defect_marks_examples_at_random():
    memory, record, true = make_epoch()
    base_rate = (memory["labels"] == true).mean()
    found = revise(memory, record, visit_order_defect=True)
    assert abs(precision(found, true) - base_rate) < 0.1


def test_visit_order_defect_takes_positions_for_indices():
    memory, record, _ = make_epoch()
    right = revise(memory, record)["clean"]
    wrong = revise(memory, record, visit_order_defect=True)["clean"]
    for example, position in enumerate(record["position"]):
        assert wrong[position] == right[example]


def test_solver_is_given_the_last_clean_set_and_all_options(monkeypatch):
    given = {}

    def solve(features, labels, key, clean, keep, **static):
        given.update(static, clean=clean, keep=keep)
        return CleanSet(clean, *jnp.zeros(4))

    monkeypatch.setattr(RULES, "clean_set", solve)
    memory, record, _ = make_epoch()
    memory["clean"] = jnp.arange(400) % 3 == 0
    options = {"pca_dim": 7, "intercept": True, "select": "class", "ties": "released"}
    revise(memory, record, keep=0.4, per_class=5, classes_per_group=2, **options)
    np.testing.assert_array_equal(given["clean"], memory["clean"])
    assert given["keep"] == 0.4
    assert given["options"] == Options(**options)
    assert (given["plan"].per_class, given["plan"].classes_per_group) == (5, 2)


def test_features_of_an_eval_pass_come_from_a_scan():
    assert spr().record_from == "train"
    assert spr(features="eval").record_from == "scan"


def test_log_shows_lambda():
    _, _, memory = make_case(epoch=5)
    shown = spr(sparse=1.5, growth=1.1).describe(memory)
    assert shown == {"sparse_weight": pytest.approx(1.5 * 1.1**5)}


@pytest.mark.parametrize(
    "option", [{"pairing": "clean"}, {"features": "scan"}, {"select": "group"}, {"ties": "none"}]
)
def test_unknown_choices_fail_before_training(option):
    (value,) = option.values()
    with pytest.raises(ValueError, match=f"Unknown name '{value}'"):
        spr(**option)
