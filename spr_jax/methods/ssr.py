"""SSR+ (Feng, Tzimiropoulos, Patras, 2022): relabel what is certain, select what neighbors confirm.

https://arxiv.org/abs/2111.11288. Labels y are first replaced where the network is sure
(`relabeling.py`). Then the k examples nearest to x_i by the cosine of their features, itself among
them, vote with their y; votes for a class count in inverse proportion to its size. Example i is
clean where

    votes_i[y_i]  >=  agreement max_k votes_i[k].
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax, random

from spr_jax.methods.method import Method, expect
from spr_jax.methods.relabeling import relabel, relabeled_training, with_selection
from spr_jax.registry import extends


@extends(relabeled_training)
def ssr(
    *, neighbors: int = 200, agreement: float = 1.0, voters: int = 50_000, **training
) -> Method:
    """SSR+: relabel what the network is sure of, learn from labels that neighbors confirm.

    The values are the released ones for CIFAR-10. As released, there is no warm-up; but the first
    epoch learns from all labels here, where the release selects by an untrained network.

    Args:
      neighbors: examples that vote for each.
      agreement: part of the winner's votes that a label needs.
      voters: examples among which neighbors are sought, random ones if there are more; the time of
        a selection grows with their number.
      **training: options of `relabeled_training`.
    """
    expect(neighbors >= 1, "neighbors", neighbors, "1 or more")
    expect(voters >= 1, "voters", voters, "1 or more")
    expect(0 <= agreement <= 1, "agreement", agreement, "a fraction from 0 to 1")
    trained = relabeled_training(**training)
    above, balance = training.get("relabel_above", 0.9), training.get("balance", True)

    def revise(memory, epoch, key):
        logits = jnp.asarray(epoch.record["logits"])
        labels = relabel(logits, epoch.labels, above)
        asked = random.permutation(key, len(labels))[:voters]
        votes = count_votes(epoch.record["features"], labels, asked, logits.shape[1], neighbors)
        most, everyone = votes.max(axis=1), jnp.arange(len(labels))
        confirmed = votes[everyone, labels] >= agreement * most  # a quotient would not be exact
        memory = with_selection(memory, epoch, labels, confirmed, balance=balance)
        return memory | {"suspicion": 1 - votes[everyone, epoch.labels] / most}

    return trained._replace(revise=revise)


@partial(jax.jit, static_argnums=(3, 4))
def count_votes(
    features: Array, labels: Array, voters: Array, num_classes: int, neighbors: int
) -> Array:
    """Votes of the nearest by cosine for each class, in inverse proportion to its size, [N, c]."""
    lengths = jnp.linalg.norm(features, axis=1, keepdims=True)
    unit = features / jnp.maximum(lengths, 1e-8)
    ballots = jax.nn.one_hot(labels[voters], num_classes, dtype=unit.dtype)
    ballots /= jnp.maximum(ballots.sum(axis=0), 1)
    theirs = unit[voters]

    def votes_for(own):
        return ballots[lax.top_k(theirs @ own, min(neighbors, len(theirs)))[1]].sum(axis=0)

    return lax.map(votes_for, unit, batch_size=256)
