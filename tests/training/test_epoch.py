"""The epoch around a step: who is visited, where records go, what the averages are."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fakes import make_linear
from flax import jax_utils
from PIL import Image
from tiny_run import CLASSES, COUNT, Case, follow, make_split

from spr_jax import augment
from spr_jax.datasets.images import ImageFiles
from spr_jax.devices import replicate
from spr_jax.methods import METHODS
from spr_jax.training.epoch import accuracy, buffers_from_record, record_so_far
from spr_jax.training.run import PURPOSES
from spr_jax.training.step import scanned


@pytest.fixture(scope="module")
def case():
    return Case()


@pytest.fixture(scope="module")
def epoch(case):
    return case.train()


def test_records_come_in_the_order_of_the_data_set(case, epoch):
    record = case.finish(epoch).record
    np.testing.assert_array_equal(record["index"], np.arange(COUNT))
    pixels = case.run.dataset.train.images / 255
    np.testing.assert_allclose(record["view0"], (pixels - 0.5) / 0.5, atol=1e-6)


def test_position_is_the_order_of_visiting(case, epoch):
    finished = case.finish(epoch)
    visits = case.run.visits(0).index.ravel()
    np.testing.assert_array_equal(visits[finished.position], np.arange(COUNT))
    assert finished.visited.all() and len(set(finished.position.tolist())) == COUNT
    np.testing.assert_array_equal(finished.labels, case.run.dataset.train.labels)


def test_every_epoch_has_its_own_order(case, epoch):
    again = case.train(epoch=1)
    np.testing.assert_array_equal(case.finish(again).record["index"], np.arange(COUNT))
    positions = [case.finish(progress).position for progress in (epoch, again)]
    assert (positions[0] != positions[1]).any()


def test_a_stage_counts_its_own_epochs():
    """In the batch, and for `revise`."""
    method = follow()

    def loss(networks, batch, memory, key):
        value, (networks, _) = method.steps[0](networks, batch, memory, key)
        return value, (networks, {"epoch": jnp.full(batch.index.shape, batch.epoch)})

    case = Case(method._replace(steps=(loss,)))
    case.run = case.run._replace(stages=(case.stage._replace(first=5),))
    finished = case.finish(case.train(epoch=7))
    assert finished.number == 2 and (np.asarray(finished.record["epoch"]) == 2).all()


def test_views_are_those_of_the_whole_batch():
    """Two devices augment their parts as one would the batch."""
    case = Case(follow()._replace(num_views=2), augmentation="crop_flip")
    run, finished = case.run, case.finish(case.train())
    images = (run.dataset.train.images,) * 2
    options = {"augmentation": "crop_flip", "mean": (0.5,), "std": (0.5,)}
    make = jax.jit(partial(augment.views, **options))
    expected = make(images, np.arange(COUNT), run.key("augment", 0))
    for number in range(2):
        np.testing.assert_array_equal(finished.record[f"view{number}"], expected[number])
    assert (np.asarray(expected[0]) != np.asarray(expected[1])).any()


def test_streamed_images_are_cropped_by_the_host_and_flipped_on_the_device(tmp_path):
    """The epoch can be entered at any step."""
    generator = np.random.default_rng(0)
    paths = [str(tmp_path / f"{number}.png") for number in range(COUNT)]
    for path in paths:
        Image.fromarray(generator.integers(0, 256, (5, 9, 3), dtype=np.uint8)).save(path)
    files = ImageFiles(paths, size=4, short_side=5)
    case = Case(images=files, augmentation="flip", batch_size=8)
    assert case.run.is_streamed and case.data[0] is None
    part = case.train(on_step=lambda taken: taken == 1)
    assert part.steps_taken == 1
    record = case.finish(case.train(part)).record
    pixels = np.round((np.asarray(record["view0"]) / 2 + 0.5) * 255).astype(np.uint8)
    crops = np.concatenate([files.random_crops(k, 1, (3, 0, k)) for k in range(COUNT)])
    flipped, same = ((pixels == p).all(axis=(1, 2, 3)) for p in (crops[:, :, ::-1], crops))
    assert np.logical_xor(flipped, same).all() and 0 < sum(flipped) < COUNT


def test_steps_are_of_the_kind_that_their_draw_says():
    method = follow()

    def other(networks, batch, memory, key):
        loss, (networks, record) = method.steps[0](networks, batch, memory, key)
        return loss, (networks, record | {"index": record["index"] + 100})

    mixing = method._replace(
        steps=(*method.steps, other), choose_step=lambda epoch, draw: int(epoch > 0 and draw < 0.5)
    )
    case = Case(mixing)
    kinds = {}
    for epoch in range(3):
        finished = case.finish(case.train(epoch=epoch))
        kinds[epoch] = case.run.steps_of(case.stage, epoch)
        in_step = finished.position // 4
        expected = np.arange(COUNT) + 100 * np.array(kinds[epoch])[in_step]
        np.testing.assert_array_equal(finished.record["index"], expected)
    assert not any(kinds[0]) and any(kinds[1]) and kinds[1] != kinds[2]
    often = [np.mean(case.run.steps_of(case.stage, epoch)) for epoch in range(1, 101)]
    assert np.mean(often) == pytest.approx(0.5, abs=0.06)


def test_devices_do_not_share_randomness_within_a_step():
    """Else all would drop the same units."""
    method = follow()

    def loss(networks, batch, memory, key):
        value, (networks, _) = method.steps[0](networks, batch, memory, key)
        return value, (networks, {"draw": jax.random.uniform(key, batch.index.shape)})

    draws = np.asarray(Case(method._replace(steps=(loss,))).train().buffers["draw"])
    assert len(np.unique(draws)) == draws.size


def test_only_a_few_batches_are_under_way_at_a_time(case, epoch, monkeypatch):
    """XLA's CPU client would let devices wait for each other forever."""
    waits = []
    monkeypatch.setattr(jax, "block_until_ready", lambda tree: waits.append(tree))
    accuracy(case.program, epoch.state, {}, make_split(60, 1), 2)  # 30 batches
    assert len(waits) >= 30 / 8 - 1
    waits.clear()
    assert Case(batch_size=2).train().steps_taken == 11
    assert len(waits) == 11 - 8


