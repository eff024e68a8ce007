"""Batches as a pure function of (seed, epoch, step), for any number of devices and processes.

The visits of an epoch are drawn at once as a table of dataset indices, one row per step; a resumed
run enters the table at its step. Processes and devices own columns of it. Small data sets live on
the device as uint8; files are decoded by `stream` while the device works.
"""

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import numpy as np
from absl import flags

from spr_jax.devices import num_cores


class Visits(NamedTuple):
    """The examples that an epoch visits, [steps, b]; for devices, [steps, devices, b / devices]."""

    index: np.ndarray  # type: ignore[assignment]  # of the tuple, which nobody calls
    weights: np.ndarray  # 0 for padding in the last batch, mean 1 in a step

    @property
    def valid(self) -> np.ndarray:
        return self.weights > 0


def draw_visits(
    members: int | np.ndarray,  # number of examples, or the indices of those to visit
    batch_size: int,
    *,
    seed: int,
    epoch: int,
    shuffle: bool = True,
    drop_last: bool = False,
) -> Visits:
    """Visit all members once, in an order drawn from (seed, epoch).

    An incomplete last batch is dropped, as the released code does, or padded with the first members
    at weight 0; the others weigh more, so that mean(weights * loss) over a batch, or over the parts
    that devices have of it, is the mean over the examples that count.
    """
    members = np.asarray(members)
    if members.ndim == 0:
        members = np.arange(members.item())
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
    return Visits(index.astype(np.int32), weights.astype(np.float32))


def num_steps(count: int, batch_size: int, *, drop_last: bool = False) -> int:
    """Number of steps in an epoch over this many examples."""
    return count // batch_size if drop_last else -(-count // batch_size)


def visits_on_devices(visits: Visits) -> Visits:
    """The part of this process, [steps, devices, b / devices]."""
    return part_of_process(
        visits,
        jax.local_device_count(),
        process=jax.process_index(),
        num_processes=jax.process_count(),
    )


def part_of_process(
    visits: Visits, num_devices: int, *, process: int = 0, num_processes: int = 1
) -> Visits:
    """The part of one process, [steps, devices, b / devices]; it has `num_devices` of its own."""
    steps, batch_size = visits.index.shape
    everywhere = num_devices * num_processes
    if batch_size % everywhere:
        raise ValueError(
            f"Batch size {batch_size} does not divide over {everywhere} devices; give a multiple."
        )
    shape = (steps, num_processes, num_devices, batch_size // everywhere)
    return Visits(*(table.reshape(shape)[:, process] for table in visits))


def stream(
    files,  # datasets.images.ImageFiles
    index: np.ndarray,  # [steps, ...]
    *,
    seed: int = 0,
    epoch: int = 0,
    num_views: int = 1,
    random_crops: bool = True,
    first_step: int = 0,
    workers: int = 0,
) -> Iterator[tuple[np.ndarray, ...]]:
    """Decode the images of each step, uint8 [..., size, size, 3] per view: random or central crops.

    grain decodes ahead: in threads, which is enough for Pillow on a few cores, or in processes.
    A random crop depends on (seed, epoch, index) alone.
    """
    import grain  # a second to import

    def read(step):
        chosen = index[first_step + step]
        images = np.empty((num_views, *chosen.shape, *files.shape[1:]), np.uint8)
        for row in np.ndindex(chosen.shape):
            example = int(chosen[row])
            if random_crops:
                crops = files.random_crops(example, num_views, (seed, epoch, example))
            else:
                crops = files[example]
            images[:, *row] = crops
        return tuple(images)

    if workers and not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()  # grain's processes read its flags
    threads = min(max(num_cores() // max(workers, 1), 1), 16)  # each thread holds a batch
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads + 1)
    batches = grain.MapDataset.range(len(index) - first_step).map(read).to_iter_dataset(options)
    if workers:
        batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    return iter(batches)


def prefetch(batches: Iterable, put=jax.device_put, ahead: int = 2) -> Iterator:
    """Send batches to the device before they are needed; `put` returns at once."""
    batches = iter(batches)
    waiting: deque = deque()
    for batch in itertools.islice(batches, ahead):
        waiting.append(put(batch))
    while waiting:
        yield waiting.popleft()
        waiting.extend(map(put, itertools.islice(batches, 1)))
