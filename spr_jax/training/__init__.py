"""Training with noisy labels: config, steps, epochs, selection, checkpoints, logs."""

from spr_jax.io.signals import Stopped
from spr_jax.training.launch import start

__all__ = ["Stopped", "start"]
