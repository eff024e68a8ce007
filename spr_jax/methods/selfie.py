"""SELFIE (Song et al., 2019): learn from small losses, and from refurbished labels.

http://proceedings.mlr.press/v97/song19b.html. Let P be the frequencies of the last labels predicted
for an example. Where they barely disagree,

    F = H(P) / log c  <=  uncertainty,

the most frequent one replaces the given label from then on. After the warm-up, a batch learns from
its examples of small loss and from all those whose label was replaced.
"""

from functools import partial

import jax.numpy as jnp
import numpy as np

from spr_jax.losses import cross_entropy
from spr_jax.methods.batch_masks import easiest, mean_over
from spr_jax.methods.method import Method, Stage, expect


def selfie(
    noise_rate: float = 0.2,
    warmup: int = 25,
    history: int = 15,
    uncertainty: float = 0.05,
    restarts: int = 0,
    restart_every: int = 100,
) -> Method | tuple[Stage, ...]:
    """SELFIE: learn from small losses, and from labels that were predicted again and again.

    Args:
      noise_rate: fraction of each batch treated as large-loss.
      warmup: epochs of learning from all examples.
      history: predictions that are remembered per example.
      uncertainty: highest F at which a label is replaced.
      restarts: trainings that follow, with fresh networks and the labels replaced so far.
      restart_every: epochs of each training but the last.
    """
    expect(0 <= noise_rate < 1, "noise_rate", noise_rate, "a fraction from 0 to below 1")
    expect(history >= 1, "history", history, "1 or more")
    expect(warmup >= history, "warmup", warmup, f"enough to fill the history of {history}")
    expect(restarts >= 0, "restarts", restarts, "0 or more")
    expect(restart_every >= 1, "restart_every", restart_every, "1 or more")

    def init(labels, num_classes):
        return {
            "predicted": jnp.tile(jnp.asarray(labels, jnp.int32), (history, 1)),
            "refurbished": jnp.full(len(labels), -1, jnp.int32),  # -1: still as given
            "clean": jnp.ones(len(labels), bool),
            "most_entropy": jnp.log(jnp.float32(num_classes)),
            "noise_rate": jnp.float32(noise_rate),
            "num_predictions": jnp.int32(0),  # over all trainings
        }

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        by_given = cross_entropy(output.logits, batch.labels)
        easy = easiest(by_given, batch.weights > 0, 1 - memory["noise_rate"], round_up=True)
        refurbished = memory["refurbished"][batch.index]
        labels = jnp.where(refurbished >= 0, refurbished, batch.labels)
        chosen = easy | (refurbished >= 0) | (batch.epoch < warmup)
        predicted = jnp.argmax(output.logits, axis=1).astype(jnp.int32)
        record = {"predicted": predicted, "clean": chosen & (labels == batch.labels)}
        each = cross_entropy(output.logits, labels)
        return mean_over(chosen, each, batch.weights), ((network,), record)

    def revise(memory, epoch, key, *, last_epoch=None):
        count, refurbished = memory["num_predictions"], memory["refurbished"]
        predicted, slot = jnp.asarray(memory["predicted"]), count % history
        newest = jnp.where(epoch.visited, epoch.record["predicted"], predicted[slot])
        predicted = predicted.at[slot].set(newest)
        noise_rate = memory["noise_rate"]
        if epoch.number == last_epoch:  # to fresh networks, a refurbished label is no noise
            noise_rate = jnp.minimum(noise_rate, jnp.mean(refurbished < 0, dtype=jnp.float32))
        elif epoch.number + 1 >= warmup:
            label, entropy = most_frequent(predicted)
            is_certain = entropy <= uncertainty * memory["most_entropy"]
            refurbished = jnp.where(is_certain, label, refurbished)
        return memory | {
            "predicted": predicted,
            "refurbished": refurbished,
            "clean": epoch.record["clean"].astype(bool),
            "noise_rate": noise_rate,
            "num_predictions": count + 1,
        }

    method = Method(init, (loss,), revise, describe=describe)
    followed = method._replace(revise=partial(revise, last_epoch=restart_every - 1))
    first, last = Stage(followed, restart_every), Stage(method, restart="fresh")
    again = first._replace(restart="fresh")
    return (first, *[again] * (restarts - 1), last) if restarts else method


def describe(memory, epoch):
    return {"refurbished_share": float(np.mean(memory["refurbished"] >= 0))}


def most_frequent(predicted):
    """Find the most frequent of labels [history, N], and the entropy H(P); [N] each.

    H(P) = -sum_k P_k log P_k is the mean of -log P over the labels, so no class is counted twice.
    """
    frequency = jnp.mean(predicted[:, None] == predicted, axis=1)  # [history, N]
    most = jnp.argmax(frequency, axis=0)
    label = jnp.take_along_axis(predicted, most[None], axis=0)[0]
    return label, -jnp.mean(jnp.log(frequency), axis=0)
