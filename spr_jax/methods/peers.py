"""Selection within a batch: by a network for itself, or by two networks for each other.

Peers see the same batch. What one of them learns from may depend on the other, through a mask
without gradient, so each descends its own loss alone. `clean` holds the examples that the first
network found easy when it last saw them.

As in their papers, methods with two networks are scored by one of them; the accuracy of the other
and of their mean, an ensemble, is logged beside it.
"""

import math
from typing import Any

import jax.numpy as jnp
from jax import random

from spr_jax.losses import cross_entropy
from spr_jax.methods.batch_masks import easiest, forgetting, mean_over
from spr_jax.methods.method import (
    Method,
    expect,
    mean_probability,
    nothing_to_remember,
    nth_probability,
)

SCORED: dict[str, Any] = {
    "predict": nth_probability(0),
    "predict_beside": {"second_network": nth_probability(1), "mean_of_networks": mean_probability},
}


def mentornet(forget_rate: float = 0.2, ramp: int = 10) -> Method:
    """MentorNet in its self-paced form: learn from the examples of small loss in each batch.

    Jiang et al., 2018, https://arxiv.org/abs/1712.05055, in the form that others compare with.

    Args:
      forget_rate: fraction of a batch that is left out.
      ramp: epochs in which that fraction grows from zero.
    """
    return _taught_by_peer(forgetting(forget_rate, ramp), num_networks=1)


def co_teaching(forget_rate: float = 0.2, ramp: int = 10) -> Method:
    """Co-teaching: each network learns from the examples that its peer finds easy.

    Han et al., 2018, https://arxiv.org/abs/1804.06872.

    Args:
      forget_rate: fraction of a batch that is left out; the noise rate in the paper.
      ramp: epochs in which that fraction grows from zero.
    """
    return _taught_by_peer(forgetting(forget_rate, ramp))


def co_teaching_plus(forget_rate: float = 0.2, ramp: int = 10, warmup: int = 20) -> Method:
    """Co-teaching+: co-teaching on the examples on which the networks disagree.

    Yu et al., 2019, https://arxiv.org/abs/1901.04215. If the networks agree on a whole batch they
    learn nothing from it; the released code, in its first steps, would take all of it. Nor is
    softmax applied twice here, as it is there.

    Args:
      forget_rate: fraction of a batch that is left out.
      ramp: epochs in which that fraction grows from zero.
      warmup: epochs of plain co-teaching.
    """
    expect(warmup >= 0, "warmup", warmup, "0 or more")
    return _taught_by_peer(forgetting(forget_rate, ramp), warmup)


def _taught_by_peer(rate_at, plain_epochs=math.inf, num_networks=2):
    """Let peers choose each other's examples: after the plain epochs, where they disagree."""

    def loss(networks, batch, memory, key):
        outputs, networks = forward_all(networks, batch.images, key)
        losses = [cross_entropy(output.logits, batch.labels) for output in outputs]
        real, keep = batch.weights > 0, 1 - rate_at(batch.epoch)
        among = real & (disagree(outputs) | (batch.epoch < plain_epochs))
        value = taught_by_peer(losses, among, keep, batch.weights)
        return value, (networks, {"clean": easiest(losses[0], real, keep)})

    def init(labels, num_classes):
        return {"clean": jnp.ones(len(labels), bool)}

    def revise(memory, epoch, key):
        return {"clean": epoch.record["clean"].astype(bool)}

    def describe(memory, epoch):
        return {"forget_rate": float(rate_at(epoch))}

    scored = SCORED if num_networks == 2 else {}
    return Method(init, (loss,), revise, describe=describe, num_networks=num_networks, **scored)


def decoupling(warmup: int = 1, floor: float = 0.1) -> Method:
    """Decoupling: two networks learn only from the examples on which they disagree.

    Malach and Shalev-Shwartz, 2017, https://arxiv.org/abs/1706.02613.

    Args:
      warmup: epochs of plain training.
      floor: the loss is a mean over at least this fraction of the batch, as released, so that a
        few examples do not make a whole step.
    """
    expect(warmup >= 0, "warmup", warmup, "0 or more")
    expect(0 < floor <= 1, "floor", floor, "a fraction above 0, up to 1")

    def loss(networks, batch, memory, key):
        outputs, networks = forward_all(networks, batch.images, key)
        chosen = disagree(outputs) | (batch.epoch < warmup)
        losses = [cross_entropy(output.logits, batch.labels) for output in outputs]
        means = [mean_over(chosen, each, batch.weights, floor=floor) for each in losses]
        return sum(means), (networks, {})

    return Method(nothing_to_remember, (loss,), num_networks=2, **SCORED)


def forward_all(networks, images, key):
    """Run a train-mode pass of every network: outputs, and the networks after it."""
    keys = random.split(key, len(networks))
    passes = [net.forward(images, own) for net, own in zip(networks, keys, strict=True)]
    return tuple(zip(*passes, strict=True))


def taught_by_peer(losses, among, share, weights):
    """Sum, over networks, their mean losses on the share of examples that their peer finds easy."""
    easy_for_peer = reversed([easiest(each, among, share) for each in losses])
    pairs = zip(easy_for_peer, losses, strict=True)
    return sum(mean_over(easy, each, weights) for easy, each in pairs)


def disagree(outputs):
    first, *others = (jnp.argmax(output.logits, axis=1) for output in outputs)
    return sum((other != first for other in others), jnp.zeros_like(first, bool))
