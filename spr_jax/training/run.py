"""A run as a value: its data, its stages, and its randomness as a function of (seed, epoch)."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import optax
from jax import Array, random

from spr_jax.methods import Method
from spr_jax.noise import Manifest
from spr_jax.training.batches import Visits, draw_visits, num_steps
from spr_jax.types import Dataset, Split

# Of randomness; the order is the key.
PURPOSES = ("init", "augment", "step", "revise", "kind", "flip")


class ScheduledStage(NamedTuple):
    """A stage of the method with its place in the run."""

    method: Method
    optimizer: optax.GradientTransformation
    schedule: Callable  # step since the optimizer was fresh -> learning rate
    first: int = 0  # epoch
    fresh_since: int = 0  # epoch at which the networks were initialized
    optimizer_since: int = 0  # epoch at which the optimizer was
    begins_as_the_run: bool = False  # with the weights that the run began with


class Run(NamedTuple):
    """Everything that stays the same during a run."""

    dataset: Dataset
    stages: tuple[ScheduledStage, ...]  # one, unless the method has several
    batch_size: int  # global, over all devices of all processes
    seed: int
    drop_last: bool = False
    ema: float = 0.0
    tta: str = "none"
    workers: int = 0  # processes that decode streamed images
    manifest: Manifest | None = None
    validation: Split | None = None  # held out of the training data, with its noise
    members: np.ndarray | None = None  # [N], indices of the training data in the data set
    weights: np.ndarray | None = None  # [N], positive: how much each example counts; None: equally
    widths: tuple[int, ...] = ()  # of the backbone's layers, if the method asks for them

    @property
    def is_streamed(self) -> bool:
        return not isinstance(self.dataset.train.images, np.ndarray)

    @property
    def steps_per_epoch(self) -> int:
        count = len(self.dataset.train.labels)
        return num_steps(count, self.batch_size, drop_last=self.drop_last)

    def visits(self, epoch: int) -> Visits:
        visits = draw_visits(
            len(self.dataset.train.labels),
            self.batch_size,
            seed=self.seed,
            epoch=epoch,
            drop_last=self.drop_last,
        )
        if self.weights is None:
            return visits
        weights = visits.weights * (self.weights / self.weights.mean())[visits.index]
        return visits._replace(weights=weights.astype(np.float32))

    def key(self, purpose: str, epoch: int = 0) -> Array:
        """PRNG key for (purpose, epoch); purposes have independent streams."""
        key = random.fold_in(random.key(self.seed), PURPOSES.index(purpose))
        return random.fold_in(key, epoch)

    def stage_at(self, epoch: int) -> ScheduledStage:
        return [stage for stage in self.stages if stage.first <= epoch][-1]

    def steps_of(self, stage: ScheduledStage, epoch: int) -> list[int]:
        """For each step of the epoch, which of the method's steps it is."""
        draws = np.asarray(random.uniform(self.key("kind", epoch), (self.steps_per_epoch,)))
        choose = stage.method.choose_step
        return [choose(epoch - stage.first, draw) for draw in draws]
