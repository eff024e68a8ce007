"""Small-loss selection within a batch.

A selection is a mask, so that shapes stay static. It is made on each device among its own part of
the batch, never takes the rows that fill up a last batch, and carries no gradient.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from spr_jax.devices import AXIS
from spr_jax.methods.expect import expect
from spr_jax.methods.method import weighted_mean


def easiest(losses: Array, among: Array, share, *, round_up: bool = False) -> Array:
    """Mark the share of the examples `among` with the smallest losses, at least one; all [b].

    Of equal losses the first.
    """
    count = share * among.sum()  # of which 0.7 * 10 is not quite 7
    count = jnp.ceil(count - 1e-3) if round_up else jnp.floor(count + 1e-3)
    order = jnp.argsort(jnp.where(among, lax.stop_gradient(losses), jnp.inf))
    rank = jnp.argsort(order)
    return (rank < jnp.maximum(count, 1)) & among


def mean_over(chosen: Array, losses: Array, weights: Array, *, floor: float = 1e-6) -> Array:
    """sum_i chosen_i loss_i / max(sum_i chosen_i, floor B), over the batch of all devices."""
    weights = weights * chosen
    share = lax.pmean(weights.mean(), AXIS)  # of the batch, whose weights have mean 1
    return weighted_mean(losses, weights) / jnp.maximum(share, floor)


def forgetting(forget_rate: float, ramp: int) -> Callable:
    """epoch -> R = forget_rate min(epoch / ramp, 1), the share of a batch that is left out.

    Networks learn what is easy first, so little is left out while little is memorised. Epochs
    count from zero; the release of Co-teaching begins with R(1).
    """
    expect(0 <= forget_rate < 1, "forget_rate", forget_rate, "a share from 0 to below 1")
    expect(ramp >= 0, "ramp", ramp, "0 or more")
    return lambda epoch: forget_rate * jnp.minimum(epoch / ramp, 1) if ramp else forget_rate
