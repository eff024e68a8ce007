"""PLC (Zhang et al., 2021): correct the labels that the network is most sure are wrong.

https://arxiv.org/abs/2103.07756. With f_i the mean of the last predictions for example i, its
label y_i becomes the most likely one where

    f_i[y_i] / max_k f_i[k]  <  threshold.

When hardly any label changes any more, the threshold rises.
"""

import jax
import jax.numpy as jnp

from spr_jax.losses import cross_entropy
from spr_jax.methods.expect import expect
from spr_jax.methods.method import Method, weighted_mean


def plc(
    warmup: int = 40,
    threshold: float = 0.3,
    rise: float = 0.1,
    highest: float = 0.9,
    few: float = 0.001,
    window: int = 10,
) -> Method:
    """PLC: after each epoch, correct the labels that recent predictions clearly contradict.

    warmup: epochs after which nothing is corrected yet. threshold, rise, highest: it rises up to
    the highest when less than the share `few` of labels change. window: epochs of predictions.
    """
    expect(warmup >= 0, "warmup", warmup, "0 or more")
    expect(window >= 1, "window", window, "1 or more")
    expect(rise >= 0, "rise", rise, "0 or more")
    expect(0 <= highest <= 1, "highest", highest, "a share from 0 to 1")
    expect(0 <= threshold <= highest, "threshold", threshold, f"a share up to the {highest=}")

    def init(labels, num_classes):
        labels = jnp.asarray(labels, jnp.int32)
        return {
            "given": labels,
            "labels": labels,
            "clean": jnp.ones(len(labels), bool),
            "predictions": jnp.zeros((window, len(labels), num_classes), jnp.float32),
            "threshold": jnp.float32(threshold),
            "epoch": jnp.int32(0),
        }

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        each = cross_entropy(output.logits, memory["labels"][batch.index])
        record = {"prediction": jax.nn.softmax(output.logits)}
        return weighted_mean(each, batch.weights), ((network,), record)

    def revise(memory, record, key):
        epoch, now = memory["epoch"], memory["threshold"]
        predictions, place = jnp.asarray(memory["predictions"]), epoch % window
        newest = jnp.where(record["visited"][:, None], record["prediction"], predictions[place])
        predictions = predictions.at[place].set(newest)
        memory = memory | {"predictions": predictions, "epoch": epoch + 1}
        if epoch < warmup:
            return memory
        labels = correct_labels(memory["labels"], predictions, now)
        stays = jnp.mean(labels != memory["labels"]) < few
        return memory | {
            "labels": labels,
            "clean": labels == memory["given"],
            "threshold": jnp.where(stays, jnp.minimum(now + rise, highest), now),
        }

    def describe(memory):
        return {"threshold": float(memory["threshold"])}

    return Method(init, loss, revise, describe=describe)


def correct_labels(labels, predictions, threshold):
    """The most likely label where the present one is less likely by far, [N]."""
    likelihood = jnp.sum(predictions, axis=0)  # a ratio of sums is one of means
    present = jnp.take_along_axis(likelihood, labels[:, None], axis=1)[:, 0]
    contradicted = present < threshold * jnp.max(likelihood, axis=1)
    return jnp.where(contradicted, jnp.argmax(likelihood, axis=1), labels).astype(labels.dtype)
