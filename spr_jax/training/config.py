"""A config before it is run: presets resolved, mistakes named."""

import jax

from spr_jax import augment
from spr_jax.backbones import BACKBONES
from spr_jax.datasets import DATASETS
from spr_jax.methods import METHODS
from spr_jax.noise import KINDS
from spr_jax.registry import build, suggestion
from spr_jax.training.optim import SCHEDULES
from spr_jax.training.presets import resolve

__all__ = ["check", "resolve"]


def check(config, *, has_dataset: bool = False) -> None:
    """Fail on what cannot work, before anything is loaded.

    Args:
      config: resolved.
      has_dataset: the data set is at hand; `config.dataset` need not name one.

    Raises:
      ValueError: in one sentence, the field, its value and what is expected.
    """
    if not has_dataset:
        _check_choice("dataset.name", config.dataset.name, DATASETS)
    _check_choice("backbone.name", config.backbone.name, BACKBONES)
    build(BACKBONES, config.backbone)  # refuses options that make no network
    _check_choice("method.name", config.method.name, METHODS)
    _check_choice("noise.kind", config.noise.kind, KINDS)
    _check_choice("dtype", config.dtype, ("float32", "bfloat16"))
    _check_choice("optimizer.schedule", config.optimizer.schedule, SCHEDULES)
    _check_choice("tta", config.tta, augment.TEST_VIEWS)
    if config.augmentation:
        _check_choice("augmentation", config.augmentation, augment.AUGMENTATIONS)
    counts = {name: config[name] for name in ("epochs", "batch_size", "eval_batch_size")}
    counts |= {f"checkpoint.{name}": config.checkpoint[name] for name in ("every", "keep")}
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; expected 1 or more.")
    fractions = {name: config[name] for name in ("ema", "validation_share")}
    for name, value in {**fractions, "noise.rate": config.noise.rate}.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}; expected a fraction from 0 to below 1.")
    if config.patience and not config.validation_share:
        raise ValueError(
            f"patience is {config.patience} and validation_share is 0; set it above 0, since "
            "patience watches the validation accuracy."
        )
    devices = jax.device_count()
    for name in ("batch_size", "eval_batch_size"):
        if config[name] % devices:
            raise ValueError(
                f"{name} is {config[name]}; expected a multiple of the {devices} devices."
            )


def _check_choice(field, value, known):
    if value not in known:
        raise ValueError(f"{field} is {value!r}; {suggestion(value, known)}")
