"""SPR's training with another clean set: the smallest losses, or the labels that are right.

What is compared with SPR here is the selection alone: its steps, penalty and options stay.
"""

import jax.numpy as jnp

from spr_jax.losses import cross_entropy
from spr_jax.methods.expect import expect
from spr_jax.methods.method import Method
from spr_jax.methods.spr import spr
from spr_jax.solver.select import keep_lowest


def small_loss(
    cutmix: float = 0.5,
    sparse: float = 1.2,
    growth: float = 1.02,
    q: float = 0.2,
    sparse_on: str = "probabilities",
    sparse_over: str = "clean",
    keep: float = 0.5,
    pairing: str = "batch",
    by_clean: bool = False,
) -> Method:
    """Small loss: SPR's training, where the clean set is the share of least loss in each class.

    The loss is cross-entropy with the given labels, of the last epoch. The options are SPR's.
    """
    base = spr(select="none", **locals())
    expect(0 < keep <= 1, "keep", keep, "a share above 0, up to 1")

    def init(labels, num_classes):
        shares = jnp.full(num_classes, keep, jnp.float32)
        return base.init(labels, num_classes) | {"shares": shares}

    def recording(loss):
        def with_record(networks, batch, memory, key):
            value, (after, record) = loss(networks, batch, memory, key)
            head = networks[0].params["head"]
            logits = record["features"] @ head["kernel"] + head["bias"]
            return value, (after, {"loss": cross_entropy(logits, batch.labels)})

        return with_record

    def revise(memory, record, key):
        loss = jnp.abs(record["loss"])  # keep_lowest would take -0 for the largest
        clean = keep_lowest(loss, memory["labels"], record["visited"], memory["shares"])
        return memory | {"clean": clean, "suspicion": loss, "epoch": memory["epoch"] + 1}

    return _change_losses(base, recording)._replace(init=init, revise=revise)


def oracle(
    cutmix: float = 0.5,
    sparse: float = 1.2,
    growth: float = 1.02,
    q: float = 0.2,
    sparse_on: str = "probabilities",
    sparse_over: str = "clean",
    pairing: str = "batch",
    by_clean: bool = False,
) -> Method:
    """Oracle: SPR's training, where the clean set is that of the labels that are right.

    A bound on what selection can do, not a method: the loop fills in `right` by the true labels.
    The options are SPR's.
    """
    base = spr(select="none", **locals())

    def init(labels, num_classes):
        all_right = jnp.ones(len(labels), bool)
        return base.init(labels, num_classes) | {"right": all_right}

    def knowing(loss):
        def on_right_labels(networks, batch, memory, key):
            return loss(networks, batch, memory | {"clean": memory["right"]}, key)

        return on_right_labels

    def revise(memory, record, key):
        return base.revise(memory, record, key) | {"clean": memory["right"]}

    return _change_losses(base, knowing)._replace(init=init, revise=revise)


def _change_losses(method, change):
    other_loss = change(method.other_loss) if method.other_loss else None
    return method._replace(loss=change(method.loss), other_loss=other_loss)
