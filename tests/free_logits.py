"""A step of a method on networks whose parameters are the logits of the batch themselves.

The slope of the loss is then that in each example's logits: (p - e_y) / B for cross-entropy.
"""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import random

from spr_jax.devices import AXIS
from spr_jax.types import Batch, Output


@struct.dataclass
class FreeLogits:
    params: jax.Array  # [b, c]

    def forward(self, images, key=None, feature_mask=None):
        return Output(self.params, self.params), self

    def predict(self, images):
        return Output(self.params, self.params)


class Step(NamedTuple):
    loss: float  # of all devices together
    slopes: tuple[np.ndarray, ...]  # for each network [B, c], as of the mean over devices
    record: dict  # [B, ...]


def take_step(method, logits, labels, memory=None, *, epoch=0, weights=None, index=None, devices=1):
    """`logits` [networks, B, c], spread with their labels over the devices."""
    count, labels = len(labels), np.asarray(labels, np.int32)
    memory = method.init(labels, logits[0].shape[1]) if memory is None else memory
    memory = jax.tree.map(jnp.asarray, memory)
    if "epoch" in memory:
        memory = memory | {"epoch": jnp.int32(epoch)}
    weights = np.ones(count) if weights is None else weights
    index = np.arange(count) if index is None else index
    batch = Batch((np.zeros((count, 1)),), labels, index, weights)

    def spread(leaf):
        return jnp.reshape(leaf, (devices, count // devices, *np.shape(leaf)[1:]))

    (loss, (_, record)), slopes = compiled(method)(
        jax.tree.map(spread, tuple(logits)), jax.tree.map(spread, batch), memory
    )
    slopes, record = jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(count, *leaf.shape[2:]), (slopes, record)
    )
    return Step(float(loss.mean()), tuple(slope / devices for slope in slopes), record)


@cache
def compiled(method):
    def loss(params, batch, memory):
        return method.loss(tuple(map(FreeLogits, params)), batch, memory, random.key(0))

    on_device = jax.value_and_grad(loss, has_aux=True)
    return jax.jit(jax.vmap(on_device, in_axes=(0, 0, None), axis_name=AXIS))


def revise(method, memory, record, **changes):
    """After an epoch in which every example was visited, unless `changes` say otherwise."""
    count = len(next(iter(record.values())))
    record = {"visited": np.ones(count, bool)} | record | changes
    return jax.device_get(method.revise(jax.device_get(memory), record, random.key(0)))


def softmax(logits):
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def slow_cross_entropy(logits, labels):
    """(loss of each example [b], slope of it in its own logits [b, c])."""
    p, rows = softmax(logits), np.arange(len(labels))
    return -np.log(p[rows, labels]), p - np.eye(logits.shape[1])[labels]
