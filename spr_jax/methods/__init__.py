"""Methods by name. Each is a function of its options that returns a `Method`."""

from spr_jax.methods.method import Method
from spr_jax.methods.robust_loss import ce
from spr_jax.methods.spr import spr

__all__ = ["METHODS", "Method"]

METHODS = {"spr": spr, "ce": ce}
