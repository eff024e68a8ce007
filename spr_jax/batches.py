"""Batches as a pure function of (seed, epoch, step), for any number of devices and processes.

An epoch's order is drawn at once as a table of dataset indices, a row for each step; a resumed run
enters the table at its step. Processes and devices own columns of it. Small data sets live on the
device as uint8; files are decoded by `stream` while the device works. `make_batch` comes after both
and is traced into the training step.
"""

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import numpy as np
from absl import flags
from jax import Array

from spr_jax import augment
from spr_jax.cores import num_cores
from spr_jax.types import Batch, Dataset


class Order(NamedTuple):
    """Which examples an epoch visits."""

    index: np.ndarray  # [steps, b] or, for devices, [steps, devices, b / devices]
    weights: np.ndarray  # the same shape: 0 where the last batch is filled up, mean 1 in a step

    @property
    def valid(self) -> np.ndarray:
        return self.weights > 0


def epoch_order(
    members: int | np.ndarray,  # number of examples, or the indices of those to visit
    batch_size: int,
    *,
    seed: int,
    epoch: int,
    shuffle: bool = True,
    drop_last: bool = False,
) -> Order:
    """All members once, in an order drawn from (seed, epoch).

    A last batch that is not full is dropped, as the released code does, or filled up with the
    first ones again at weight 0; the others weigh more, so that mean(weights * loss) over a batch,
    or over the parts that devices have of it, is the mean over the examples that count.
    """
    members = np.arange(members) if np.ndim(members) == 0 else np.asarray(members)
    if batch_size < 1 or len(members) < (batch_size if drop_last else 1):
        raise ValueError(
            f"A batch of {batch_size} from {len(members)} examples leaves no step in an epoch; "
            "give a batch size from 1 to the number of examples."
        )
    if shuffle:
        members = np.random.default_rng((seed, epoch)).permutation(members)
    full = len(members) // batch_size * batch_size
    count = full if drop_last else -(-len(members) // batch_size) * batch_size
    index = np.resize(members, count).reshape(-1, batch_size)
    valid = (np.arange(count) < len(members)).reshape(-1, batch_size)
    weights = valid / valid.mean(axis=1, keepdims=True)
    return Order(index.astype(np.int32), weights.astype(np.float32))


def for_devices(
    order: Order, num_devices: int, *, process: int = 0, num_processes: int = 1
) -> Order:
    """The part of one process, [steps, devices, b / devices]; `num_devices` are all its own."""
    steps, batch_size = order.index.shape
    everywhere = num_devices * num_processes
    if batch_size % everywhere:
        raise ValueError(
            f"Batch size {batch_size} does not divide over {everywhere} devices; give a multiple."
        )
    shape = (steps, num_processes, num_devices, batch_size // everywhere)
    return Order(*(table.reshape(shape)[:, process] for table in order))


def make_batch(
    images: tuple[Array, ...],  # uint8 [b, h, w, channels], one for each view
    labels: Array,  # [N]
    index: Array,  # [b]
    weights: Array,  # [b]
    key: Array,  # of the epoch
    *,
    dataset: Dataset,
) -> Batch:
    """Augment the images of one step; traced.

    From arrays on the device they are `(images[index],) * num_views`, from files what `stream`
    gives.
    """
    views = augment.views(
        images,
        index,
        key,
        augmentation=dataset.augmentation,
        mean=dataset.mean,
        std=dataset.std,
    )
    return Batch(views, labels[index], index, weights)


def stream(
    files,  # datasets.images.ImageFiles
    index: np.ndarray,  # [steps, b]
    *,
    seed: int = 0,
    epoch: int = 0,
    num_views: int = 1,
    random_crops: bool = True,
    first_step: int = 0,
    workers: int = 0,
) -> Iterator[tuple[np.ndarray, ...]]:
    """The images of each step, uint8 [b, size, size, 3] for each view: random or central crops.

    Decoded ahead by grain: in threads, which is enough for Pillow on a few cores, or in processes.
    A random crop depends on (seed, epoch, index) alone.
    """
    import grain  # a second to import

    def read(step):
        chosen = index[first_step + step]
        images = np.empty((num_views, *chosen.shape, *files.shape[1:]), np.uint8)
        for place, example in enumerate(chosen.tolist()):
            if random_crops:
                images[:, place] = files.random_crops(example, num_views, (seed, epoch, example))
            else:
                images[:, place] = files[example]
        return tuple(images)

    if workers and not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()  # grain's processes read its flags
    threads = min(max(num_cores() // max(workers, 1), 1), 16)  # each holds a batch
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads + 1)
    batches = grain.MapDataset.range(len(index) - first_step).map(read).to_iter_dataset(options)
    if workers:
        batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    return iter(batches)


def prefetch(batches: Iterable, put=jax.device_put, ahead: int = 2) -> Iterator:
    """Send batches to the device before they are asked for; `put` returns at once."""
    batches, waiting = iter(batches), deque()
    for batch in itertools.islice(batches, ahead):
        waiting.append(put(batch))
    while waiting:
        yield waiting.popleft()
        waiting.extend(map(put, itertools.islice(batches, 1)))
