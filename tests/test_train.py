"""The epoch around a step: who is visited, where records go, what the averages are.

The network is a linear map, so that everything can be computed by hand.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import jax_utils
from flax import linen as nn

from spr_jax.methods import METHODS, Method
from spr_jax.methods.method import weighted_mean
from spr_jax.network import make_network
from spr_jax.train import (
    Setup,
    TrainState,
    collect_record,
    count_right,
    make_program,
    partial_record,
    resume_epoch,
    scan_epoch,
    start_epoch,
    train_epoch,
)
from spr_jax.types import Dataset, Output, Split

COUNT, CLASSES, SHAPE = 22, 3, (2, 2, 1)


class Linear(nn.Module):
    @nn.compact
    def __call__(self, images, train, feature_mask=None):
        flat = images.reshape(len(images), -1)
        mean = self.variable("batch_stats", "mean", jnp.zeros, flat.shape[1], jnp.float32)
        if train:
            mean.value = jax.lax.pmean(flat.mean(axis=0), "devices")
        return Output(nn.Dense(CLASSES)(flat), flat - mean.value)


def make_split(count, seed):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (count, *SHAPE)).astype(np.uint8)
    return Split(images, generator.integers(0, CLASSES, count).astype(np.int32))


def follow() -> Method:
    """Cross-entropy that records of each example its index, and where it was met."""

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        each = optax.softmax_cross_entropy_with_integer_labels(output.logits, batch.labels)
        record = {"index": batch.index, "images": batch.images}
        return weighted_mean(each, batch.weights), ((network,), record)

    return Method(init=lambda labels, num_classes: {}, loss=loss)


def make_setup(**changes):
    names = tuple("abc")
    dataset = Dataset("tiny", make_split(COUNT, 0), {}, names, (0.5,), (0.5,), "none")
    setup = Setup(dataset, follow(), optax.sgd(0.5), batch_size=4, seed=3)
    return setup._replace(**changes)


class Case:
    """A setup with its program, at the beginning."""

    def __init__(self, **changes):
        self.setup = make_setup(**changes)
        train = self.setup.dataset.train
        network = make_network(Linear(), jax.random.key(0), jnp.zeros((1, *SHAPE), jnp.float32))
        networks = (network,)
        state = TrainState(
            networks,
            (self.setup.optimizer.init(network.params),),
            networks if self.setup.ema else (),
            jnp.int32(0),
        )
        self.program = make_program(self.setup)
        self.memory = jax_utils.replicate(self.setup.method.init(train.labels, CLASSES))
        self.data = jax_utils.replicate((train.images, train.labels))
        self.start = start_epoch(self.setup, jax_utils.replicate(state), self.memory)

    def train(self, progress=None, epoch=0, **options):
        progress = progress or jax.tree.map(jnp.copy, self.start)  # a step consumes its state
        arguments = (self.program, self.setup, progress, self.memory, self.data, epoch)
        return train_epoch(*arguments, **options)

    def collect(self, progress, epoch=0):
        return collect_record(self.program, self.setup, progress, epoch)

    def scan(self, progress, epoch=0):
        return scan_epoch(self.program, self.setup, progress, self.data, epoch)


@pytest.fixture(scope="module")
def case():
    return Case()


@pytest.fixture(scope="module")
def epoch(case):
    return case.train()


def test_records_come_in_the_order_of_the_data_set(case, epoch):
    record = case.collect(epoch)
    np.testing.assert_array_equal(record["index"], np.arange(COUNT))
    pixels = case.setup.dataset.train.images / 255
    np.testing.assert_allclose(record["images"], (pixels - 0.5) / 0.5, atol=1e-6)


def test_position_is_the_order_of_visiting(case, epoch):
    record = case.collect(epoch)
    visits = case.setup.order(0).index.ravel()
    np.testing.assert_array_equal(visits[record["position"]], np.arange(COUNT))
    assert record["visited"].all() and len(set(record["position"].tolist())) == COUNT


def test_every_epoch_has_its_own_order(case, epoch):
    again = case.train(epoch=1)
    np.testing.assert_array_equal(case.collect(again, 1)["index"], np.arange(COUNT))
    positions = [case.collect(p, e)["position"] for p, e in ((epoch, 0), (again, 1))]
    assert (positions[0] != positions[1]).any()


def test_steps_are_of_the_kind_that_their_chance_says():
    method = follow()

    def other_loss(networks, batch, memory, key):
        loss, (networks, record) = method.loss(networks, batch, memory, key)
        return loss, (networks, record | {"index": record["index"] + 100})

    mixing = method._replace(
        other_loss=other_loss, takes_other=lambda epoch, chance: epoch > 0 and chance < 0.5
    )
    case = Case(method=mixing)
    is_other = {}
    for epoch in range(3):
        record = case.collect(case.train(epoch=epoch), epoch)
        steps = len(case.setup.order(epoch).index)
        is_other[epoch] = case.setup.takes_other(epoch, steps)
        in_step = np.asarray(record["position"]) // 4
        expected = np.arange(COUNT) + 100 * np.array(is_other[epoch])[in_step]
        np.testing.assert_array_equal(record["index"], expected)
    assert not any(is_other[0]) and any(is_other[1]) and is_other[1] != is_other[2]
    often = [np.mean(case.setup.takes_other(epoch, 100)) for epoch in range(1, 11)]
    assert np.mean(often) == pytest.approx(0.5, abs=0.06)


def test_devices_do_not_share_randomness_within_a_step():
    """Else all would drop the same units, paste the same boxes."""
    method = follow()

    def loss(networks, batch, memory, key):
        value, (networks, _) = method.loss(networks, batch, memory, key)
        return value, (networks, {"draw": jax.random.uniform(key, batch.index.shape)})

    case = Case(method=method._replace(loss=loss))
    draws = np.asarray(case.train().buffers["draw"])
    assert len(np.unique(draws)) == draws.size


def test_only_a_few_batches_are_under_way_at_a_time(case, epoch, monkeypatch):
    """XLA's CPU client would let devices wait for each other for ever."""
    waits = []
    monkeypatch.setattr(jax, "block_until_ready", lambda tree: waits.append(tree))
    split = make_split(60, 1)  # 30 batches
    count_right(case.program, case.setup, epoch.state.networks, case.memory, split, batch_size=2)
    assert len(waits) >= 30 / 8 - 1


