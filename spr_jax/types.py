"""The structures that modules hand to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # data sets load without JAX
    from jax import Array


class Output(NamedTuple):
    logits: Array  # [b, c]
    features: Array  # [b, d], before any mask
