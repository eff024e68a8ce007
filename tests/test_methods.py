"""What every method promises to the training loop, on a small network in two parts of a batch."""

import inspect
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from spr_jax.backbones import BACKBONES, Classifier
from spr_jax.losses import LOSSES
from spr_jax.methods import METHODS, Method
from spr_jax.methods.method import mean_probability, weighted_mean
from spr_jax.network import make_network
from spr_jax.registry import build, defaults
from spr_jax.types import Batch

AXIS, DEVICES, B, C = "devices", 2, 8, 3
N = DEVICES * B


def stages_of(name):
    """The parts of a method by name; it may be of one piece."""
    made = build(METHODS, defaults(METHODS, name))
    if isinstance(made, Method):
        return {name: made}
    return {f"{name}, stage {number}": stage.method for number, stage in enumerate(made, 1)}


STAGES = {part: method for name in METHODS for part, method in stages_of(name).items()}
each_method = pytest.mark.parametrize("name", METHODS)
each_stage = pytest.mark.parametrize("name", STAGES)


@cache
def make_networks(num):
    module = Classifier(BACKBONES["c2f2"](axis_name=AXIS), C)
    make = jax.jit(lambda key: make_network(module, key, jnp.zeros((2, 8, 8, 1))))
    return tuple(make(key) for key in random.split(random.key(0), num))


def make_batch(num_views):
    """Every example once, [devices, b, ...], a part for each device."""
    generator = np.random.default_rng(0)
    views = generator.standard_normal((num_views, DEVICES, B, 8, 8, 1)).astype(np.float32)
    index = generator.permutation(N).reshape(DEVICES, B)
    return Batch(tuple(views), index % C, index, np.ones((DEVICES, B), np.float32))


def make(name):
    method = STAGES[name]
    return method, make_networks(method.num_networks), method.init(np.arange(N) % C, C)


@cache
def compiled(name):
    method, networks, _ = make(name)

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None, None), axis_name=AXIS)
    def loss_and_slope(batch, memory, params):
        def loss(params):
            those = [net.replace(params=p) for net, p in zip(networks, params, strict=True)]
            return method.loss(tuple(those), batch, memory, random.key(1))

        return jax.value_and_grad(loss, has_aux=True)(params)

    return loss_and_slope


@cache
def step(name, epoch=0):
    """Memory before it, and loss, slope, networks and record of one step."""
    method, networks, memory = make(name)
    if epoch:
        memory, *_, record = step(name, epoch - 1)
        memory = revise(method, memory, record)
    batch, params = make_batch(method.num_views), tuple(net.params for net in networks)
    (loss, (networks, record)), slope = compiled(name)(batch, memory, params)
    return memory, loss, slope, networks, record


def revise(method, memory, record):
    """As after an epoch of this one step."""
    position = np.argsort(make_batch(1).index.ravel())
    record = jax.tree.map(lambda leaf: leaf.reshape(N, *leaf.shape[2:])[position], record)
    visited = {"visited": np.ones(N, bool), "position": position}
    return jax.device_get(method.revise(memory, record | visited, random.key(0)))


@each_method
def test_first_line_says_what_a_method_is(name):
    line = METHODS[name].__doc__.splitlines()[0]
    assert 10 < len(line) < 97
    assert line.endswith(".")


@each_method
def test_options_all_have_defaults(name):
    parameters = inspect.signature(METHODS[name]).parameters.values()
    assert all(p.default is not p.empty for p in parameters)
    assert all(p.default is not None for p in parameters)  # or a flag could not set it


@each_stage
def test_memory_holds_arrays(name):
    _, _, memory = make(name)
    assert isinstance(memory, dict)
    numbers = memory.get("selection", {})
    assert all(isinstance(number, jax.Array) and number.shape == () for number in numbers.values())
    arrays = [values for name, values in memory.items() if name != "selection"]
    assert all(isinstance(values, jax.Array) for values in arrays)
    assert "clean" not in memory or memory["clean"].dtype == bool


@pytest.mark.parametrize("epoch", [0, 1])
@each_stage
def test_loss_and_slope_are_finite(name, epoch):
    _, loss, slope, _, _ = step(name, epoch)
    assert loss.shape == (DEVICES,)
    assert np.isfinite(loss).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


@each_stage
def test_loss_moves_every_network(name):
    _, _, slope, _, _ = step(name)
    for of_network in slope:
        assert all(abs(leaf).max() > 0 for leaf in jax.tree.leaves(of_network["head"]))


@each_stage
def test_loss_returns_networks_with_new_batch_statistics(name):
    method, before, _ = make(name)
    _, _, _, after, record = step(name)
    assert len(after) == method.num_networks
    assert jax.tree.structure(after) == jax.tree.structure(before)
    for old, new in zip(before, after, strict=True):
        assert not np.allclose(
            jax.tree.leaves(new.batch_stats)[0], jax.tree.leaves(old.batch_stats)[0]
        )
    assert all(values.shape[:2] == (DEVICES, B) for values in record.values())


@each_stage
def test_revised_memory_has_the_form_of_the_first(name):
    """Or each epoch would compile anew, and a checkpoint would not fit."""
    first, second = (step(name, epoch)[0] for epoch in (0, 1))
    form = partial(jax.tree.map, lambda leaf: (leaf.shape, leaf.dtype))
    assert form(second) == form(first)


@each_stage
def test_predictions_are_probabilities(name):
    method, networks, memory = make(name)
    (images,) = make_batch(1).views
    predict = jax.jit(jax.vmap(lambda x: method.predict(networks, memory, x), axis_name=AXIS))
    found = predict(images)
    assert found.shape == (DEVICES, B, C)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-6)


@each_stage
def test_log_holds_numbers(name):
    method, _, memory = make(name)
    assert all(np.isscalar(value) for value in method.describe(memory).values())


@pytest.mark.parametrize("name", LOSSES)
def test_loss_of_a_plain_method_is_the_weighted_mean(name):
    """On one part of the batch, without an axis of devices."""
    batch = jax.tree.map(lambda leaf: leaf[0], make_batch(1))
    batch = batch._replace(weights=np.linspace(0, 2, B, dtype=np.float32))
    (network,) = make_networks(1)
    network = network.replace(module=Classifier(BACKBONES["c2f2"](), C))
    method = build(METHODS, defaults(METHODS, name))

    @jax.jit
    def losses():
        loss, _ = method.loss((network,), batch, {}, random.key(0))
        return loss, LOSSES[name](network.forward(batch.images)[0].logits, batch.labels)

    loss, each = losses()
    np.testing.assert_allclose(loss, sum(each * batch.weights) / B, rtol=1e-5)


def test_mean_probability_is_over_networks():
    networks, (images,) = make_networks(2), make_batch(1).views
    predict = jax.jit(lambda *those: mean_probability(those, {}, images[0]))
    both, one, two = predict(*networks), predict(networks[0]), predict(networks[1])
    assert abs(one - two).max() > 1e-3
    np.testing.assert_allclose(both, (one + two) / 2, atol=1e-6)


def test_weighted_mean_divides_by_all():
    """Not by the weights: those of one device's part need not have mean 1."""
    assert weighted_mean(jnp.array([1.0, 2.0, 9.0]), jnp.array([1.5, 3.0, 0.0])) == 2.5
