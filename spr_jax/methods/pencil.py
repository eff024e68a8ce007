"""PENCIL (Yi and Wu, 2019): learn a distribution over labels for each example, with the network.

https://arxiv.org/abs/1903.07788. Each example has label logits v, at first 10 at its given label
y and 0 elsewhere; its label distribution is d = softmax(v). With prediction p and c classes:

    classification  Lc = 1/c KL(p || d)
    compatibility   Lo = -log d_y
    entropy         Le = 1/c H(p)

First the network is trained on given labels; then it and the label logits descend
Lc + alpha Lo + beta Le; then it descends Lc alone, on the labels learned.
"""

import jax
import jax.numpy as jnp

from spr_jax.losses import cross_entropy
from spr_jax.methods.method import Method, Stage, expect, weighted_mean
from spr_jax.registry import lookup


def pencil(
    warmup: int = 70,
    label_epochs: int = 130,
    alpha: float = 0.4,
    beta: float = 0.1,
    compatibility: str = "released",
    label_rate: float = 4.7,
    learning_rate: float = 0.0,
    final_rate: float = 0.0,
) -> tuple[Stage, ...]:
    """PENCIL: learn a distribution over the labels of each example, together with the network.

    Args:
      warmup: epochs of training on the given labels.
      label_epochs: epochs in which labels are learned.
      alpha: weight of compatibility.
      beta: weight of entropy.
      compatibility: with d, as the "paper" has it, or with softmax(d) as "released", which pulls
        less.
      label_rate: step size of label logits, down the slope of their example's own loss; the
        released 600, for a mean over 128 examples, is 4.7.
      learning_rate: constant until the labels are final, since a falling one would memorize wrong
        labels; 0 for the run's.
      final_rate: from then on, divided by ten after each third; 0 for the run's.
    """
    numbers = {"warmup": warmup, "label_epochs": label_epochs, "alpha": alpha, "beta": beta}
    numbers |= {"label_rate": label_rate, "learning_rate": learning_rate, "final_rate": final_rate}
    for name, value in numbers.items():
        expect(value >= 0, name, value, "0 or more")
    compatibility_of = lookup(COMPATIBILITY, compatibility)

    def init(labels, num_classes):
        return {
            "label_logits": 10 * jax.nn.one_hot(labels, num_classes, dtype=jnp.float32),
            "clean": jnp.ones(len(labels), bool),
        }

    def descending(loss_of):
        def loss(networks, batch, memory, key):
            output, network = networks[0].forward(batch.images, key)
            label_logits = memory["label_logits"][batch.index]
            each = loss_of(output.logits, label_logits, batch.labels)
            slope = jax.grad(label_loss)(label_logits, output.logits, batch.labels)
            return weighted_mean(each, batch.weights), ((network,), {"label_slope": slope})

        return loss

    def label_loss(label_logits, logits, labels):
        each = classification(logits, label_logits)
        return jnp.sum(each + alpha * compatibility_of(label_logits, labels))

    def learning(logits, label_logits, labels):  # compatibility has no slope in the network
        return classification(logits, label_logits) + beta * entropy(logits)

    def step_labels(memory, epoch, key):
        """Descend; an example is visited once per epoch, so its step can wait for the end of it."""
        label_logits = memory["label_logits"] - label_rate * epoch.record["label_slope"]
        clean = jnp.argmax(label_logits, axis=1) == epoch.labels
        return memory | {"label_logits": label_logits, "clean": clean}

    constant = constant_rate(learning_rate)
    return (
        Stage(Method(init, (descending(given),)), warmup, schedule=constant),
        Stage(Method(init, (descending(learning),), step_labels), label_epochs, schedule=constant),
        Stage(Method(init, (descending(learned),)), schedule=by_thirds(final_rate)),
    )


def constant_rate(rate):
    """A schedule: this rate, or the run's if it is 0."""
    return lambda done, usual: rate or usual


def by_thirds(rate):
    """A schedule: this rate, or the run's if it is 0, divided by ten after each third."""
    return lambda done, usual: (rate or usual) * 0.1 ** jnp.floor(3 * done + 1e-3)  # rounding


def given(logits, label_logits, labels):
    """Loss by the given labels, [b]."""
    return cross_entropy(logits, labels)


def learned(logits, label_logits, labels):
    """Loss by the labels learned, [b]."""
    return classification(logits, label_logits)


def classification(logits, label_logits):
    """1/c KL(p || d), [b]."""
    excess = jax.nn.log_softmax(logits) - jax.nn.log_softmax(label_logits)
    return jnp.mean(jax.nn.softmax(logits) * excess, axis=1)


def entropy(logits):
    """1/c H(p), [b]."""
    return -jnp.mean(jax.nn.softmax(logits) * jax.nn.log_softmax(logits), axis=1)


# A label d_y that the network denies, p_y = 0, falls to 1 / (1 + 1 / (alpha c)) by the paper's Lo,
# so it never changes where alpha > 1/c; by the released one, to about 1 - 1 / (alpha c).
COMPATIBILITY = {
    "paper": cross_entropy,
    "released": lambda label_logits, labels: cross_entropy(jax.nn.softmax(label_logits), labels),
}
