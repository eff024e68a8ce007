"""PLC (Zhang et al., 2021): correct the labels that the network is most sure are wrong.

https://arxiv.org/abs/2103.07756. With f_i the mean of the last predictions for example i, its
label y_i becomes the most likely one where

    f_i[y_i] / max_k f_i[k]  <  threshold.

Once labels barely change anymore, the threshold rises.
"""

import jax
import jax.numpy as jnp

from spr_jax.losses import cross_entropy
from spr_jax.methods.method import Method, expect, weighted_mean


def plc(
    warmup: int = 40,
    threshold: float = 0.3,
    rise: float = 0.1,
    highest: float = 0.9,
    min_changed: float = 0.001,
    window: int = 10,
) -> Method:
    """PLC: after each epoch, correct the labels that recent predictions clearly contradict.

    Args:
      warmup: epochs before the first correction.
      threshold: ratio of probabilities below which a label is corrected, at first.
      rise: added to the threshold when fewer than `min_changed` of the labels change.
      highest: limit of the threshold.
      min_changed: fraction of the labels.
      window: epochs of predictions that are averaged.
    """
    expect(warmup >= 0, "warmup", warmup, "0 or more")
    expect(window >= 1, "window", window, "1 or more")
    expect(rise >= 0, "rise", rise, "0 or more")
    expect(0 <= highest <= 1, "highest", highest, "a ratio from 0 to 1")
    expect(0 <= threshold <= highest, "threshold", threshold, f"a ratio up to the {highest=}")

    def init(labels, num_classes):
        labels = jnp.asarray(labels, jnp.int32)
        return {
            "labels": labels,
            "clean": jnp.ones(len(labels), bool),
            "predictions": jnp.zeros((window, len(labels), num_classes), jnp.float32),
            "threshold": jnp.float32(threshold),
        }

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        each = cross_entropy(output.logits, memory["labels"][batch.index])
        record = {"prediction": jax.nn.softmax(output.logits)}
        return weighted_mean(each, batch.weights), ((network,), record)

    def revise(memory, epoch, key):
        predictions, slot = jnp.asarray(memory["predictions"]), epoch.number % window
        seen = epoch.visited[:, None]
        newest = jnp.where(seen, epoch.record["prediction"], predictions[slot])
        predictions = predictions.at[slot].set(newest)
        memory = memory | {"predictions": predictions}
        if epoch.number < warmup:
            return memory
        now = memory["threshold"]
        labels = correct_labels(memory["labels"], predictions, now)
        stays = jnp.mean(labels != memory["labels"]) < min_changed
        return memory | {
            "labels": labels,
            "clean": labels == epoch.labels,
            "threshold": jnp.where(stays, jnp.minimum(now + rise, highest), now),
        }

    def describe(memory, epoch):
        return {"threshold": float(memory["threshold"])}

    return Method(init, (loss,), revise, describe=describe)


def correct_labels(labels, predictions, threshold):
    """Replace labels that are far less probable than the most probable one, [N]."""
    likelihood = jnp.sum(predictions, axis=0)  # a ratio of sums is one of means
    present = jnp.take_along_axis(likelihood, labels[:, None], axis=1)[:, 0]
    contradicted = present < threshold * jnp.max(likelihood, axis=1)
    return jnp.where(contradicted, jnp.argmax(likelihood, axis=1), labels).astype(labels.dtype)
