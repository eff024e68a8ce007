"""Training with noisy labels: config, steps, epochs, selection, checkpoints, logs."""

from spr_jax.training.launch import start
from spr_jax.training.loop import Stopped

__all__ = ["Stopped", "start"]
