"""Training: one pure step, pmapped here and nowhere else, and the epoch around it.

Every random choice is a function of (seed, epoch, step) and, in augmentation, of the example; no
generator is carried along. So a run that is resumed at any step equals one that was not broken.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax import Array, lax, random

from spr_jax.augment import normalise
from spr_jax.batches import Order, epoch_order, for_devices, make_batch, prefetch, stream
from spr_jax.devices import AXIS
from spr_jax.methods import Method
from spr_jax.methods.method import Loss
from spr_jax.network import Network
from spr_jax.types import Batch, Dataset, Split

# Steps that may wait for the device before the host waits for it. At 32 XLA's CPU client makes a
# device wait, and the others, which wait for that one in a sum over devices, wait for ever.
IN_FLIGHT = 8


@struct.dataclass
class TrainState:
    networks: tuple[Network, ...]  # one, or two peers
    opt_states: tuple[Any, ...]  # one each, so that clipping never couples peers
    average: tuple[Network, ...]  # running average of the networks; empty if not asked for
    step: Array

    @property
    def evaluated(self) -> tuple[Network, ...]:
        return self.average or self.networks


class Setup(NamedTuple):
    """What stays the same in a run."""

    dataset: Dataset
    method: Method
    optimizer: optax.GradientTransformation
    batch_size: int  # of all devices of all processes together
    seed: int
    drop_last: bool = False
    ema: float = 0.0
    workers: int = 0  # processes that decode streamed images

    def order(self, epoch: int) -> Order:
        count, options = len(self.dataset.train.labels), {"seed": self.seed, "epoch": epoch}
        return epoch_order(count, self.batch_size, drop_last=self.drop_last, **options)

    def key(self, purpose: str, epoch: int = 0) -> Array:
        """Of an epoch; purposes do not share randomness."""
        purposes = ("init", "augment", "step", "revise", "kind")
        key = random.fold_in(random.key(self.seed), purposes.index(purpose))
        return random.fold_in(key, epoch)

    def takes_other(self, epoch: int, steps: int) -> list[bool]:
        """Which steps of an epoch are of the method's other kind."""
        chances = np.asarray(random.uniform(self.key("kind", epoch), steps))
        return [bool(self.method.takes_other(epoch, chance)) for chance in chances]

    @property
    def is_streamed(self) -> bool:
        return not isinstance(self.dataset.train.images, np.ndarray)


def train_step(
    state: TrainState,
    batch: Batch,  # the part of one device
    memory: dict[str, Array],
    key: Array,
    *,
    setup: Setup,
    loss: Loss,
) -> tuple[TrainState, Array, dict[str, Array]]:
    """One update of all networks: the state after it, the loss, the record of the batch."""

    def loss_of(params):
        networks = [net.replace(params=p) for net, p in zip(state.networks, params, strict=True)]
        return loss(tuple(networks), batch, memory, key)

    params = tuple(network.params for network in state.networks)
    (value, (networks, record)), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    stats = tuple(network.batch_stats for network in networks)
    # Devices have equal parts of a batch whose weights have mean 1: the mean of means is the mean.
    value, grads, stats = lax.pmean((value, grads, stats), AXIS)
    updates, opt_states = zip(
        *map(setup.optimizer.update, grads, state.opt_states, params), strict=True
    )
    networks = tuple(
        network.replace(params=optax.apply_updates(param, update), batch_stats=stat)
        for network, param, update, stat in zip(networks, params, updates, stats, strict=True)
    )
    average = optax.incremental_update(networks, state.average, 1 - setup.ema) if setup.ema else ()
    return TrainState(networks, opt_states, average, state.step + 1), value, record


class Program(NamedTuple):
    """The compiled functions of a run, over all devices."""

    step: Callable  # (state, buffers, memory, images, labels, index, weights, place, keys)
    other_step: Callable | None  # the same with the method's other loss
    scan: Callable  # (networks, buffers, images, index, place) -> buffers
    collect: Callable  # (buffers, index, weights) -> record in the order of the data set
    count: Callable  # (so_far, networks, memory, images, labels, weights) -> [top-1, top-5] right


