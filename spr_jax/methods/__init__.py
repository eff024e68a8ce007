"""Methods by name. Each is a function of its options that returns a `Method`."""

from spr_jax.methods import robust_loss, spr
from spr_jax.methods.method import Method

__all__ = ["METHODS", "Method"]

METHODS = {"spr": spr.spr, "ce": robust_loss.ce}
