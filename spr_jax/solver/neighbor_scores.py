"""Scores by the labels of the nearest examples, for classes of any shape.

The K nearest of an example, without itself, vote with their given labels; its score for class k is

    s_k = log(votes_k + 1/2), less the mean over the classes.

A vote is rough, but it asks nothing of the classes but that neighbors are alike: where a class has
more parts than a kernel of one width can follow, it sees what the regressions miss. With very many
examples some of them vote for all.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from spr_jax.solver.basis import Components
from spr_jax.solver.blocks import blocks_of
from spr_jax.solver.kernel_scores import normalized

NEIGHBORS = 10
MOST_VOTERS = 5000  # the cost grows with them
MOST_DIMS = 32  # principal coordinates; with 128, votes are no better and take half as long again


def neighbor_scores(components: Components, labels: Array, num_classes: int) -> Array:
    """Score each example by its neighbors, [c, N], of mean zero and unit mean square."""
    n = len(labels)
    coordinates = components.coordinates(n, max(min(MOST_DIMS, n // 4), 1))
    voters = voters_among(n)
    place = jnp.full(n, -1).at[voters].set(jnp.arange(len(voters)))
    ballots = jax.nn.one_hot(labels[voters], num_classes, dtype=coordinates.dtype)
    theirs = coordinates[voters]
    blocks, nearest_to = blocks_of(n), nearest_voters(theirs)

    def count(start):
        mine = lax.dynamic_slice_in_dim(coordinates, start, blocks.length)
        own = lax.dynamic_slice_in_dim(place, start, blocks.length)
        return ballots[nearest_to(mine, own)].sum(axis=1).T

    counted = lax.map(count, jnp.asarray(blocks.starts))  # [blocks, c, rows]
    scores = normalized(scores_of(jax.vmap(blocks.join, in_axes=1)(counted)))
    has_places = jnp.ptp(coordinates, axis=0).max() > 0  # otherwise "nearest" means nothing
    return jnp.where(has_places, scores, 0)


def voters_among(n: int) -> Array:
    """The examples that vote, in random order."""
    return jax.random.permutation(jax.random.key(2), n)[:MOST_VOTERS]


def nearest_voters(theirs: Array) -> Callable[[Array, Array], Array]:
    """A function from places [n, p], and which voter each is (or -1), to its nearest voters."""
    half_length = jnp.sum(theirs**2, axis=1) / 2

    def nearest_to(mine, own):
        # Half the squared distance, up to the own length, which is the same for all voters.
        nearness = mine @ theirs.T - half_length
        nearness = jnp.where(own[:, None] == jnp.arange(len(theirs)), -jnp.inf, nearness)
        return lax.top_k(nearness, min(NEIGHBORS, len(theirs) - 1))[1]

    return nearest_to


def scores_of(counted: Array) -> Array:
    """Scores of counts of votes, [c, n] both, before they are normalized."""
    votes = jnp.log(counted + 0.5)
    return votes - votes.mean(axis=0)


@partial(jax.jit, static_argnames=("num_classes", "neighbors"))
def count_votes(
    features: Array,  # [N, d]
    labels: Array,  # [N]
    voters: Array,  # indices of those who may vote
    *,
    num_classes: int,
    neighbors: int,
) -> Array:
    """Count the votes of the nearest by cosine, itself among them, for each class, [N, c].

    A vote counts in inverse proportion to the size of its class.
    """
    unit = features / jnp.maximum(jnp.linalg.norm(features, axis=1, keepdims=True), 1e-8)
    ballots = jax.nn.one_hot(labels[voters], num_classes, dtype=unit.dtype)
    ballots /= jnp.maximum(ballots.sum(axis=0), 1)
    theirs = unit[voters]

    def votes_for(own):
        return ballots[lax.top_k(theirs @ own, min(neighbors, len(theirs)))[1]].sum(axis=0)

    return lax.map(votes_for, unit, batch_size=256)
