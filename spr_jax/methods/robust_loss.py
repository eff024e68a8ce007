"""Methods that are a loss, and truncated GCE, which also prunes."""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp

from spr_jax import losses
from spr_jax.methods.method import Method, expect, nothing_to_remember, weighted_mean


def from_loss(loss_of: Callable) -> Method:
    """Train on all labels as given, with this loss."""

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        return weighted_mean(loss_of(output.logits, batch.labels), batch.weights), ((network,), {})

    return Method(nothing_to_remember, (loss,))


def ce() -> Method:
    """Cross-entropy: plain training."""
    return from_loss(losses.cross_entropy)


def focal(gamma: float = 0.5, detach: bool = True) -> Method:
    """Focal loss: cross-entropy with less weight on easy examples."""
    expect(gamma >= 0, "gamma", gamma, "0 or more")
    return from_loss(partial(losses.focal, gamma=gamma, detach=detach))


def sce(alpha: float = 0.1, beta: float = 1.0, log_zero: float = losses.LOG_ZERO) -> Method:
    """Symmetric cross-entropy: the usual term, and a reverse one that tolerates noise."""
    expect(min(alpha, beta) >= 0, "alpha, beta", (alpha, beta), "0 or more")
    expect(log_zero < 0, "log_zero", log_zero, "a number below 0")
    loss = losses.symmetric_cross_entropy
    return from_loss(partial(loss, alpha=alpha, beta=beta, log_zero=log_zero))


def apl(
    active: str = "nce",
    passive: str = "rce",
    alpha: float = 1.0,
    beta: float = 1.0,
    gamma: float = 0.5,
) -> Method:
    """Active passive loss: a normalized loss, nce or nfl, and a bounded one, mae or rce."""
    expect(active in losses.ACTIVE, "active", active, f"one of {losses.ACTIVE}")
    expect(passive in losses.PASSIVE, "passive", passive, f"one of {tuple(losses.PASSIVE)}")
    expect(min(alpha, beta) >= 0, "alpha, beta", (alpha, beta), "0 or more")
    expect(gamma >= 0, "gamma", gamma, "0 or more")
    loss = partial(losses.active_passive, active=active, passive=passive, gamma=gamma)
    return from_loss(partial(loss, alpha=alpha, beta=beta))


def bootstrap(kind: str = "hard", beta: float = 0.8) -> Method:
    """Bootstrap: targets mix the label with the network's own prediction, hard or soft."""
    expect(kind in ("hard", "soft"), "kind", kind, "'hard' or 'soft'")
    expect(0 <= beta <= 1, "beta", beta, "a fraction from 0 to 1")
    return from_loss(partial(losses.bootstrap, kind=kind, beta=beta))


def gce(
    q: float = 0.7, truncate: float = 0.0, prune_from: int = 40, prune_every: int = 10
) -> Method:
    """Generalized cross-entropy, between cross-entropy and absolute error; also truncated.

    Args:
      q: 0 is the limit of cross-entropy, 1 absolute error.
      truncate: k of the truncated loss; 0 for the plain one.
      prune_from: epoch, counted from 0, before which the truncated loss first chooses its examples.
      prune_every: epochs between two choices.
    """
    expect(0 < q <= 1, "q", q, "a number above 0 and at most 1")
    expect(0 <= truncate < 1, "truncate", truncate, "a probability from 0 to below 1")
    expect(prune_from >= 1, "prune_from", prune_from, "1 or more")
    expect(prune_every >= 1, "prune_every", prune_every, "1 or more")
    loss_of = partial(losses.generalized_cross_entropy, q=q)
    if not truncate:
        return from_loss(loss_of)

    def is_pruned(epoch):
        return epoch >= prune_from and (epoch - prune_from) % prune_every == 0

    return truncated(loss_of, truncate, (1 - truncate**q) / q, is_pruned)


def truncated(loss_of: Callable, k: float, loss_at_k: float, is_pruned: Callable) -> Method:
    """min over network and w of sum_i w_i L(p_i) + (1 - w_i) L(k), with w_i in {0, 1}, in turns.

    Given the network, w_i = [p_i > k]. p is from an eval-mode pass of the present network, where
    the released code takes the network that was best on the test set.
    """

    def init(labels, num_classes):
        return {"clean": jnp.ones(len(labels), bool)}

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        each = loss_of(output.logits, batch.labels)
        each = jnp.where(memory["clean"][batch.index], each, loss_at_k)
        return weighted_mean(each, batch.weights), ((network,), {"logits": output.logits})

    def revise(memory, epoch, key):
        if not is_pruned(epoch.number + 1):
            return memory
        log_p = losses.log_probability(epoch.record["logits"], epoch.labels)
        return {"clean": jnp.where(epoch.visited, jnp.exp(log_p) > k, memory["clean"])}

    return Method(init, (loss,), revise, record_from="scan")
