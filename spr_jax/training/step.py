"""One pure training step, and the programs that run it on all devices.

Every random choice is a function of (seed, epoch, step) and, in augmentation, of the example; no
generator is carried along. So a run that is resumed at any step equals an uninterrupted one.

Programs are pmapped here and nowhere else. JAX keeps pmap in maintenance and recommends shard_map;
under shard_map's default checks `pmean` scales gradients by the number of devices, so the move
waits until it can be made bit for bit.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array, lax, random

from spr_jax import augment
from spr_jax.backbones.network import Network
from spr_jax.devices import AXIS
from spr_jax.methods.method import Loss, Memory
from spr_jax.training.run import Run, ScheduledStage
from spr_jax.types import Batch


@struct.dataclass
class TrainState:
    networks: tuple[Network, ...]  # one, or two peers
    opt_states: tuple[Any, ...]  # one each, so that clipping never couples peers
    average: tuple[Network, ...]  # running average of the networks; empty if not asked for
    step: Array

    @property
    def evaluated(self) -> tuple[Network, ...]:
        return self.average or self.networks


def train_step(
    state: TrainState,
    batch: Batch,  # the part of one device
    memory: Memory,
    key: Array,
    *,
    optimizer: optax.GradientTransformation,
    loss: Loss,
    ema: float = 0.0,
) -> tuple[TrainState, Array, dict[str, Array]]:
    """Update all networks once: the state after it, the loss, the record of the batch."""

    def loss_of(params):
        networks = [net.replace(params=p) for net, p in zip(state.networks, params, strict=True)]
        return loss(tuple(networks), batch, memory, key)

    params = tuple(network.params for network in state.networks)
    (value, (networks, record)), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    stats = tuple(network.batch_stats for network in networks)
    # Devices have equal parts of a batch whose weights have mean 1: the mean of means is the mean.
    value, grads, stats = lax.pmean((value, grads, stats), AXIS)
    updates, opt_states = zip(*map(optimizer.update, grads, state.opt_states, params), strict=True)
    networks = tuple(
        network.replace(params=optax.apply_updates(param, update), batch_stats=stat)
        for network, param, update, stat in zip(networks, params, updates, stats, strict=True)
    )
    average = optax.incremental_update(networks, state.average, 1 - ema) if ema else ()
    return TrainState(networks, opt_states, average, state.step + 1), value, record


class Program(NamedTuple):
    """The compiled functions of a stage, over all devices."""

    # (state, buffers, memory, images, labels, index, weights, place, epoch, keys), one per kind
    steps: tuple[Callable, ...]
    scan: Callable  # (networks, buffers, images, index, place, inner) -> buffers
    collect: Callable  # (buffers, index, weights) -> record in the order of the data set
    # (so_far, networks, memory, images, labels, weights) -> hits: top-1, top-5, then top-1 of
    # each prediction beside the method's own
    count: Callable
    num_counts: int  # length of the hits


def make_program(run: Run, stage: ScheduledStage) -> Program:
    """Compile what a stage runs on the devices; tables are [steps, b] on each of them."""
    dataset, method = run.dataset, stage.method

    def step(state, buffers, memory, images, labels, index, weights, place, epoch, keys, *, loss):
        index, weights = index[place], weights[place]
        pixels = images if run.is_streamed else (images[index],) * method.num_views
        augment_key, flip_key, step_key = keys
        views = augment.views(
            pixels,
            index,
            augment_key,
            augmentation=dataset.augmentation,
            mean=dataset.mean,
            std=dataset.std,
            run_key=flip_key,
            epoch=epoch,
            on_top=method.on_top,
        )
        batch = Batch(views, labels[index], index, weights, epoch)
        key = random.fold_in(random.fold_in(step_key, place), lax.axis_index(AXIS))
        how = {"optimizer": stage.optimizer, "loss": loss, "ema": run.ema}
        state, value, record = train_step(state, batch, memory, key, **how)
        if method.record_from == "train":
            buffers = _write(buffers, record, place)
        return state, buffers, value

    def scan(networks, buffers, images, index, place, inner):
        pixels = images[0] if run.is_streamed else images[index[place]]
        return _write(buffers, scanned(networks, normalized(pixels), inner), place)

    def collect(buffers, index, weights):
        num_examples = len(dataset.train.labels)
        target = jnp.where(weights > 0, index, num_examples).ravel()  # out of range is dropped

        def in_order(values):  # [steps, b, ...] -> [N, ...]
            flat = values.reshape(len(target), *values.shape[2:])
            empty = jnp.zeros((num_examples, *flat.shape[1:]), flat.dtype)
            # Every example is on one device, so a sum gathers; of truth values it gives integers.
            return lax.psum(empty.at[target].set(flat, mode="drop"), AXIS).astype(flat.dtype)

        return jax.tree.map(in_order, buffers)

    def count(so_far, networks, memory, images, labels, weights):
        views = augment.weighted_views(images, run.tta)

        def averaged(predict):
            return sum(w * predict(networks, memory, normalized(view)) for w, view in views)

        probability = averaged(method.predict)
        _, best = lax.top_k(probability, min(5, dataset.num_classes))
        real = weights > 0
        hits = (best == labels[:, None]) & real[:, None]
        beside = [
            jnp.sum((jnp.argmax(averaged(predict), axis=1) == labels) & real)
            for predict in method.predict_beside.values()
        ]
        return so_far + lax.psum(jnp.stack([hits[:, 0].sum(), hits.sum(), *beside]), AXIS)

    normalized = partial(augment.normalise, mean=dataset.mean, std=dataset.std)
    pmap = partial(jax.pmap, axis_name=AXIS)
    pmap_step = partial(pmap, in_axes=(0,) * 7 + (None,) * 3, donate_argnums=(0, 1))
    pmap_scan = partial(pmap, in_axes=(0,) * 4 + (None,) * 2, static_broadcasted_argnums=5)
    return Program(
        steps=tuple(pmap_step(partial(step, loss=loss)) for loss in method.steps),
        scan=pmap_scan(scan, donate_argnums=1),
        collect=pmap(collect),
        count=pmap(count),
        num_counts=2 + len(method.predict_beside),
    )


def scanned(networks: tuple[Network, ...], images: Array, inner: bool = False) -> dict[str, Array]:
    """What an eval-mode pass records: logits and features of the first network, logits of peers.

    If asked, also the outputs of the first network's inner layers: inner_0, inner_1 ...
    """
    first, *peers = networks
    output, layers = first.inspect(images) if inner else (first.predict(images), ())
    found = output._asdict() | {f"inner_{n}": layer for n, layer in enumerate(layers)}
    return found | {f"logits_{n}": net.predict(images).logits for n, net in enumerate(peers, 1)}


def _write(buffers, record, place):
    """Put the record of a step into its row of the epoch's."""
    return {
        name: lax.dynamic_update_index_in_dim(buffers[name], values, place, 0)
        for name, values in record.items()
    }


def record_shapes(
    run: Run,
    stage: ScheduledStage,
    state: TrainState,
    memory: Memory,
    size: int,
    inner: bool = False,
):
    """Shapes of what a step records on each device; `state` and `memory` are replicated."""
    shape = (size, *run.dataset.train.images.shape[1:])
    views = tuple(jnp.zeros(shape, jnp.float32) for _ in range(stage.method.num_views))
    labels, index = jnp.zeros(size, jnp.int32), jnp.zeros(size, jnp.int32)
    batch = Batch(views, labels, index, jnp.zeros(size, jnp.float32), jnp.int32(0))

    def record(state, memory):
        if stage.method.record_from == "inputs":
            return {}
        if stage.method.record_from == "scan":
            return scanned(state.networks, batch.images, inner)
        how = {"optimizer": stage.optimizer, "loss": stage.method.steps[0], "ema": run.ema}
        return train_step(state, batch, memory, random.key(0), **how)[2]

    return jax.eval_shape(jax.vmap(record, axis_name=AXIS), state, memory)
