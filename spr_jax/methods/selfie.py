"""SELFIE (Song et al., 2019): learn from small losses, and from refurbished labels.

http://proceedings.mlr.press/v97/song19b.html. Of the last labels predicted for an example let P be
the frequencies. Where they hardly disagree,

    F = H(P) / log c  <=  uncertainty,

the most frequent one replaces the given label from then on. After the warm-up, a batch learns from
its examples of small loss and from all those whose label was replaced.
"""

import jax.numpy as jnp
import numpy as np

from spr_jax.losses import cross_entropy
from spr_jax.methods.expect import expect
from spr_jax.methods.method import Method, Stage
from spr_jax.methods.selection import easiest, mean_over


def selfie(
    noise_rate: float = 0.2,
    warmup: int = 25,
    history: int = 15,
    uncertainty: float = 0.05,
    restarts: int = 0,
    restart_every: int = 100,
) -> Method | tuple[Stage, ...]:
    """SELFIE: learn from small losses, and from labels that were predicted again and again.

    noise_rate: share of a batch that is not of small loss. warmup: epochs of learning from all.
    history: predictions that are remembered. restarts: trainings that follow, with fresh networks
    and the labels replaced so far; restart_every: epochs of each training but the last.
    """
    expect(0 <= noise_rate < 1, "noise_rate", noise_rate, "a share from 0 to below 1")
    expect(history >= 1, "history", history, "1 or more")
    expect(warmup >= history, "warmup", warmup, f"enough to fill the history of {history}")
    expect(restarts >= 0, "restarts", restarts, "0 or more")
    expect(restart_every >= 1, "restart_every", restart_every, "1 or more")

    def epochs_since_start(epoch):
        return epoch - restart_every * jnp.minimum(epoch // restart_every, restarts)

    def init(labels, num_classes):
        labels = jnp.asarray(labels, jnp.int32)
        return {
            "predicted": jnp.tile(labels, (history, 1)),
            "refurbished": jnp.full(len(labels), -1, jnp.int32),  # -1: still as given
            "clean": jnp.ones(len(labels), bool),
            "most_entropy": jnp.log(jnp.float32(num_classes)),
            "noise_rate": jnp.float32(noise_rate),
            "epoch": jnp.int32(0),
        }

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        by_given = cross_entropy(output.logits, batch.labels)
        easy = easiest(by_given, batch.weights > 0, 1 - memory["noise_rate"], round_up=True)
        refurbished = memory["refurbished"][batch.index]
        labels = jnp.where(refurbished >= 0, refurbished, batch.labels)
        in_warmup = epochs_since_start(memory["epoch"]) < warmup
        chosen = easy | (refurbished >= 0) | in_warmup
        predicted = jnp.argmax(output.logits, axis=1).astype(jnp.int32)
        record = {"predicted": predicted, "clean": chosen & (labels == batch.labels)}
        each = cross_entropy(output.logits, labels)
        return mean_over(chosen, each, batch.weights), ((network,), record)

    def revise(memory, record, key):
        epoch, refurbished = memory["epoch"] + 1, memory["refurbished"]
        predicted, place = jnp.asarray(memory["predicted"]), memory["epoch"] % history
        newest = jnp.where(record["visited"], record["predicted"], predicted[place])
        predicted = predicted.at[place].set(newest)
        noise_rate = memory["noise_rate"]
        if epochs_since_start(epoch) == 0:  # to fresh networks, what is refurbished is no noise
            noise_rate = jnp.minimum(noise_rate, jnp.mean(refurbished < 0, dtype=jnp.float32))
        if epochs_since_start(epoch) >= warmup:
            label, entropy = most_frequent(predicted)
            certain = entropy <= uncertainty * memory["most_entropy"]
            refurbished = jnp.where(certain, label, refurbished)
        return memory | {
            "predicted": predicted,
            "refurbished": refurbished,
            "clean": record["clean"].astype(bool),
            "noise_rate": noise_rate,
            "epoch": epoch,
        }

    def describe(memory):
        return {"refurbished_share": float(np.mean(memory["refurbished"] >= 0))}

    method = Method(init, loss, revise, describe=describe)
    first, last = Stage(method, restart_every), Stage(method, restart=True)
    between = first._replace(restart=True)
    return (first, *[between] * (restarts - 1), last) if restarts else method


def most_frequent(predicted):
    """Of labels [history, N]: the most frequent one, and H(P) of the frequencies; [N] each.

    H(P) = -sum_k P_k log P_k is the mean of -log P over the labels, so no class is counted twice.
    """
    frequency = jnp.mean(predicted[:, None] == predicted, axis=1)  # [history, N]
    most = jnp.argmax(frequency, axis=0)
    label = jnp.take_along_axis(predicted, most[None], axis=0)[0]
    return label, -jnp.mean(jnp.log(frequency), axis=0)
