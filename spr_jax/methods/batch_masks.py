"""Small-loss masks within a batch.

A selection is a mask, so that shapes stay static. Devices rank the whole batch together; padding
rows of a last batch are never selected, and no gradient flows.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from spr_jax.devices import AXIS
from spr_jax.methods.method import expect, weighted_mean
from spr_jax.methods.whole_batch import own_part, whole


def easiest(losses: Array, among: Array, share, *, round_up: bool = False) -> Array:
    """Mark the share of the examples `among` with the smallest losses, at least one; all [b].

    The share is of the batch of all devices. The first of equal losses.
    """
    losses, among = whole((lax.stop_gradient(losses), among))
    count = share * among.sum()  # 0.7 * 90 < 63 in floating point
    count = jnp.ceil(count - 1e-3) if round_up else jnp.floor(count + 1e-3)
    order = jnp.argsort(jnp.where(among, losses, jnp.inf))
    rank = jnp.argsort(order)
    return own_part((rank < jnp.maximum(count, 1)) & among)


def mean_over(chosen: Array, losses: Array, weights: Array, *, floor: float = 1e-6) -> Array:
    """sum_i chosen_i loss_i / max(sum_i chosen_i, floor B), over the batch of all devices."""
    weights = weights * chosen
    share = lax.pmean(weights.mean(), AXIS)  # of the batch, whose weights have mean 1
    return weighted_mean(losses, weights) / jnp.maximum(share, floor)


def forgetting(forget_rate: float, ramp: int) -> Callable:
    """Make epoch -> R = forget_rate min(epoch / ramp, 1), the fraction of a batch left out.

    Networks learn what is easy first, so little is left out while little is memorized. Epochs
    count from zero; the released Co-teaching begins with R(1).
    """
    expect(0 <= forget_rate < 1, "forget_rate", forget_rate, "a fraction from 0 to below 1")
    expect(ramp >= 0, "ramp", ramp, "0 or more")
    return lambda epoch: forget_rate * jnp.minimum(epoch / ramp, 1) if ramp else forget_rate
