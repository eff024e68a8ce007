"""NCT, nested co-teaching (Chen et al., 2021, https://arxiv.org/abs/2104.13766).

First two networks are trained with nested dropout, apart from each other. Then each half of a batch
is sifted by one of them, in eval mode and with the best few features, and teaches the other. Halves
are every second example, so that they are the same however many devices share the batch.
"""

import jax.numpy as jnp
from jax import lax, random

from spr_jax.devices import AXIS
from spr_jax.methods.batch_masks import easiest
from spr_jax.methods.feature_dropout import nested
from spr_jax.methods.method import Method, Stage, expect

HALVES = slice(0, None, 2), slice(1, None, 2)


def nct(
    sigma: float = 100.0,
    warmup: int = 100,
    forget_rate: float = 0.2,
    learning_rate: float = 0.004,
) -> tuple[Stage, ...]:
    """Nested co-teaching: two networks with nested dropout, which then teach each other.

    Batch norm is trained throughout; the released code freezes it while the networks teach.

    Args:
      sigma: width of nested dropout.
      warmup: epochs in which the networks are trained apart.
      forget_rate: fraction of its half that the teacher leaves out.
      learning_rate: while they teach; a fifth of it after a sixth of that time. 0 for the run's
        schedule.
    """
    expect(warmup >= 0, "warmup", warmup, "0 or more")
    expect(0 <= forget_rate < 1, "forget_rate", forget_rate, "a fraction from 0 to below 1")
    expect(learning_rate >= 0, "learning_rate", learning_rate, "0 or more")
    alone = nested(sigma)

    def init(labels, num_classes):
        return alone.init(labels, num_classes) | {"clean": jnp.ones(len(labels), bool)}

    def apart(networks, batch, memory, key):
        keys = random.split(key, 2)
        value, networks, right = both(networks, (batch, batch), memory, keys)
        return value, (networks, {"is_right": sum(right) / 2})

    def together(networks, batch, memory, key):
        halves = [batch.rows(part) for part in HALVES]
        easy = [sift(*pair, memory) for pair in zip(networks, halves, strict=True)]
        lessons = [mean_over_chosen(*pair, memory) for pair in zip(halves, easy, strict=True)]
        value, networks, right = both(networks, lessons[::-1], memory, (key, key))
        record = {"is_right": in_order(right[::-1]), "clean": in_order(easy)}
        return value, (networks, record)

    def both(networks, batches, memory, keys):
        (one, ((first,), of_first)), (two, ((second,), of_second)) = (
            alone.steps[0]((network,), batch, memory, key)
            for network, batch, key in zip(networks, batches, keys, strict=True)
        )
        return one + two, (first, second), (of_first["is_right"], of_second["is_right"])

    def sift(network, half, memory):
        """Mark the training examples to whose label the network gives the highest probability."""
        probability = alone.predict((network,), memory, half.images)
        of_label = jnp.take_along_axis(probability, half.labels[:, None], axis=1)[:, 0]
        among = half.weights * memory["weights"][half.index] > 0
        return easiest(-of_label, among, 1 - forget_rate)

    def revise(memory, epoch, key):
        return alone.revise(memory, epoch, key) | {"clean": epoch.record["clean"].astype(bool)}

    def predict(networks, memory, images):
        return sum(alone.predict((network,), memory, images) for network in networks) / 2

    def teaching_rate(done, usual):
        return jnp.where(done < 1 / 6, learning_rate, learning_rate / 5)

    before = Method(init, (apart,), alone.revise, predict, alone.describe, num_networks=2)
    teaching = before._replace(steps=(together,), revise=revise)
    schedule = teaching_rate if learning_rate else None
    return Stage(before, warmup), Stage(teaching, fresh_optimizer=True, schedule=schedule)


def in_order(halves):
    """Put what belongs to the halves of a batch into its order, [b, ...]."""
    first, second = halves
    both = jnp.zeros((len(first) + len(second), *first.shape[1:]), first.dtype)
    return both.at[HALVES[0]].set(first).at[HALVES[1]].set(second)


def mean_over_chosen(half, chosen, memory):
    """Weight a half so that nested dropout's loss is the mean over the chosen."""
    weights = half.weights * chosen
    share = lax.pmean(jnp.mean(weights * memory["weights"][half.index]), AXIS)
    return half._replace(weights=weights / jnp.maximum(share, 1e-6))