def make_program(setup: Setup) -> Program:
    dataset, method = setup.dataset, setup.method

    def step(state, buffers, memory, images, labels, index, weights, place, keys, *, loss):
        index, weights = index[place], weights[place]
        pixels = images if setup.is_streamed else (images[index],) * method.num_views
        augment_key, step_key = keys
        batch = make_batch(pixels, labels, index, weights, augment_key, dataset=dataset)
        step_key = random.fold_in(random.fold_in(step_key, place), lax.axis_index(AXIS))
        state, value, record = train_step(state, batch, memory, step_key, setup=setup, loss=loss)
        if method.record_from == "train":
            buffers = _write(buffers, record, place)
        return state, buffers, value

    def scan(networks, buffers, images, index, place):
        pixels = images[0] if setup.is_streamed else images[index[place]]
        output = networks[0].predict(pixels_of(pixels))
        return _write(buffers, output._asdict(), place)

    def collect(buffers, index, weights):
        count = len(dataset.train.labels)
        place = jnp.where(weights > 0, index, count).ravel()  # out of range is dropped

        def in_order(values):  # [steps, b, ...] -> [N, ...]
            flat = values.reshape(len(place), *values.shape[2:])
            return jnp.zeros((count, *flat.shape[1:]), flat.dtype).at[place].set(flat, mode="drop")

        return lax.psum(jax.tree.map(in_order, buffers), AXIS)

    def count(so_far, networks, memory, images, labels, weights):
        probability = method.predict(networks, memory, pixels_of(images))
        _, best = lax.top_k(probability, min(5, dataset.num_classes))
        hits = (best == labels[:, None]) & (weights > 0)[:, None]
        return so_far + lax.psum(jnp.stack([hits[:, 0].sum(), hits.sum()]), AXIS)

    def pixels_of(images):
        return normalise(images, dataset.mean, dataset.std)

    pmap = partial(jax.pmap, axis_name=AXIS)
    pmap_step = partial(pmap, in_axes=(0,) * 7 + (None, None), donate_argnums=(0, 1))
    return Program(
        step=pmap_step(partial(step, loss=method.loss)),
        other_step=pmap_step(partial(step, loss=method.other_loss)) if method.other_loss else None,
        scan=pmap(scan, in_axes=(0,) * 4 + (None,), donate_argnums=1),
        collect=pmap(collect),
        count=pmap(count),
    )


def _write(buffers, record, place):
    """Put the record of a step into its row of the epoch's."""
    return {
        name: lax.dynamic_update_index_in_dim(buffers[name], values, place, 0)
        for name, values in record.items()
    }


class Progress(NamedTuple):
    """An epoch under way: what is needed to go on from `place`."""

    state: TrainState
    buffers: dict[str, Array]  # [devices, steps, b, ...], the record so far
    losses: list[Array]  # of each step
    place: int = 0  # steps taken


def start_epoch(setup: Setup, state: TrainState, memory: dict[str, Array]) -> Progress:
    """`state` and `memory` are replicated."""
    order = local_order(setup.order(0))
    devices, steps, size = order.index.shape
    shape = (size, *setup.dataset.train.images.shape[1:])
    views = tuple(jnp.zeros(shape, jnp.float32) for _ in range(setup.method.num_views))
    batch = Batch(views, *(jnp.zeros(size, kind) for kind in (jnp.int32, jnp.int32, jnp.float32)))

    def record(state, memory):
        if setup.method.record_from == "scan":
            return state.networks[0].predict(batch.images)._asdict()
        key, loss = random.key(0), setup.method.loss
        return train_step(state, batch, memory, key, setup=setup, loss=loss)[2]

    shapes = jax.eval_shape(jax.vmap(record, axis_name=AXIS), state, memory)
    make = lambda leaf: jnp.zeros((steps, *leaf.shape[1:]), leaf.dtype)  # noqa: E731
    buffers = jax.pmap(lambda _: jax.tree.map(make, shapes))(jnp.zeros(devices))
    return Progress(state, buffers, [])


def train_epoch(
    program: Program,
    setup: Setup,
    progress: Progress,
    memory: dict[str, Array],  # replicated
    data: tuple[Array | None, Array],  # images (None if streamed) and labels, replicated
    epoch: int,
    *,
    on_step: Callable[[int], bool] = lambda taken: False,  # True: stop after this step
) -> Progress:
    """Take the steps of an epoch that are left."""
    state, buffers, losses, taken = progress
    order = local_order(setup.order(epoch))
    tables = jax.pmap(lambda *tables: tables)(*order)
    keys = (setup.key("augment", epoch), setup.key("step", epoch))
    images, labels = data
    streamed = _streamed(setup, order, epoch, taken) if setup.is_streamed else None
    losses = list(losses)
    takes_other = setup.takes_other(epoch, order.index.shape[1])
    for place in range(taken, order.index.shape[1]):
        images = next(streamed) if setup.is_streamed else images
        step = program.other_step if takes_other[place] else program.step
        state, buffers, loss = step(
            state, buffers, memory, images, labels, *tables, np.int32(place), keys
        )
        losses.append(loss)
        if len(losses) > IN_FLIGHT:
            jax.block_until_ready(losses[-IN_FLIGHT])
        if on_step(len(losses)):
            break
    return Progress(state, buffers, losses, len(losses))


