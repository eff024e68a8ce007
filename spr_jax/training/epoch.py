"""One epoch on all devices: steps, records in the order of the data set, test accuracy.

The train state is replicated, a copy on every device; memory, splits and records are host arrays
that are replicated or spread where they are used.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from spr_jax.devices import replicate, spread
from spr_jax.methods.method import Epoch, Memory, Record
from spr_jax.training.batches import Visits, draw_visits, prefetch, stream, visits_on_devices
from spr_jax.training.run import Run, ScheduledStage
from spr_jax.training.step import Program, TrainState, record_shapes
from spr_jax.types import Split

# Steps in flight before the host waits. With 32, XLA's CPU client blocks one device while the
# others wait for it in an all-reduce: deadlock.
IN_FLIGHT = 8


class Progress(NamedTuple):
    """Position of a run, and all that a checkpoint holds."""

    epoch: int
    state: TrainState  # replicated
    memory: Memory
    best: dict[str, dict]  # metric -> row of the epoch that is best on it
    buffers: dict[str, Array]  # [devices, steps, b, ...], the record of this epoch so far
    losses: tuple[Array | np.ndarray, ...] = ()  # of each step of this epoch
    earlier: tuple[Any, ...] = ()  # networks that the method may return to; on the host

    @property
    def steps_taken(self) -> int:
        return len(self.losses)


def data_on_devices(run: Run) -> tuple[Array | None, Array]:
    """Copy images (None if streamed) and labels to every local device."""
    images = None if run.is_streamed else np.asarray(run.dataset.train.images)
    return replicate((images, np.asarray(run.dataset.train.labels, np.int32)))


def empty_buffers(
    run: Run,
    stage: ScheduledStage,
    state: TrainState,
    memory: Memory,
    *,
    of_scan: bool = False,
    inner: bool = False,
) -> dict[str, Array]:
    """Room for the record of an epoch, or of an eval-mode pass; `state` is replicated."""
    devices = jax.local_device_count()
    size = run.batch_size // (devices * jax.process_count())
    if of_scan:
        stage = stage._replace(method=stage.method._replace(record_from="scan"))
    shapes = record_shapes(run, stage, state, replicate(memory), size, inner)

    def zeros(leaf):
        return np.broadcast_to(
            np.zeros((), leaf.dtype), (devices, run.steps_per_epoch, *leaf.shape[1:])
        )

    return spread(jax.tree.map(zeros, shapes))


def train_epoch(
    program: Program,
    run: Run,
    progress: Progress,
    data: tuple[Array | None, Array],  # from `data_on_devices`
    *,
    on_step: Callable[[int], bool] = lambda taken: False,  # True: stop after this step
) -> Progress:
    """Take the remaining steps of an epoch."""
    epoch, state, buffers = progress.epoch, progress.state, progress.buffers
    stage, losses = run.stage_at(epoch), list(progress.losses)
    visits = visits_on_devices(run.visits(epoch))
    tables, memory = _on_devices(visits), replicate(progress.memory)
    keys = (run.key("augment", epoch), run.key("flip"), run.key("step", epoch))
    images, labels = data
    streamed = _decode(run, stage, visits, epoch, len(losses)) if run.is_streamed else None
    number = np.int32(epoch - stage.first)
    kinds = run.steps_of(stage, epoch)
    for place in range(len(losses), run.steps_per_epoch):
        images = images if streamed is None else next(streamed)
        state, buffers, loss = program.steps[kinds[place]](
            state, buffers, memory, images, labels, *tables, np.int32(place), number, keys
        )
        losses.append(loss)
        if len(losses) > IN_FLIGHT:
            jax.block_until_ready(losses[-IN_FLIGHT])
        if on_step(len(losses)):
            break
    return progress._replace(state=state, buffers=buffers, losses=tuple(losses))


def scan_epoch(
    program: Program, run: Run, progress: Progress, data: tuple[Array | None, Array]
) -> Progress:
    """Record an eval-mode pass over the training data, if the method wants that."""
    if run.stage_at(progress.epoch).method.record_from != "scan":
        return progress
    return progress._replace(buffers=_scan(program, run, progress, data, progress.buffers))


def _scan(program, run, progress, data, buffers, inner=False):
    """Fill the buffers with what the first network has in eval mode."""
    stage, visits = run.stage_at(progress.epoch), visits_on_devices(run.visits(progress.epoch))
    index, _ = _on_devices(visits)
    streamed = None
    if run.is_streamed:
        streamed = _decode(run, stage, visits, progress.epoch, 0, random_crops=False)
    for place in range(run.steps_per_epoch):
        images = data[0] if streamed is None else next(streamed)
        networks = progress.state.networks
        buffers = program.scan(networks, buffers, images, index, np.int32(place), inner)
        if place % IN_FLIGHT == 0:
            jax.block_until_ready(buffers)
    return buffers


def finished_epoch(
    program: Program, run: Run, progress: Progress, data: tuple[Array | None, Array]
) -> Epoch:
    """Gather the record of an epoch for the method's `revise`; on one device."""
    visits, labels = run.visits(progress.epoch), np.asarray(run.dataset.train.labels, np.int32)
    position = np.full(len(labels), visits.index.size, np.int32)
    position[visits.index[visits.valid]] = np.flatnonzero(visits.valid)
    stage = run.stage_at(progress.epoch)
    if stage.method.record_from == "inputs":
        record: Record = {"features": run.dataset.train.images}
    else:
        record = record_so_far(program, run, progress)

    def scan(averaged=False, inner=False):
        state = progress.state
        if averaged:
            state = state.replace(networks=state.evaluated)
        empty = empty_buffers(run, stage, state, progress.memory, of_scan=True, inner=inner)
        filled = _scan(program, run, progress._replace(state=state), data, empty, inner)
        return record_so_far(program, run, progress._replace(buffers=filled))

    return Epoch(
        number=progress.epoch - stage.first,
        labels=labels,
        record=record,
        visited=position < visits.index.size,
        position=position,
        scan=scan,
    )


