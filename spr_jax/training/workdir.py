"""The folder of a run: locked while it runs, and refused to any other run."""

import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from spr_jax.io.atomic import check_folder, write_json
from spr_jax.training.old_configs import complete, differences, modernize
from spr_jax.training.provenance import commit, machine, versions

BEGUN = "noise.npz"  # the first file a run writes, once its data is loaded
PACKAGES = ("jax", "flax", "optax", "orbax-checkpoint", "numpy")


@contextlib.contextmanager
def claim(workdir: Path, config, *, writes: bool = True) -> Iterator[None]:
    """Lock the run folder; refuse it if another run's config is stored there.

    A folder belongs to a run once its data was loaded, so that a command that failed earlier can be
    corrected and rerun.
    """
    _refuse_others(workdir, config)
    if not writes:
        yield
        return
    workdir.mkdir(parents=True, exist_ok=True)
    with _locked(workdir):
        _refuse_others(workdir, config)
        if not (workdir / BEGUN).exists():
            origin = {"commit": commit(), "machine": machine(), "versions": versions(*PACKAGES)}
            write_json(workdir / "config.json", as_json(config))
            write_json(workdir / "origin.json", origin)
        yield


def read_config(workdir: Path) -> ConfigDict:
    """Read the config of a run, of this version or an earlier one; newer fields at their defaults.

    Raises:
      ValueError: if `workdir` is not the folder of a run.
    """
    try:
        stored = json.loads((workdir / "config.json").read_text())
    except OSError as error:
        raise ValueError(f"{workdir} is not the folder of a run: {error.strerror}.") from None
    return ConfigDict(complete(modernize(stored)))


def as_json(config) -> dict[str, Any]:
    """A config as its config.json has it."""
    return json.loads(config.to_json())


def _refuse_others(workdir, config):
    path = workdir / "config.json"
    # Listed before the config is looked for: the first process of a run may write it meanwhile.
    others = [file for file in check_folder(workdir).glob("*") if file.name[0] != "."]
    if not path.exists():
        if others:
            raise ValueError(f"{workdir} is not empty and holds no run; give another folder.")
    elif (workdir / BEGUN).exists():
        for field, their, mine in differences(json.loads(path.read_text()), as_json(config)):
            raise ValueError(
                f"{workdir} belongs to a run with {field}={their!r}, and this one has {mine!r}; "
                "give another folder, or delete that one."
            )


@contextlib.contextmanager
def _locked(workdir):
    """Hold a lock: two runs in one folder would overwrite each other."""
    with open(workdir / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"Another process is running in {workdir}; wait for it, or give another folder."
            ) from None
        yield
