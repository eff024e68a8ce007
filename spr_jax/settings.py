"""A config before it is run: presets resolved, mistakes named, its folder claimed."""

import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from spr_jax.backbones import BACKBONES
from spr_jax.datasets import DATASETS
from spr_jax.files import check_folder
from spr_jax.methods import METHODS
from spr_jax.metrics import write_json
from spr_jax.noise import KINDS
from spr_jax.origin import commit, machine, versions
from spr_jax.registry import suggestion

SAVED = 75  # exit status of a run that was stopped and can go on: try again
PRESETS = ("paper", "released", "exact")
BEGUN = "noise.npz"  # what a run writes first, when its data is there
CHANGE_NO_RESULT = ("dataset.data_dir", "workers", "compilation_cache", "checkpoint")


def resolve(config) -> None:
    """Fill in what the preset decides and the user left open."""
    _check_choice("preset", config.preset, PRESETS)
    for field, by_preset in config.by_preset.items():
        section, name = field.split("/")
        if config[section][name] is None:
            config[section][name] = by_preset[config.preset]


def check(config) -> None:
    """Fail on what cannot work, before anything is loaded."""
    _check_choice("dataset.name", config.dataset.name, DATASETS)
    _check_choice("backbone.name", config.backbone.name, BACKBONES)
    _check_choice("method.name", config.method.name, METHODS)
    _check_choice("noise.kind", config.noise.kind, KINDS)
    _check_choice("dtype", config.dtype, ("float32", "bfloat16"))
    _check_choice("optimizer.schedule", config.optimizer.schedule, ("cosine", "constant"))
    counts = {name: config[name] for name in ("epochs", "batch_size", "eval_batch_size")}
    counts |= {f"checkpoint.{name}": config.checkpoint[name] for name in ("every", "keep")}
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; expected 1 or more.")
    shares = {name: config[name] for name in ("ema", "validation_share")}
    for name, value in {**shares, "noise.rate": config.noise.rate}.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}; expected a share from 0 to below 1.")
    if config.patience and not config.validation_share:
        raise ValueError("patience needs a validation_share; it waits for a better accuracy there.")
    devices = jax.device_count()
    for name in ("batch_size", "eval_batch_size"):
        if config[name] % devices:
            raise ValueError(f"{name} {config[name]} does not divide over {devices} devices.")


def _check_choice(field, value, known):
    if value not in known:
        raise ValueError(f"{field} is {value!r}; {suggestion(value, known)}")


@contextlib.contextmanager
def claim(workdir: Path, config, *, writes: bool = True) -> Iterator[None]:
    """Have the folder of a run for oneself; refuse one that belongs to another run.

    It belongs to a run whose data was loaded, so that a command that failed before can be mended.
    """
    _refuse_others(workdir, config)
    if not writes:
        yield
        return
    workdir.mkdir(parents=True, exist_ok=True)
    with _locked(workdir):
        _refuse_others(workdir, config)
        if not (workdir / BEGUN).exists():
            packages = ("jax", "flax", "optax", "orbax-checkpoint", "numpy")
            origin = {"commit": commit(), "machine": machine(), "versions": versions(*packages)}
            write_json(workdir / "config.json", _plain(config))
            write_json(workdir / "origin.json", origin)
        yield


def _refuse_others(workdir, config):
    path = workdir / "config.json"
    if not path.exists():
        if any(file.name[0] != "." for file in check_folder(workdir).glob("*")):
            raise ValueError(f"{workdir} holds other files and no run; give another --workdir.")
    elif (workdir / BEGUN).exists():
        theirs = json.loads(path.read_text())
        for field, their, mine in _differences(theirs, _plain(config)):
            raise ValueError(
                f"{workdir} belongs to a run with {field}={their!r}, and this one has {mine!r}; "
                "give another --workdir, or delete that one."
            )


@contextlib.contextmanager
def _locked(workdir):
    """Two runs in one folder would overwrite each other."""
    with open(workdir / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"Another process is running in {workdir}; wait for it, or give another --workdir."
            ) from None
        yield


def _plain(config) -> dict[str, Any]:
    return json.loads(config.to_json())


def _differences(theirs, mine, prefix=""):
    """(field, their value, mine) of every difference that may change a result."""
    for name in sorted({*theirs, *mine}):
        field, values = prefix + name, (theirs.get(name), mine.get(name))
        if field.startswith(CHANGE_NO_RESULT) or values[0] == values[1]:
            continue
        if all(isinstance(value, dict) for value in values):
            yield from _differences(*values, f"{field}.")
        else:
            yield field, *values