def scan_epoch(
    program: Program,
    setup: Setup,
    progress: Progress,
    data: tuple[Array | None, Array],
    epoch: int,
) -> Progress:
    """Record an eval-mode pass over the training data, if the method wants that."""
    if setup.method.record_from == "train":
        return progress
    order, buffers = local_order(setup.order(epoch)), progress.buffers
    index = jax.pmap(lambda index: index)(order.index)
    streamed = _streamed(setup, order, epoch, 0, random_crops=False)
    for place in range(order.index.shape[1]):
        images = next(streamed) if setup.is_streamed else data[0]
        buffers = program.scan(progress.state.networks, buffers, images, index, np.int32(place))
        if place % IN_FLIGHT == 0:
            jax.block_until_ready(buffers)
    return progress._replace(buffers=buffers)


def collect_record(
    program: Program, setup: Setup, progress: Progress, epoch: int
) -> dict[str, Array]:
    """What the epoch recorded, in the order of the data set; on one device.

    With it `visited` [N], and the `position` [N] in the order of visiting.
    """
    whole = setup.order(epoch)
    record = partial_record(program, setup, progress, epoch)
    position = np.full(len(setup.dataset.train.labels), whole.index.size, np.int32)
    position[whole.index[whole.valid]] = np.flatnonzero(whole.valid)
    return record | {"position": position, "visited": position < whole.index.size}


def partial_record(
    program: Program, setup: Setup, progress: Progress, epoch: int
) -> dict[str, Array]:
    """The record so far, in the order of the data set, to be saved in the middle of an epoch."""
    tables = jax.pmap(lambda *tables: tables)(*local_order(setup.order(epoch)))
    return jax.tree.map(lambda leaf: leaf[0], program.collect(progress.buffers, *tables))


def resume_epoch(setup: Setup, progress: Progress, record: dict[str, Array], epoch: int):
    """The inverse of `partial_record`, for any number of devices."""
    visit = jax.pmap(lambda leaf, index: leaf[index], in_axes=(None, 0))
    index = local_order(setup.order(epoch)).index
    return progress._replace(buffers={name: visit(leaf, index) for name, leaf in record.items()})


def count_right(
    program: Program,
    setup: Setup,
    networks: tuple[Network, ...],  # replicated
    memory: dict[str, Array],  # replicated
    split: Split,
    batch_size: int,
) -> np.ndarray:
    """Share of a split's labels that are the network's first guess, and among its first five."""
    order = epoch_order(len(split.labels), batch_size, seed=0, epoch=0, shuffle=False)
    order = local_order(order)
    devices, steps, _ = order.index.shape
    if isinstance(split.images, np.ndarray):
        batches = (split.images[order.index[:, step]] for step in range(steps))
    else:
        batches = (views[0] for views in _host_stream(split.images, order, random_crops=False))
    found = jax.pmap(lambda _: jnp.zeros(2, int))(np.zeros(devices))
    for step, images in enumerate(prefetch(batches, put=lambda images: images)):
        index, weights = order.index[:, step], order.weights[:, step]
        found = program.count(found, networks, memory, images, split.labels[index], weights)
        if step % IN_FLIGHT == 0:
            jax.block_until_ready(found)
    return np.asarray(found[0]) / len(split.labels)


def on_every_device(tree: Any) -> Any:
    """One copy for each local device; flax's `replicate` makes them all on the host first."""
    copy = jax.pmap(lambda tree, _: tree, in_axes=(None, 0))
    return copy(tree, np.zeros(jax.local_device_count()))


def local_order(order: Order) -> Order:
    """The part of this process, [devices, steps, b / devices]."""
    mine = for_devices(
        order,
        jax.local_device_count(),
        process=jax.process_index(),
        num_processes=jax.process_count(),
    )
    return Order(*(np.moveaxis(table, 1, 0) for table in mine))


def _host_stream(files, order, **options) -> Iterator:
    """Decoded images of every step, [devices, b, ...] for each view."""
    devices, steps, size = order.index.shape
    index = np.moveaxis(order.index, 0, 1).reshape(steps, devices * size)
    for views in stream(files, index, **options):
        yield tuple(view.reshape(devices, size, *view.shape[1:]) for view in views)


def _streamed(setup, order, epoch, place, random_crops=True):
    options = {"num_views": setup.method.num_views if random_crops else 1, "workers": setup.workers}
    images = _host_stream(
        setup.dataset.train.images,
        order,
        seed=setup.seed,
        epoch=epoch,
        first_step=place,
        random_crops=random_crops,
        **options,
    )
    return prefetch(images, put=jax.pmap(lambda views: views))
