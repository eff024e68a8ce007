"""Start a run in a folder: the one entrance to training, for commands and for the detector."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from spr_jax.training.config import check, resolve
from spr_jax.training.loop import train
from spr_jax.training.workdir import claim
from spr_jax.types import Dataset


def start(
    config,
    workdir: Path,
    *,
    dataset: Dataset | None = None,
    should_stop: Callable[[int], bool] = lambda step: False,
    report: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Check a config, claim the folder, and train there, resuming if it holds a checkpoint.

    Args:
      config: from `base_config.get_config`, with or without presets resolved.
      workdir: folder of the run.
      dataset: data set at hand, instead of the one that `config.dataset` names.
      should_stop: asked after every step; if it says so the run saves and raises `Stopped`.
      report: told the progress, a line per epoch.

    Returns:
      The summary of the run, as in summary.json.

    Raises:
      ValueError: in one sentence, what was given, what is expected, what to do.
      Stopped: if it was asked to stop; the same call resumes.
      FloatingPointError: if the loss or the weights are no longer finite.
    """
    resolve(config)
    check(config, has_dataset=dataset is not None)
    workdir, writes = Path(workdir).expanduser(), jax.process_index() == 0
    if workdir.parts[:1] == ("gs:",):  # a path drops one of the slashes
        raise ValueError(
            f"workdir is {workdir}, an address of a bucket; expected a folder: mount the bucket "
            "(docs/tpu.md)."
        )
    with claim(workdir, config, writes=writes):
        if writes:
            report(f"Writing to {workdir}.")
        return train(config, workdir, dataset=dataset, should_stop=should_stop, report=report)
