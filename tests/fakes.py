"""Networks that cost little, and a step or an epoch of a method on them.

Small     a backbone that compiles quickly
Linear    a linear network in Flax, without batch norm, so that examples meet in the loss alone
Head      features are the images, logits a linear map of them; nothing to compile
"""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import struct
from jax import random

from spr_jax.backbones import c2f2
from spr_jax.backbones.network import make_network
from spr_jax.devices import AXIS
from spr_jax.methods.method import Epoch
from spr_jax.types import Batch, Output


class Small(nn.Module):
    dtype: type | None = None
    axis_name: str | None = None
    head = staticmethod(c2f2.xavier_dense)

    @nn.compact
    def __call__(self, images, train):
        flat = images.reshape(len(images), -1)
        return nn.relu(c2f2.norm(self, train)(c2f2.xavier_dense(32, flat.shape[1])(flat)))


class Linear(nn.Module):
    """Features are twice as large in eval mode; batch statistics count passes and average."""

    num_classes: int
    width: int = 0  # of the features; 0: they are the pixels

    @nn.compact
    def __call__(self, images, train, feature_mask=None):
        dense = partial(nn.Dense, param_dtype=jnp.float64)
        features = images.reshape(len(images), -1)
        if self.width:
            features = dense(self.width, use_bias=False, name="body")(features)
        passes = self.variable("batch_stats", "passes", lambda: jnp.zeros(()))
        mean = self.variable("batch_stats", "mean", lambda: jnp.zeros(features.shape[1]))
        if train:
            passes.value += 1
            mean.value = 0.9 * mean.value + 0.1 * features.mean(axis=0)
        else:
            features = 2 * features
        seen = features if feature_mask is None else features * feature_mask
        return Output(dense(self.num_classes, name="head")(seen), features)


def make_linear(num_classes, images, seed=0, width=0):
    """With random weights and biases."""
    network = make_network(Linear(num_classes, width), random.key(seed), jnp.asarray(images))
    bias = np.random.default_rng(seed).standard_normal(num_classes)
    head = network.params["head"] | {"bias": jnp.asarray(bias)}
    return network.replace(params=network.params | {"head": head})


@struct.dataclass
class Head:
    params: dict  # of "head", as of any network

    def forward(self, images, key=None, feature_mask=None):
        head = self.params["head"]
        seen = images if feature_mask is None else images * feature_mask
        return Output(seen @ head["kernel"] + head["bias"], images), self

    def predict(self, images):
        return self.forward(images)[0]


def draw_logits(num_networks=1, count=8, num_classes=4, *, seed=0, scale=2.0):
    """Random logits [networks, count, classes] and labels [count]."""
    generator = np.random.default_rng(seed)
    logits = scale * generator.standard_normal((num_networks, count, num_classes))
    return logits, generator.integers(0, num_classes, count)


def make_batch(images, labels, *more_views, index=None, weights=None, epoch=0):
    """The first examples of a data set in their order, unless `index` says otherwise."""
    count = len(labels)
    index = np.arange(count) if index is None else index
    weights = np.ones(count) if weights is None else weights
    arrays = ((images, *more_views), np.asarray(labels, np.int32), index, weights, np.int32(epoch))
    return Batch(*jax.tree.map(jnp.asarray, arrays))


class Step(NamedTuple):
    """A step, on the host, of all devices together."""

    loss: float
    networks: tuple  # after it
    record: dict[str, np.ndarray]  # [B, ...]
    slopes: tuple  # of the loss in the parameters of each network
    by_image: np.ndarray  # [B, ...], slope of the loss in the first view
    each: np.ndarray  # [B], loss of each example, if the loss is linear in the weights


def take_step(method, networks, batch, memory=None, *, kind=0, key=0, devices=1):
    """Take a step of this kind; the batch is spread over the devices."""
    if memory is None:
        memory = method.init(batch.labels, networks[0].predict(batch.images).logits.shape[1])
    memory = jax.tree.map(jnp.asarray, memory)

    def spread(leaf):
        return jnp.reshape(leaf, (devices, len(batch.labels) // devices, *np.shape(leaf)[1:]))

    parts = Batch(*jax.tree.map(spread, tuple(batch[:-1])), batch.epoch)
    (loss, (after, record)), (slopes, by_image, by_weight) = jax.device_get(
        compiled(method.steps[kind])(networks, parts, memory, random.key(key))
    )

    def gather(leaf):
        return leaf.reshape(len(batch.labels), *leaf.shape[2:])

    return Step(
        loss.mean(),
        jax.tree.map(lambda leaf: leaf[0], after),
        jax.tree.map(gather, record),
        jax.tree.map(lambda leaf: leaf.mean(axis=0), slopes),
        gather(by_image) / devices,
        gather(by_weight) * by_weight.shape[1],
    )


@cache
def compiled(loss):
    """Loss and slopes in parameters, first view and weights, on each device."""

    def value(differentiated, networks, batch, memory, key):
        params, images, weights = differentiated
        networks = [net.replace(params=p) for net, p in zip(networks, params, strict=True)]
        batch = batch._replace(views=(images, *batch.views[1:]), weights=weights)
        return loss(tuple(networks), batch, memory, key)

    def on_device(networks, batch, memory, key):
        differentiated = tuple(net.params for net in networks), batch.images, batch.weights
        slope = jax.value_and_grad(value, has_aux=True)
        return slope(differentiated, networks, batch, memory, key)

    parts = Batch(0, 0, 0, 0, epoch=None)
    return jax.jit(jax.vmap(on_device, in_axes=(None, parts, None, None), axis_name=AXIS))


def step_on_logits(method, logits, labels, memory=None, *, key=0, devices=1, **changes):
    """Take a step on networks with these logits [networks, B, c]; `slopes` are those in the logits.

    The logits stand side by side in the images, and each network sees its own columns. For
    cross-entropy the slope is (p - e_y) / B.
    """
    logits = np.asarray(logits)
    num_networks, _, c = logits.shape
    columns = np.split(np.eye(num_networks * c, dtype=logits.dtype), num_networks, axis=1)
    bias = np.zeros(c, logits.dtype)
    networks = tuple(Head({"head": {"kernel": kernel, "bias": bias}}) for kernel in columns)
    batch = make_batch(np.concatenate(logits, axis=1), labels, **changes)
    step = take_step(method, networks, batch, memory, key=key, devices=devices)
    return step._replace(slopes=tuple(np.split(step.by_image, num_networks, axis=1)))


def revise(method, memory, record, labels=None, *, number=0, skipped=(), position=None, scan=dict):
    """Memory after an epoch in which every example was visited but the skipped ones."""
    count = len(next(iter(record.values()), labels))
    visited = ~np.isin(np.arange(count), skipped)
    position = np.arange(count) if position is None else position
    epoch = Epoch(number, labels, record, visited, position, scan)
    return jax.device_get(method.revise(jax.device_get(memory), epoch, random.key(0)))


def remember(memory, index, **values):
    """Replace what is remembered of the examples at `index`."""
    for name, own in values.items():
        whole = np.array(memory[name])
        whole[index] = own
        memory = memory | {name: whole}
    return memory


def softmax(logits):
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def slow_cross_entropy(logits, labels):
    """(loss of each example [b], slope of it in its own logits [b, c])."""
    p, rows = softmax(logits), np.arange(len(labels))
    return -np.log(p[rows, labels]), p - np.eye(logits.shape[1])[labels]
