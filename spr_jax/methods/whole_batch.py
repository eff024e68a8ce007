"""The whole batch, as one of the devices that share it sees it.

Each device holds an equal part of the batch, one after the other. What is decided among examples
(ranks, partners) or for all of them at once (a box) is decided on the whole batch, so that it does
not depend on the number of devices.
"""

from typing import Any

from jax import Array, lax, random

from spr_jax.devices import AXIS


def whole(parts: Any) -> Any:
    """Gather the parts of all devices, [b, ...] each, to [B, ...]."""
    return lax.all_gather(parts, AXIS, tiled=True)


def own_part(values: Array) -> Array:
    """The rows of this device, [b, ...], of [B, ...]."""
    size = len(values) // lax.axis_size(AXIS)
    return lax.dynamic_slice_in_dim(values, lax.axis_index(AXIS) * size, size)


def common_key(key: Array) -> Array:
    """The key of the first device, on all of them: what is drawn from it is the same everywhere."""
    return random.wrap_key_data(lax.all_gather(random.key_data(key), AXIS)[0])
