"""What a network's predictions say about the given labels.

With p_it = P(true class t | x_i) as the network predicts and T_tk = P(given k | true t), one matrix
for all examples, the probability that the label of example i is correct is r_i at its given class:

    r_it ~ p_it T_{t y_i},  sum_t r_it = 1          given T
    T_tk ~ prior + sum of r_it over y_i = k         given r, rows sum to 1

in turns, which is expectation maximization.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from spr_jax.methods.method import Epoch, Memory

ROUNDS = 30
# The least fraction of the noise known before that predictions may leave. Of wrong labels where
# classes meet, networks learn most as if they were correct: on encoded photographs 0.3 of that
# noise was left, of symmetric and asymmetric noise 0.7 to 0.97 (docs/measuring.md).
LEAST_LEFT = 0.5
# Of fewer examples a network has learned too many wrong labels by heart when it predicts the others
# well: with 40,000 test accuracy rose by 0.5 points, with 20,000 it fell by 0.1, with 2,000 by 0.7.
LEAST_EXAMPLES = 30_000


def refine(memory: Memory, epoch: Epoch) -> Memory:
    """Estimate anew how probably labels are correct; the same memory where that cannot be believed.

    The network must not have learned the wrong labels by heart, nor explain most of them away.
    """
    known, labels = memory["correct"], np.asarray(epoch.labels)
    if len(labels) < LEAST_EXAMPLES:
        return memory
    predictions = jax.nn.softmax(jnp.asarray(epoch.scan()["logits"]))
    correct = probability_correct(predictions, labels, jnp.mean(1 - known))
    correct = jnp.where(epoch.visited, correct, known)
    if jnp.mean(1 - correct) < LEAST_LEFT * jnp.mean(1 - known):
        return memory
    clean = correct > 0.5
    numbers = {
        "estimated_noise": jnp.mean(1 - correct),
        "expected_wrong_in_clean": jnp.mean(1 - correct, where=clean),
    }
    return memory | {
        "clean": clean,
        "correct": correct,
        "suspicion": 1 - correct,
        "selection": {name: numbers[name] for name in memory["selection"]},
    }


@jax.jit
def probability_correct(predictions: Array, labels: Array, noise_rate: Array | float) -> Array:
    """P(true class = given class) of each example, [N]; `noise_rate` is where the search starts."""
    num_classes = predictions.shape[1]
    given = jax.nn.one_hot(labels, num_classes)

    def true_classes(transition):
        joint = predictions * transition[:, labels].T
        return joint / jnp.maximum(joint.sum(axis=1, keepdims=True), 1e-30)

    def once(_, transition):
        counts = true_classes(transition).T @ given + 1 / num_classes
        return counts / counts.sum(axis=1, keepdims=True)

    start = (1 - noise_rate) * jnp.eye(num_classes) + noise_rate / num_classes
    true = true_classes(lax.fori_loop(0, ROUNDS, once, start))
    return jnp.take_along_axis(true, labels[:, None], axis=1)[:, 0]
