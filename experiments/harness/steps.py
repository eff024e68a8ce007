"""Training outside a run, in blocks of steps, for benchmarks: the only user of the loop's parts."""

from collections.abc import Callable
from typing import Any

import jax
from ml_collections import ConfigDict
from tqdm import tqdm

from spr_jax.training import loop
from spr_jax.training.build import make_run
from spr_jax.training.checkpoint import Checkpoints
from spr_jax.training.epoch import data_on_devices, record_so_far, train_epoch
from spr_jax.training.step import make_program


class Steps:
    """The first stage of a run, which `take` advances by a block of steps.

    Args:
      config: of the run, with nothing left open.
      data: the `data` of another one, to keep the images of a data set on the devices only once.
      change_loss: what is done to the method's first loss function, if anything.
    """

    def __init__(
        self, config: ConfigDict, data: Any = None, change_loss: Callable | None = None
    ) -> None:
        run = make_run(config)
        if change_loss:
            stage = run.stages[0]
            steps = (change_loss(stage.method.steps[0]),)
            stage = stage._replace(method=stage.method._replace(steps=steps))
            run = run._replace(stages=(stage,))
        self.run = run
        self.data = data or data_on_devices(run)
        self.program = make_program(run, run.stages[0])
        self.progress = loop.begin(config, run)

    @property
    def per_epoch(self) -> int:
        return self.run.steps_per_epoch

    def take(self, num_steps: int, epoch: int, *, with_bar: bool = False) -> None:
        """Take the first steps of an epoch, and wait until they are done."""
        with tqdm(disable=not with_bar, leave=False) as bar:
            stop = lambda taken: (bar.update(), taken == num_steps)[1]  # noqa: E731
            progress = self.progress._replace(epoch=epoch)
            parts = (self.program, self.run, progress, self.data)
            progress = jax.block_until_ready(train_epoch(*parts, on_step=stop))
        self.progress = progress._replace(losses=())

    def collect(self, epoch: int) -> None:
        """Collect the record of an epoch in the order of the data set."""
        progress = self.progress._replace(epoch=epoch)
        jax.block_until_ready(record_so_far(self.program, self.run, progress))

    def save(self, checkpoints: Checkpoints, epoch: int) -> None:
        """Write a checkpoint, and wait until it is written."""
        loop.save(checkpoints, self.run, self.program, self.progress._replace(epoch=epoch + 1))
        checkpoints.manager.wait_until_finished()
