"""SR (Zhou et al., ICCV 2021, https://arxiv.org/abs/2108.00192): push outputs towards one-hot.

    loss(z', y) + lambda sum_k p'_k^p,    z' = z / tau or z / (|z| tau),    p' = softmax(z')

lambda is multiplied by `growth` every few epochs. The most probable class of z' is that of z, so
predictions need none of this.
"""

from functools import partial

import jax.numpy as jnp
from jax import Array, lax

from spr_jax.losses import LOSSES, generalized_cross_entropy, sparse_penalty
from spr_jax.methods.method import Method, expect, nothing_to_remember, weighted_mean


def sharpen(logits: Array, temperature: float, normalize: bool) -> Array:
    """Divide by the temperature; before that, if asked to, make each row a unit vector."""
    if normalize:
        squares = jnp.sum(logits**2, axis=1, keepdims=True)
        logits = logits * lax.rsqrt(
            jnp.maximum(squares, 1e-24)
        )  # so that a zero row has a gradient
    return logits / temperature


def sr(
    base: str = "ce",
    temperature: float = 0.5,
    normalize: bool = True,
    power: float = 0.1,
    weight: float = 1.2,
    growth: float = 1.03,
    grow_every: int = 1,
    q: float = 0.01,
) -> Method:
    """Sparse regularization: sharp outputs and a growing penalty make any loss robust.

    Args:
      base: the loss, "ce", "focal" or "gce".
      temperature: tau.
      normalize: divide logits by their norm first.
      power: exponent p of the penalty.
      weight: lambda in the first epoch.
      growth: factor by which lambda grows.
      grow_every: epochs between two growths.
      q: parameter of "gce".
    """
    bases = {"ce": LOSSES["ce"], "focal": LOSSES["focal"]}
    bases["gce"] = partial(generalized_cross_entropy, q=q)
    expect(base in bases, "base", base, f"one of {tuple(bases)}")
    expect(temperature > 0, "temperature", temperature, "a number above 0")
    expect(power > 0, "power", power, "a number above 0")
    expect(weight >= 0, "weight", weight, "0 or more")
    expect(growth > 0, "growth", growth, "a number above 0")
    expect(grow_every >= 1, "grow_every", grow_every, "1 or more")
    expect(0 < q <= 1, "q", q, "a number above 0 and at most 1")

    def weight_at(epoch):
        return weight * growth ** (epoch // grow_every)

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        sharp = sharpen(output.logits, temperature, normalize)
        now = weight_at(batch.epoch).astype(jnp.float32)
        each = bases[base](sharp, batch.labels) + now * sparse_penalty(sharp, q=power)
        return weighted_mean(each, batch.weights), ((network,), {})

    return Method(
        nothing_to_remember,
        (loss,),
        describe=lambda memory, epoch: {"sparse_weight": float(weight_at(epoch))},
    )