def test_examples_of_a_dropped_batch_are_not_visited():
    case = Case(drop_last=True)
    record = case.collect(case.train())
    missed = np.setdiff1d(np.arange(COUNT), case.setup.order(0).index)
    assert len(missed) == COUNT % 4
    np.testing.assert_array_equal(np.flatnonzero(~record["visited"]), missed)
    np.testing.assert_array_equal(record["index"][missed], 0)
    seen = record["visited"]
    np.testing.assert_array_equal(record["index"][seen], np.flatnonzero(seen))
    visits = case.setup.order(0).index.ravel()
    np.testing.assert_array_equal(visits[record["position"][seen]], np.flatnonzero(seen))


def test_an_epoch_of_steps_by_hand(case, epoch):
    """Gradient descent on the mean over each whole batch, the last one with two examples."""
    train, order = case.setup.dataset.train, case.setup.order(0)
    pixels = ((train.images / 255 - 0.5) / 0.5).reshape(COUNT, -1)
    layer = jax.device_get(jax_utils.unreplicate(case.start.state).networks[0].params["Dense_0"])
    kernel, bias = (np.asarray(layer[name], np.float64) for name in ("kernel", "bias"))
    losses = []
    for index in np.split(order.index[order.valid], range(4, COUNT, 4)):
        x, y = pixels[index], np.eye(CLASSES)[train.labels[index]]
        p = np.exp(x @ kernel + bias)
        p /= p.sum(axis=1, keepdims=True)
        losses.append(-np.log((p * y).sum(axis=1)).mean())
        kernel -= 0.5 * x.T @ (p - y) / len(x)
        bias -= 0.5 * (p - y).mean(axis=0)
    np.testing.assert_allclose([loss[0] for loss in epoch.losses], losses, rtol=1e-5)
    found = jax_utils.unreplicate(epoch.state)
    np.testing.assert_allclose(found.networks[0].params["Dense_0"]["kernel"], kernel, rtol=1e-4)
    assert found.step == epoch.place == len(order.index) == 6


