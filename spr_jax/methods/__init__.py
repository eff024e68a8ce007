"""Methods by name. Each is a function of its options that returns a `Method`, or its `Stage`s."""

from collections.abc import Callable

from spr_jax.methods import (
    dimensionality,
    divide_mix,
    early_learning,
    feature_dropout,
    forward_correction,
    generative_head,
    iterative_detection,
    negative_learning,
    nested_co_teaching,
    noisy_cross_validation,
    peers,
    pencil,
    plc,
    robust_loss,
    selfie,
    sop,
    sparse_regularization,
    spr,
    spr_plus,
    spr_references,
    ssr,
    topofilter,
)
from spr_jax.methods.method import Method, Stage

__all__ = ["METHODS", "TOLD_NOISE_RATE", "Method", "Stage"]

METHODS: dict[str, Callable[..., Method | tuple[Stage, ...]]] = {
    "spr": spr.spr,
    "ce": robust_loss.ce,
    "focal": robust_loss.focal,
    "gce": robust_loss.gce,
    "sce": robust_loss.sce,
    "apl": robust_loss.apl,
    "bootstrap": robust_loss.bootstrap,
    "forward": forward_correction.forward,
    "sr": sparse_regularization.sr,
    "nlnl": negative_learning.nlnl,
    "dropout": feature_dropout.dropout,
    "nested": feature_dropout.nested,
    "mentornet": peers.mentornet,
    "decoupling": peers.decoupling,
    "co_teaching": peers.co_teaching,
    "co_teaching_plus": peers.co_teaching_plus,
    "nct": nested_co_teaching.nct,
    "pencil": pencil.pencil,
    "plc": plc.plc,
    "selfie": selfie.selfie,
    "divide_mix": divide_mix.divide_mix,
    "sop": sop.sop,
    "ssr": ssr.ssr,
    "spr_plus": spr_plus.spr_plus,
    "elr": early_learning.elr,
    "topofilter": topofilter.topofilter,
    "iter_nld": iterative_detection.iter_nld,
    "d2l": dimensionality.d2l,
    "rog": generative_head.rog,
    "incv": noisy_cross_validation.incv,
    "small_loss": spr_references.small_loss,
    "oracle": spr_references.oracle,
}

# The option in which a method is told what fraction of the labels is wrong.
TOLD_NOISE_RATE = {
    "mentornet": "forget_rate",
    "co_teaching": "forget_rate",
    "co_teaching_plus": "forget_rate",
    "selfie": "noise_rate",
}
