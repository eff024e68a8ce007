"""The devices a solve is spread over."""

import contextlib

import jax
from jax.sharding import Mesh

from spr_jax.cores import num_cores

AXIS = "devices"  # of a training step, over which it is pmapped


def device_mesh(devices=None) -> Mesh:
    """All local devices in a row: pieces, or the rows of a whole data set, spread over them."""
    devices = devices or jax.local_devices()
    return jax.make_mesh(
        (len(devices),), ("shards",), (jax.sharding.AxisType.Auto,), devices=devices
    )


def one_device_per_core(limit: int = 8, batch_size: int = 0) -> None:
    """Let a machine without accelerators work on all cores; call before JAX is first used.

    XLA runs the small steps of a path, and many convolutions, on one core per device. If batches
    are to be shared out, the number divides their size. Accelerators are not affected. Where JAX is
    in use already, as in a notebook, its devices stay as they are.
    """
    most = min(num_cores(), limit)
    devices = next(number for number in range(most, 0, -1) if batch_size % number == 0)
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", devices)
