"""ELR (Liu et al., 2020): hold on to what the network believed before it memorized labels.

https://arxiv.org/abs/2007.00151. Each example has a target t, a running average of the predictions
p for it, and

    loss = CE + weight log(1 - <p, t>),    t <- momentum t + (1 - momentum) p

pulls its prediction to its target: where they agree, the slope of cross-entropy by a wrong label is
outweighed. The targets begin at zero, so that early on there is nothing to hold on to.
"""

import jax
import jax.numpy as jnp
from jax import lax

from spr_jax.losses import cross_entropy
from spr_jax.methods.method import Method, expect, weighted_mean

SMALLEST = 1e-4  # probability, as released: it keeps the logarithm finite


def elr(weight: float = 3.0, momentum: float = 0.7) -> Method:
    """Early-learning regularization: keep to the running average of past predictions.

    Args:
      weight: of the regularizer; the authors' for CIFAR-10 is 3 with symmetric noise, 1 with
        asymmetric.
      momentum: of the targets; 0.7 with symmetric noise, 0.9 with asymmetric.
    """
    expect(weight >= 0, "weight", weight, "0 or more")
    expect(0 <= momentum < 1, "momentum", momentum, "a fraction from 0 to below 1")

    def init(labels, num_classes):
        return {
            "targets": jnp.zeros((len(labels), num_classes), jnp.float32),
            "clean": jnp.ones(len(labels), bool),
        }

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        p = jnp.clip(jax.nn.softmax(output.logits), SMALLEST, 1 - SMALLEST)
        newest = lax.stop_gradient(p / p.sum(axis=1, keepdims=True))
        # An example is visited once per epoch: its target is stored after the epoch, used now.
        target = momentum * memory["targets"][batch.index] + (1 - momentum) * newest
        each = cross_entropy(output.logits, batch.labels)
        each += weight * jnp.log(1 - jnp.sum(p * target, axis=1))
        record = {"target": target.astype(jnp.float32)}
        return weighted_mean(each, batch.weights), ((network,), record)

    def revise(memory, epoch, key):
        seen = epoch.visited[:, None]
        targets = jnp.where(seen, epoch.record["target"], memory["targets"])
        agrees = jnp.argmax(targets, axis=1) == epoch.labels
        return {"targets": targets, "clean": jnp.where(epoch.visited, agrees, memory["clean"])}

    return Method(init, (loss,), revise)
