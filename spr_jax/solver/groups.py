"""Groups of classes that share a piece: chosen greedily to look unlike each other.

With many classes the regression is solved for a few classes at a time. Classes that are easily
confused should not meet, so a group is opened by the lowest class not yet placed and grows by
the class least similar to its members, where

    s(i, j) = p_i' p_j,    p_k = mean of the features of the clean examples of class k.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from spr_jax.solver.pieces import Plan


def choose_groups(features: Array, labels: Array, clean: Array | None, plan: Plan) -> Array:
    """Group the classes by the last clean set, or by all examples: [groups, classes_per_group]."""
    if plan.num_groups == 1:
        return jnp.arange(plan.num_classes)[None]
    clean = jnp.ones(len(labels), bool) if clean is None else clean
    prototypes = class_prototypes(features, labels, clean, plan.num_classes)
    return group_classes(prototypes, plan.classes_per_group)


def class_prototypes(features: Array, labels: Array, clean: Array, num_classes: int) -> Array:
    """Mean feature of each class over its clean examples, [num_classes, d].

    A class without a clean example is described by all of its examples instead.
    """
    member = labels == jnp.arange(num_classes)[:, None]  # [num_classes, N]
    trusted = member & clean
    member = jnp.where(trusted.any(axis=1, keepdims=True), trusted, member)
    weights = member.astype(features.dtype)
    return weights @ features / jnp.maximum(weights.sum(axis=1, keepdims=True), 1)


def group_classes(prototypes: Array, classes_per_group: int) -> Array:
    """Place every class in one group, [groups, at most classes_per_group].

    There are as few groups as possible and their sizes differ by one at most (a class left
    alone would have nothing to be compared with); the free slot of the smaller ones holds -1.
    """
    num_classes = len(prototypes)
    num_groups = -(-num_classes // classes_per_group)
    sizes = [len(part) for part in np.array_split(np.arange(num_classes), num_groups)]
    group = np.repeat(np.arange(num_groups), sizes)
    slot = np.concatenate([np.arange(size) for size in sizes])
    similarity = prototypes @ prototypes.T

    def place(carry, opens):
        placed, to_members = carry
        to_members = jnp.where(opens, jnp.arange(num_classes), to_members)
        chosen = jnp.argmin(jnp.where(placed, jnp.inf, to_members))
        to_members = jnp.where(opens, 0, to_members) + similarity[chosen]
        return (placed.at[chosen].set(True), to_members), chosen

    nobody = jnp.zeros(num_classes, bool), jnp.zeros(num_classes, similarity.dtype)
    _, order = lax.scan(place, nobody, slot == 0)
    return jnp.full((num_groups, slot.max() + 1), -1).at[group, slot].set(order)
