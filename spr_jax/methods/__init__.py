"""Methods by name. Each is a function of its options: a `Method`, or a tuple of `Stage`s."""

from spr_jax.methods import robust_loss, spr
from spr_jax.methods.method import Method, Stage

__all__ = ["METHODS", "Method", "Stage"]

METHODS = {"spr": spr.spr, "ce": robust_loss.ce}
