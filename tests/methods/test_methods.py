"""What every method promises to the training loop, on a small network in two parts of a batch."""

from functools import cache
from inspect import signature

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fakes import Small, draw_logits, make_batch, revise, step_on_logits, take_step
from jax import random

from spr_jax.backbones import Classifier
from spr_jax.backbones.network import make_network
from spr_jax.devices import AXIS
from spr_jax.losses import LOSSES
from spr_jax.methods import METHODS, Method
from spr_jax.methods.method import Epoch, keep_memory, mean_probability, weighted_mean
from spr_jax.registry import build, defaults, options_of
from spr_jax.training.step import scanned

DEVICES, N, C = 2, 16, 3
ORDER = np.random.default_rng(0).permutation(N)  # of visits
LABELS = np.arange(N, dtype=np.int32) % C  # in the order of the data


def stages_of(name):
    """The parts of a method by name; it may be of one piece."""
    made = build(METHODS, defaults(METHODS, name))
    if isinstance(made, Method):
        return {name: made}
    return {f"{name}, stage {number}": stage.method for number, stage in enumerate(made, 1)}


STAGES = {part: method for name in METHODS for part, method in stages_of(name).items()}
SLOW = ("spr", "small_loss")  # a few seconds each; the oracle takes the same steps
marked = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in STAGES]


@cache
def make_networks(num, extra=None):
    module = Classifier(Small(axis_name=AXIS), C)
    make = jax.jit(lambda key: make_network(module, key, jnp.zeros((2, 4, 4, 1)), extra))
    return tuple(make(key) for key in random.split(random.key(0), num))


def visit_all(num_views, **changes):
    """A batch of every example once."""
    views = np.random.default_rng(0).standard_normal((num_views, N, 4, 4, 1)).astype(np.float32)
    images, *more = views
    ones = np.ones(N, np.float32)
    return make_batch(images, LABELS[ORDER], *more, index=ORDER, weights=ones, **changes)


def first_memory(method):
    truth = (LABELS != 1,) if method.needs_truth else ()
    width = {"widths": (32,)} if method.needs_widths else {}  # as `Small` has
    return method.init(LABELS, C, *truth, **width)


def finish_epoch(method, networks, memory, step):
    """Revise as after an epoch of this one step."""
    place = np.argsort(ORDER)
    passed = jax.device_get(jax.jit(scanned)(networks, visit_all(1).images))
    passed, record = jax.tree.map(lambda leaf: leaf[place], (passed, step.record))
    record = passed if method.record_from == "scan" else record
    return revise(method, memory, record, LABELS, position=place, scan=lambda **_: passed)


def shapes(tree):
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)


def assert_memory_holds_arrays(memory):
    assert isinstance(memory, dict)
    numbers = memory.get("selection", {})
    assert all(isinstance(number, jax.Array) and number.shape == () for number in numbers.values())
    arrays = jax.tree.leaves([values for name, values in memory.items() if name != "selection"])
    assert all(isinstance(values, jax.Array) for values in arrays)
    assert "clean" not in memory or memory["clean"].dtype == bool


def assert_step_trains(step, before):
    """Numbers are finite, every network moves and has new batch statistics."""
    assert np.isfinite(step.loss)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(step.slopes))
    assert jax.tree.structure(step.networks) == jax.tree.structure(before)
    for old, new, slope in zip(before, step.networks, step.slopes, strict=True):
        assert all(abs(leaf).max() > 0 for leaf in jax.tree.leaves(slope["head"]))
        assert not np.allclose(
            jax.tree.leaves(new.batch_stats)[0], jax.tree.leaves(old.batch_stats)[0]
        )
    assert all(values.shape[:1] == (N,) for values in step.record.values())


def assert_predicts_probabilities(method, networks, memory):
    predict = jax.jit(lambda images: method.predict(networks, memory, images))
    found = predict(visit_all(1).images)
    assert found.shape == (N, C)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Dimension is measured")  # of few examples
@pytest.mark.parametrize("name", marked)
def test_a_stage_keeps_the_promises_of_the_contract(name):
    method = STAGES[name]
    networks, memory = make_networks(method.num_networks, method.extra), first_memory(method)
    assert_memory_holds_arrays(memory)
    assert_predicts_probabilities(method, networks, memory)
    choices = {method.choose_step(epoch, draw) for epoch in (0, 1) for draw in (0.0, 0.999)}
    assert choices == set(range(len(method.steps)))
    records = []
    for kind in range(len(method.steps)):
        step = take_step(
            method, networks, visit_all(method.num_views), memory, kind=kind, devices=DEVICES
        )
        assert_step_trains(step, networks)
        records.append(step.record)
    assert all(shapes(record) == shapes(records[0]) for record in records)
    after = finish_epoch(method, networks, memory, step)
    # Or each epoch would compile anew, and a checkpoint would not fit.
    assert shapes(after) == shapes(memory)
    for epoch, now in enumerate((memory, after)):
        assert all(np.isscalar(value) for value in method.describe(now, epoch).values())
    batch = visit_all(method.num_views, epoch=1)
    second = take_step(method, networks, batch, after, devices=DEVICES)
    assert np.isfinite(second.loss)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(second.slopes))


def test_names_and_options_document_themselves():
    for name, make in METHODS.items():
        line = make.__doc__.splitlines()[0]
        assert 10 < len(line) < 97 and line.endswith("."), name
        values = list(options_of(make).values())
        count = len(signature(make).parameters)
        assert len(values) == count, f"{name}: an option without a default"
        assert None not in values, f"{name}: a flag could not set an option of no type"


@pytest.mark.parametrize("name", LOSSES)
def test_loss_of_a_plain_method_is_the_weighted_mean(name):
    (logits, labels), weights = draw_logits(1, N, C), np.linspace(0, 2, N)
    step = step_on_logits(build(METHODS, {"name": name}), logits, labels, weights=weights)
    each = np.asarray(LOSSES[name](logits[0], labels))
    np.testing.assert_allclose(step.loss, weights @ each / N, rtol=1e-6)
    np.testing.assert_allclose(step.each, each, rtol=1e-6)


def test_a_method_may_leave_its_memory_as_it_is():
    epoch = Epoch(0, LABELS, {}, LABELS >= 0, np.arange(N))
    memory = {"clean": LABELS > 0}
    assert keep_memory(memory, epoch, random.key(0)) is memory


def test_mean_probability_is_over_networks():
    networks, images = make_networks(2), visit_all(1).images
    predict = jax.jit(lambda *those: mean_probability(those, {}, images))
    both, one, two = predict(*networks), predict(networks[0]), predict(networks[1])
    assert abs(one - two).max() > 1e-3
    np.testing.assert_allclose(both, (one + two) / 2, atol=1e-6)


def test_weighted_mean_divides_by_all():
    """Not by the weights: those of one device's part need not have mean 1."""
    assert weighted_mean(jnp.array([1.0, 2.0, 9.0]), jnp.array([1.5, 3.0, 0.0])) == 2.5