def test_examples_of_a_dropped_batch_are_not_visited():
    case = Case(drop_last=True)
    finished = case.finish(case.train())
    index, seen = finished.record["index"], finished.visited
    missed = np.setdiff1d(np.arange(COUNT), case.run.visits(0).index)
    assert len(missed) == COUNT % 4
    np.testing.assert_array_equal(np.flatnonzero(~seen), missed)
    np.testing.assert_array_equal(index[missed], 0)
    np.testing.assert_array_equal(index[seen], np.flatnonzero(seen))
    visits = case.run.visits(0).index.ravel()
    np.testing.assert_array_equal(visits[finished.position[seen]], np.flatnonzero(seen))


def test_an_epoch_of_steps_by_hand(case, epoch):
    """Gradient descent on the mean over each whole batch, the last one with two examples."""
    train, visits = case.run.dataset.train, case.run.visits(0)
    pixels = ((train.images / 255 - 0.5) / 0.5).reshape(COUNT, -1)
    layer = jax.device_get(jax_utils.unreplicate(case.start.state).networks[0].params["Dense_0"])
    kernel, bias = (np.asarray(layer[name], np.float64) for name in ("kernel", "bias"))
    losses = []
    for index in np.split(visits.index[visits.valid], range(4, COUNT, 4)):
        x, y = pixels[index], np.eye(CLASSES)[train.labels[index]]
        p = np.exp(x @ kernel + bias)
        p /= p.sum(axis=1, keepdims=True)
        losses.append(-np.log((p * y).sum(axis=1)).mean())
        kernel -= 0.5 * x.T @ (p - y) / len(x)
        bias -= 0.5 * (p - y).mean(axis=0)
    np.testing.assert_allclose([loss[0] for loss in epoch.losses], losses, rtol=1e-5)
    found = jax_utils.unreplicate(epoch.state)
    np.testing.assert_allclose(found.networks[0].params["Dense_0"]["kernel"], kernel, rtol=1e-4)
    assert found.step == epoch.steps_taken == len(visits.index) == 6


