"""Methods that are a loss and nothing else."""

from collections.abc import Callable

from spr_jax.losses import cross_entropy
from spr_jax.methods.method import Method, weighted_mean


def from_loss(loss_of: Callable) -> Method:
    """Train on all labels as they are given, with a loss of one's choice."""

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        return weighted_mean(loss_of(output.logits, batch.labels), batch.weights), ((network,), {})

    return Method(init=lambda labels, num_classes: {}, loss=loss)


def ce() -> Method:
    """Cross-entropy: plain training."""
    return from_loss(cross_entropy)
