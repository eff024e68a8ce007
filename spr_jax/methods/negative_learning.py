"""NLNL (Kim et al., ICCV 2019, https://arxiv.org/abs/1908.07387): learn what an image is not.

    NL      all examples, a random other class y': -w_y log(1 - p_y')
    SelNL   the same, for examples whose label has a mean probability of at least 1/c
    SelPL   cross-entropy for those where it is at least 1/2: -w_y log p_y

The mean is over the training passes of the last ten epochs, and w_y = n_max / n_y balances classes.
The released code counts epochs before the first as probability 0; here the mean is over those seen.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, random

from spr_jax.losses import cross_entropy, log_probability, negative_learning
from spr_jax.methods.batch_masks import mean_over
from spr_jax.methods.method import Memory, Method, Stage, expect

NUM_EPOCHS = 10  # in the mean probability
STAGES = ("nl", "nl+selnl", "nl+selnl+selpl")


def nlnl(
    stages: str = "nl+selnl+selpl",
    stage_epochs: int = 720,
    negatives: int = 1,
    gamma: float = 0.5,
) -> tuple[Stage, ...]:
    """Negative learning: learn what an image is not, then what it is where that is sure.

    Args:
      stages: "nl", "nl+selnl" or "nl+selnl+selpl".
      stage_epochs: epochs of each stage but the last, which takes the rest of the run.
      negatives: complementary classes drawn per example.
      gamma: mean probability that SelPL requires.
    """
    expect(stages in STAGES, "stages", stages, f"one of {STAGES}")
    expect(stage_epochs >= 1, "stage_epochs", stage_epochs, "1 or more")
    expect(negatives >= 1, "negatives", negatives, "1 or more")
    expect(0 <= gamma <= 1, "gamma", gamma, "a probability from 0 to 1")

    def negative(logits, labels, key):
        others = complementary_labels(key, labels, logits.shape[1], negatives)
        return jax.vmap(negative_learning, (None, 0))(logits, others).sum(axis=0)

    def positive(logits, labels, key):
        return cross_entropy(logits, labels)

    methods = {
        "nl": selective(negative, lambda num_classes: 0),
        "selnl": selective(negative, lambda num_classes: 1 / num_classes),
        "selpl": selective(positive, lambda num_classes: gamma),
    }
    return tuple(Stage(methods[name], stage_epochs) for name in stages.split("+"))


def complementary_labels(key: Array, labels: Array, num_classes: int, count: int) -> Array:
    """Draw uniformly among the classes that are not the label, [count, b]."""
    return (labels + random.randint(key, (count, len(labels)), 1, num_classes)) % num_classes


def mean_probability(memory: Memory, index: Array | slice = slice(None)) -> Array:
    """Average the probability of the given label over the epochs seen, [b]."""
    seen = jnp.clip(memory["epochs_seen"], 1, NUM_EPOCHS)
    return memory["probability"][index].sum(axis=1) / seen


def selective(loss_of: Callable, threshold_of: Callable) -> Method:
    """Learn from the examples whose label has been probable enough."""

    def init(labels, num_classes):
        sizes = jnp.bincount(jnp.asarray(labels), length=num_classes)
        ring = jnp.zeros((len(labels), NUM_EPOCHS), jnp.float32)
        return {
            "balance": (sizes.max() / jnp.maximum(sizes, 1)).astype(jnp.float32),  # w
            "probability": ring.at[:, 0].set(1),  # none is unlikely before the first epoch
            "clean": jnp.ones(len(labels), bool),
            "epochs_seen": jnp.int32(0),  # over all stages
        }

    def is_likely(memory, index=slice(None)):
        return mean_probability(memory, index) >= threshold_of(len(memory["balance"]))

    def loss(networks, batch, memory, key):
        forward_key, label_key = random.split(key)
        output, network = networks[0].forward(batch.images, forward_key)
        each = memory["balance"][batch.labels] * loss_of(output.logits, batch.labels, label_key)
        value = mean_over(is_likely(memory, batch.index), each, batch.weights)
        probability = jnp.exp(log_probability(output.logits, batch.labels))
        return value, ((network,), {"probability": probability})

    def revise(memory, epoch, key):
        new = jnp.where(epoch.visited, epoch.record["probability"], mean_probability(memory))
        slot = memory["epochs_seen"] % NUM_EPOCHS
        ring = jnp.asarray(memory["probability"]).at[:, slot].set(new)
        memory = memory | {"probability": ring, "epochs_seen": memory["epochs_seen"] + 1}
        return memory | {"clean": is_likely(memory)}

    return Method(init, (loss,), revise)