def test_an_interrupted_epoch_resumes_exactly(case, epoch):
    """Also through the host, as a checkpoint takes it."""
    first = case.train(on_step=lambda taken: taken == 3)
    assert first.steps_taken == 3
    record = jax.device_get(record_so_far(case.program, case.run, first))
    state, losses = jax.device_get((jax_utils.unreplicate(first.state), first.losses))
    resumed = case.start._replace(
        state=replicate(state),
        buffers=buffers_from_record(case.run, record, 0),
        losses=tuple(np.float32(loss[0]) for loss in losses),
    )
    done = case.train(resumed)
    for found, expected in zip(
        jax.tree.leaves((done.state, case.finish(done).record)),
        jax.tree.leaves((epoch.state, case.finish(epoch).record)),
        strict=True,
    ):
        np.testing.assert_array_equal(found, expected)
    assert done.steps_taken == 6


def test_records_keep_their_types():
    """So that a checkpoint in the middle of an epoch has what its resume expects."""

    def loss(networks, batch, memory, key):
        value, (networks, _) = follow().steps[0](networks, batch, memory, key)
        return value, (networks, {"is_odd": batch.index % 2 == 1})

    case = Case(follow()._replace(steps=(loss,)))
    record = record_so_far(case.program, case.run, case.train())
    assert record["is_odd"].dtype == bool
    np.testing.assert_array_equal(record["is_odd"], np.arange(COUNT) % 2 == 1)


def test_a_long_epoch_continues_correctly_after_its_resume():
    """More steps than may wait for the device, some of them before the resume."""
    case = Case(batch_size=2)
    progress = case.train(on_step=lambda taken: taken == 9)
    losses = tuple(np.float32(np.asarray(loss)[0]) for loss in progress.losses)
    assert case.train(progress._replace(losses=losses)).steps_taken == 11