def test_an_epoch_that_was_broken_off_goes_on_exactly(case, epoch):
    """Also through the host, as a checkpoint takes it."""
    first = case.train(on_step=lambda taken: taken == 3)
    assert first.place == 3
    record = jax.device_get(partial_record(case.program, case.setup, first, 0))
    state, losses = jax.device_get((jax_utils.unreplicate(first.state), first.losses))
    resumed = resume_epoch(case.setup, case.start, record, 0)
    losses = [np.float32(loss[0]) for loss in losses]
    resumed = resumed._replace(state=jax_utils.replicate(state), losses=losses, place=3)
    done = case.train(resumed)
    for found, expected in zip(
        jax.tree.leaves((done.state, case.collect(done))),
        jax.tree.leaves((epoch.state, case.collect(epoch))),
        strict=True,
    ):
        np.testing.assert_array_equal(found, expected)
    assert len(done.losses) == done.place == 6


def test_a_long_epoch_goes_on_right_after_its_resume():
    """More steps than may wait for the device, some of them before the resume."""
    case = Case(batch_size=2)
    progress = case.train(on_step=lambda taken: taken == 9)
    losses = [np.float32(np.asarray(loss)[0]) for loss in progress.losses]
    assert case.train(progress._replace(losses=losses)).place == 11


def test_the_average_runs_behind_the_weights():
    case = Case(ema=0.75)
    states = []
    progress = case.start
    for last in range(1, 4):
        progress = case.train(progress, on_step=lambda taken, last=last: taken == last)
        states.append(jax.device_get(jax_utils.unreplicate(progress.state)))
    expected = jax.device_get(Case(ema=0.75).start.state.networks)
    expected = jax.tree.map(lambda leaf: leaf[0], expected)
    for state in states:
        mix = lambda old, new: 0.75 * old + 0.25 * new  # noqa: E731
        expected = jax.tree.map(mix, expected, state.networks)
    for found, by_hand in zip(
        jax.tree.leaves(states[-1].average), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(found, by_hand, rtol=1e-5, atol=1e-7)
    assert states[-1].evaluated is states[-1].average


def test_without_an_average_the_weights_are_evaluated(epoch):
    assert epoch.state.average == () and epoch.state.evaluated is epoch.state.networks


def test_a_scan_records_what_the_trained_network_says():
    case = Case(method=follow()._replace(record_from="scan"))
    done = case.scan(case.train())
    record = case.collect(done)
    assert set(record) == {"logits", "features", "position", "visited"}
    pixels = (case.setup.dataset.train.images.astype(np.float32) / 255 - 0.5) / 0.5
    expected = jax_utils.unreplicate(done.state).networks[0].predict(pixels)
    np.testing.assert_allclose(record["logits"], expected.logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(record["features"], expected.features, rtol=1e-5, atol=1e-6)


def test_spr_selects_from_a_scan():
    method = METHODS["spr"](cutmix=0.0, features="eval", per_class=0, pca_dim=2)
    case = Case(method=method)
    record = case.collect(case.scan(case.train()))
    memory = jax_utils.unreplicate(case.memory)
    revised = method.revise(memory, record, jax.random.key(0))
    assert revised["clean"].shape == (COUNT,) and 0 < revised["clean"].sum() < COUNT
    assert revised["epoch"] == 1


@pytest.mark.parametrize("count", [1, 8, 13])
def test_every_example_is_counted_once(case, epoch, count):
    split = make_split(count, seed=1)
    networks = epoch.state.networks
    first, five = count_right(case.program, case.setup, networks, case.memory, split, 4)
    pixels = (split.images.astype(np.float32) / 255 - 0.5) / 0.5
    guess = jax_utils.unreplicate(networks)[0].predict(pixels).logits.argmax(axis=1)
    assert first == pytest.approx(np.mean(guess == split.labels))
    assert five == 1  # there are only three classes


def test_purposes_and_epochs_share_no_randomness(case):
    purposes = ("init", "augment", "step", "revise")
    keys = [case.setup.key(purpose, epoch) for purpose in purposes for epoch in range(3)]
    assert len({jax.random.key_data(key).tobytes() for key in keys}) == 12
