"""The networks at the end of the epoch before, for methods that may return to them.

They are kept on the host and in checkpoints, and only while a stage's method asks for them, so a
step does not carry them along. The momentum and the count of steps go on.
"""

import dataclasses
from typing import Any

import jax
from flax.jax_utils import unreplicate

from spr_jax.devices import replicate
from spr_jax.methods.method import Memory, Method
from spr_jax.training.step import TrainState


def earlier_of(method: Method, state: TrainState) -> tuple[Any, ...]:
    """The networks and their average, on the host; nothing if the method never returns to them."""
    if method.goes_back is None:
        return ()
    return jax.device_get(unreplicate((state.networks, state.average)))


def settle(
    method: Method, state: TrainState, earlier: tuple[Any, ...], memory: Memory
) -> tuple[TrainState, tuple[Any, ...]]:
    """The state with which the next epoch begins, and the networks to which it may return.

    Args:
      method: that of the stage.
      state: after an epoch; replicated.
      earlier: at the end of the epoch before, as `earlier_of` has it.
      memory: after the epoch, as the method revised it.
    """
    if method.goes_back is not None and method.goes_back(memory):
        networks, average = replicate(earlier)
        state = dataclasses.replace(state, networks=networks, average=average)
    return state, earlier_of(method, state)
