"""Small loss and oracle: SPR's steps on another clean set."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from free_logits import revise, slow_cross_entropy
from jax import random
from linear_network import make_linear

from spr_jax.devices import AXIS
from spr_jax.methods.small_loss import oracle, small_loss
from spr_jax.methods.spr import spr
from spr_jax.registry import options_of
from spr_jax.types import Batch

N, B, C = 20, 8, 3


def make_case(seed=0):
    generator = np.random.default_rng(seed)
    views = tuple(generator.standard_normal((2, B, 3, 3, 1)))
    index = generator.permutation(N)[:B]
    batch = Batch(views, generator.integers(0, C, B), index, np.ones(B))
    return make_linear(C, views[0]), batch, generator.random(N) < 0.5


def take(loss, network, batch, memory):
    """Value, slope and record of a step."""

    @jax.jit
    @partial(jax.vmap, in_axes=None, out_axes=None, axis_name=AXIS, axis_size=1)
    def step(params, batch, memory):
        def value(params):
            return loss((network.replace(params=params),), batch, memory, random.key(0))

        return jax.value_and_grad(value, has_aux=True)(params)

    (value, (_, record)), slope = step(network.params, batch, memory)
    return value, slope, record


def assert_same(one, two):
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), one[:2], two[:2])


@pytest.mark.parametrize("kind", ["loss", "other_loss"])
def test_small_loss_takes_the_steps_of_spr_and_records_the_loss(kind):
    network, batch, clean = make_case()
    method, base = small_loss(growth=1.5), spr(growth=1.5)
    memory = method.init(np.zeros(N, int), C) | {"clean": clean, "epoch": jnp.int32(2)}
    found = take(getattr(method, kind), network, batch, memory)
    assert_same(found, take(getattr(base, kind), network, batch, memory))
    head = network.params["head"]
    logits = batch.images.reshape(B, -1) @ np.asarray(head["kernel"]) + head["bias"]
    expected, _ = slow_cross_entropy(logits, batch.labels)
    np.testing.assert_allclose(found[2]["loss"], expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["loss", "other_loss"])
def test_oracle_takes_the_steps_of_spr_on_right_labels(kind):
    """In the first epoch too, when `clean` still holds all."""
    network, batch, right = make_case()
    method, base = oracle(), spr()
    memory = method.init(np.zeros(N, int), C) | {"right": right}
    knowing = memory | {"clean": right}
    found = take(getattr(method, kind), network, batch, memory)
    assert_same(found, take(getattr(base, kind), network, batch, knowing))
    other = take(getattr(base, kind), network, batch, memory)
    assert abs(other[0] - found[0]) > 1e-3


def test_oracle_calls_clean_what_is_right():
    _, _, right = make_case()
    method = oracle()
    memory = method.init(np.zeros(N, int), C) | {"right": right}
    after = revise(method, memory, {"features": np.zeros((N, 9), np.float32)})
    np.testing.assert_array_equal(after["clean"], right)
    assert after["epoch"] == 1


@pytest.mark.parametrize("keep", [0.3, 0.5, 1.0])
def test_clean_are_the_least_losses_of_each_class(keep):
    """In the order of the data; a share of those that were visited, rounded down."""
    generator = np.random.default_rng(0)
    labels, losses = generator.integers(0, C, 50), generator.exponential(size=50)
    visited = generator.random(50) < 0.9
    method = small_loss(keep=keep)
    memory = revise(
        method, method.init(labels, C), {"loss": losses.astype(np.float32)}, visited=visited
    )
    for label in range(C):
        members = np.flatnonzero((labels == label) & visited)
        kept = members[np.argsort(losses[members])][: int(keep * len(members))]
        np.testing.assert_array_equal(
            np.flatnonzero(memory["clean"] & (labels == label)), sorted(kept)
        )
    np.testing.assert_allclose(memory["suspicion"], losses, rtol=1e-6)


def test_a_loss_of_minus_zero_is_the_least():
    """So a loss is where the prediction is certain."""
    losses = np.array([0.5, -0.0, 0.1, 2.0], np.float32)
    method = small_loss(keep=0.5)
    memory = revise(method, method.init(np.zeros(4, int), 1), {"loss": losses})
    np.testing.assert_array_equal(memory["clean"], [False, True, True, False])


@pytest.mark.parametrize("make", [small_loss, oracle])
def test_options_are_those_of_spr(make):
    of_spr = options_of(spr)
    assert options_of(make) == {name: of_spr[name] for name in options_of(make)}
    method, base = make(cutmix=0.0), spr(cutmix=0.0)
    assert method.other_loss is None
    assert (method.num_views, make().num_views) == (base.num_views, 2)


@pytest.mark.parametrize("keep", [0.0, 1.1])
def test_share_out_of_range_is_named(keep):
    with pytest.raises(ValueError, match=f"keep is {keep}; expected a share above 0, up to 1."):
        small_loss(keep=keep)
