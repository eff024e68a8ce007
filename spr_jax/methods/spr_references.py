"""SPR's training with another clean set: the smallest losses, or the correct labels.

Only the selection differs from SPR; steps, penalty and options stay, and the preset decides them as
it does for SPR. They are the lower and the upper reference of what a selection can do.
"""

import jax.numpy as jnp

from spr_jax.losses import cross_entropy
from spr_jax.methods.method import Method, expect
from spr_jax.methods.spr import spr_training
from spr_jax.registry import extends
from spr_jax.solver.top_share import keep_lowest


@extends(spr_training)
def small_loss(*, keep: float = 0.5, **training) -> Method:
    """Small loss: SPR's training on the share of least loss in each class.

    Args:
      keep: share of each class to call clean, by the cross-entropy of the last epoch.
      **training: options of `spr_training`.
    """
    expect(0 < keep <= 1, "keep", keep, "a share above 0, up to 1")
    trained = spr_training(**training)

    def init(labels, num_classes):
        shares = jnp.full(num_classes, keep, jnp.float32)
        return trained.init(labels, num_classes) | {"shares": shares}

    def record_loss(step):
        def recording(networks, batch, memory, key):
            value, (after, record) = step(networks, batch, memory, key)
            head = networks[0].params["head"]
            logits = record["features"] @ head["kernel"] + head["bias"]
            return value, (after, {"loss": cross_entropy(logits, batch.labels)})

        return recording

    def revise(memory, epoch, key):
        loss = jnp.abs(epoch.record["loss"])  # keep_lowest would take -0 for the largest
        clean = keep_lowest(loss, epoch.labels, epoch.visited, memory["shares"])
        return memory | {"clean": clean, "suspicion": loss}

    steps = tuple(map(record_loss, trained.steps))
    return trained._replace(init=init, steps=steps, revise=revise)


@extends(spr_training)
def oracle(**training) -> Method:
    """Oracle: SPR's training on exactly the correct labels. A bound, not a method.

    Args:
      **training: options of `spr_training`.
    """
    trained = spr_training(**training)

    def init(labels, num_classes, is_correct):
        return trained.init(labels, num_classes) | {"clean": jnp.asarray(is_correct, bool)}

    return trained._replace(init=init, needs_truth=True)