def test_the_average_runs_behind_the_weights():
    case = Case(ema=0.75)
    states = []
    progress = None
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
    case = Case(follow()._replace(record_from="scan"))
    done = case.scan(case.train())
    record = case.finish(done).record
    assert set(record) == {"logits", "features"}
    pixels = (case.run.dataset.train.images.astype(np.float32) / 255 - 0.5) / 0.5
    expected = jax_utils.unreplicate(done.state).networks[0].predict(pixels)
    np.testing.assert_allclose(record["logits"], expected.logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(record["features"], expected.features, rtol=1e-5, atol=1e-6)


def test_a_scan_has_the_logits_of_peers():
    networks = tuple(make_linear(3, np.zeros((1, 2, 2, 1)), seed) for seed in (0, 1))
    images = np.random.default_rng(0).standard_normal((4, 2, 2, 1))
    found = scanned(networks, images)
    assert set(found) == {"logits", "features", "logits_1"}
    np.testing.assert_allclose(found["logits_1"], networks[1].predict(images).logits)


def test_any_method_can_ask_for_a_scan():
    case = Case(follow())
    done = case.train()
    finished = case.finish(done)
    assert "logits" not in finished.record
    pixels = (case.run.dataset.train.images.astype(np.float32) / 255 - 0.5) / 0.5
    expected = jax_utils.unreplicate(done.state).networks[0].predict(pixels)
    np.testing.assert_allclose(finished.scan()["logits"], expected.logits, rtol=1e-5, atol=1e-6)


def test_a_scan_can_be_of_the_running_average():
    case = Case(follow(), ema=0.9)
    done = case.train()
    pixels = (case.run.dataset.train.images.astype(np.float32) / 255 - 0.5) / 0.5
    state, scan = jax_utils.unreplicate(done.state), case.finish(done).scan
    for network, found in ((state.networks, scan()), (state.average, scan(averaged=True))):
        expected = network[0].predict(pixels).logits
        np.testing.assert_allclose(found["logits"], expected, rtol=1e-5, atol=1e-6)
    assert abs(np.asarray(scan()["logits"]) - np.asarray(expected)).max() > 1e-3


def test_spr_selects_from_a_scan():
    select = {"name": "share", "per_class": 0, "pca_dim": 2}
    method = METHODS["spr"](cutmix=0.0, record_from="scan", select=select)
    case = Case(method)
    finished = case.finish(case.scan(case.train()))
    revised = method.revise(case.start.memory, finished, jax.random.key(0))
    assert revised["clean"].shape == (COUNT,) and 0 < revised["clean"].sum() < COUNT


@pytest.mark.parametrize("count", [1, 8, 13])
def test_every_example_is_counted_once(case, epoch, count):
    split = make_split(count, seed=1)
    first, five = accuracy(case.program, epoch.state, {}, split, 4)
    pixels = (split.images.astype(np.float32) / 255 - 0.5) / 0.5
    network = jax_utils.unreplicate(epoch.state.networks)[0]
    guess = network.predict(pixels).logits.argmax(axis=1)
    assert first == pytest.approx(np.mean(guess == split.labels))
    assert five == 1  # there are only three classes


def test_predictions_beside_the_methods_own_are_counted_too():
    def constant(label):
        return lambda networks, memory, images: jnp.eye(CLASSES)[jnp.full(len(images), label)]

    beside = {"always_one": constant(1), "always_two": constant(2)}
    case = Case(follow()._replace(predict=constant(0), predict_beside=beside))
    split = make_split(13, seed=1)
    found = accuracy(case.program, case.start.state, {}, split, 4)
    zero, one, two = np.bincount(split.labels, minlength=CLASSES) / 13
    assert found == pytest.approx((zero, 1, one, two))


@pytest.mark.parametrize("tta", ["mirror", "mirror_shift"])
def test_predictions_are_averaged_over_views_of_a_test(tta, epoch):
    """Against views and weights written out; the weights of the network tell pixels apart."""
    split = make_split(60, seed=1)
    first, _ = accuracy(Case(tta=tta).program, epoch.state, {}, split, 4)
    network = jax_utils.unreplicate(epoch.state.networks)[0]

    def predict(images):
        return np.asarray(jax.nn.softmax(network.predict((images / 255 - 0.5) / 0.5).logits))

    def mirrored(images):
        return (predict(images) + predict(images[:, :, ::-1])) / 2

    images = split.images.astype(np.float32)
    frame = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), "reflect")
    probability = mirrored(images)
    if tta == "mirror_shift":
        moved = mirrored(frame[:, :-2, :-2]) + mirrored(frame[:, 2:, 2:])
        probability = probability / 2 + moved / 4
    hits = probability.argmax(axis=1) == split.labels
    assert first == pytest.approx(hits.mean())
    assert (probability.argmax(axis=1) != predict(images).argmax(axis=1)).any()


def test_purposes_and_epochs_share_no_randomness(case):
    keys = [case.run.key(purpose, epoch) for purpose in PURPOSES for epoch in range(3)]
    assert len({jax.random.key_data(key).tobytes() for key in keys}) == 3 * len(PURPOSES) == 18


def test_nothing_is_compiled_after_the_first_step(caplog):
    """Results go back in as they came out; later epochs use the programs of the first."""
    case = Case()
    case.finish(case.start)
    first = case.train(on_step=lambda taken: taken == 1)
    with jax.log_compiles():
        progress = case.train(first)
        case.finish(progress)
        progress = case.train(progress._replace(losses=()), epoch=1)
        case.finish(progress)
    assert not [record.message for record in caplog.records if "Compiling" in record.message]