def record_so_far(program: Program, run: Run, progress: Progress) -> Record:
    """Gather the record in the order of the data set, also in the middle of an epoch."""
    tables = _on_devices(visits_on_devices(run.visits(progress.epoch)))
    return jax.tree.map(lambda leaf: leaf[0], program.collect(progress.buffers, *tables))


def buffers_from_record(run: Run, record: Record, epoch: int) -> dict[str, Array]:
    """Invert `record_so_far`, for any number of devices."""
    index = np.moveaxis(visits_on_devices(run.visits(epoch)).index, 1, 0)
    return {name: spread(np.asarray(leaf)[index]) for name, leaf in record.items()}


def accuracy(
    program: Program,
    state: TrainState,  # replicated
    memory: Memory,
    split: Split,
    batch_size: int,
) -> tuple[float, ...]:
    """Top-1 and top-5 accuracy on a split, then top-1 of the predictions beside the method's."""
    visits = draw_visits(len(split.labels), batch_size, seed=0, epoch=0, shuffle=False)
    visits = visits_on_devices(visits)
    if isinstance(split.images, np.ndarray):
        batches = (split.images[rows] for rows in visits.index)
    else:
        batches = (views[0] for views in stream(split.images, visits.index, random_crops=False))
    memory = replicate(memory)
    hits = replicate(jnp.zeros(program.num_counts, int))
    for step, images in enumerate(prefetch(batches, put=lambda images: images)):
        labels = split.labels[visits.index[step]]
        hits = program.count(hits, state.evaluated, memory, images, labels, visits.weights[step])
        if step % IN_FLIGHT == 0:
            jax.block_until_ready(hits)
    return tuple((np.asarray(hits[0]) / len(split.labels)).tolist())


def _on_devices(visits: Visits) -> tuple[Array, Array]:
    """Put the tables of visits on their devices, [devices, steps, b / devices]."""
    return spread((np.moveaxis(visits.index, 1, 0), np.moveaxis(visits.weights, 1, 0)))


def _decode(run, stage, visits, epoch, first_step, random_crops=True) -> Iterator:
    """Decode the images of every step, [devices, b / devices, ...] per view, on their devices."""
    images = stream(
        run.dataset.train.images,
        visits.index,
        seed=run.seed,
        epoch=epoch,
        num_views=stage.method.num_views if random_crops else 1,
        random_crops=random_crops,
        first_step=first_step,
        workers=run.workers,
    )
    return prefetch(images, put=spread)
