"""SSR+ (Feng et al., 2022): relabel what is certain, learn from what neighbors confirm.

https://arxiv.org/abs/2111.11288. After every epoch, with predictions p of an eval-mode pass,

    relabel   y_i = argmax p_i where max p_i > relabel_above, else the given label
    select    examples whose y_i wins the vote of the k nearest by the cosine of their features

The next epoch learns from the selected, classes balanced, in two strong views mixed by MixUp, and
pulls a strong view of every example to a weak one (`backbones/heads.py`). The first epoch has no
selection yet and learns from all given labels; the released code selects by an untrained network.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import random

from spr_jax import augment
from spr_jax.backbones.heads import Heads, distance_of_views
from spr_jax.losses import cross_entropy
from spr_jax.methods.batch_masks import mean_over
from spr_jax.methods.method import Method, expect, weighted_mean
from spr_jax.methods.whole_batch import common_key, own_part, whole
from spr_jax.registry import extends, lookup
from spr_jax.solver.neighbor_scores import count_votes


def relabeled_training(
    judge: Callable,
    *,
    relabel_above: float = 0.9,
    balance: bool = True,
    mixup: float = 4.0,
    consistency: float = 1.0,
    strong: str = "rand_augment",
) -> Method:
    """Train on labels that are replaced where the network is sure, as far as they are trusted.

    Args:
      judge: (memory, epoch, labels, sure, key) -> memory, trust [N] in these labels, from 0 to 1.
      relabel_above: confidence above which a prediction replaces the given label; 1: never.
      balance: let all classes weigh the same; an epoch visits each example once, so weights stand
        for the repeated visits of the released code.
      mixup: alpha of the Beta distribution of shares; 0: examples are not mixed.
      consistency: weight of the agreement of views; 0: none.
      strong: augmentation of strong views, on top of the data set's own.
    """
    expect(0 < relabel_above <= 1, "relabel_above", relabel_above, "a probability up to 1")
    expect(mixup >= 0, "mixup", mixup, "0 or more")
    expect(consistency >= 0, "consistency", consistency, "0 or more")
    lookup(augment.AUGMENTATIONS, strong)

    def init(labels, num_classes):
        return {
            "labels": jnp.asarray(labels, jnp.int32),
            "weights": jnp.ones(len(labels), jnp.float32),
            "clean": jnp.ones(len(labels), bool),
            "suspicion": jnp.zeros(len(labels), jnp.float32),
            "selection": {"relabeled": jnp.float32(0)},
        }

    def step(networks, batch, memory, key):
        mixing_key, mixed_key, weak_key, strong_key = random.split(key, 4)
        images, share = one_by_one(*batch.views[-2:]), 1.0
        each_once = (memory["labels"][batch.index], memory["weights"][batch.index], batch.weights)
        labels, trust, weights = (jnp.repeat(values, 2) for values in each_once)
        others = labels
        if mixup:  # with partners that count, by how much they do
            partner_key, share_key = random.split(common_key(mixing_key))
            every, every_label, among = whole((images, labels, trust * weights))
            drawn = random.choice(partner_key, len(among), among.shape, p=among + 1e-9)
            partner = own_part(drawn)
            others = every_label[partner]
            images, share = augment.mixup(share_key, images, every[partner], alpha=mixup)
        output, network = networks[0].forward(images, mixed_key)
        each = share * cross_entropy(output.logits, labels)
        each += (1 - share) * cross_entropy(output.logits, others)
        loss = mean_over(trust, each, weights)
        if consistency:
            weak, network = network.forward(batch.views[0], weak_key)
            seen, network = network.forward(batch.views[1], strong_key)
            distance = distance_of_views(networks[0], weak, seen)
            loss += consistency * weighted_mean(distance, batch.weights)
        return loss, ((network,), {})

    def revise(memory, epoch, key):
        record = epoch.record if "logits" in epoch.record else epoch.scan()
        p = jax.nn.softmax(jnp.asarray(record["logits"]))
        sure, given = p.max(axis=1) > relabel_above, jnp.asarray(epoch.labels)
        labels = jnp.where(sure, jnp.argmax(p, axis=1), given).astype(jnp.int32)
        memory, trust = judge(memory, epoch, labels, sure, key)
        trust = weights = jnp.where(epoch.visited, trust, 0).astype(jnp.float32)
        if balance:
            weights = balanced(trust, labels, p.shape[1])
        numbers = {"relabeled": jnp.mean(labels != given, dtype=jnp.float32)}
        return memory | {
            "labels": labels,
            "weights": weights,
            "clean": (trust > 0.5) & (labels == given),
            "selection": memory["selection"] | numbers,
        }

    on_top = ("none",) * (consistency > 0) + (strong, strong)
    return Method(
        init,
        (step,),
        revise,
        num_views=len(on_top),
        on_top=on_top,
        extra=Heads() if consistency else None,
        record_from="scan",
    )


def one_by_one(first, second):
    """Examples of two views in turns, [2 b, ...], so that devices hold equal parts of both."""
    return jnp.stack([first, second], axis=1).reshape(-1, *first.shape[1:])


def balanced(trust, labels, num_classes):
    """Scale trust such that its sum is the same in all classes that have any, [N]."""
    size = jnp.zeros(num_classes).at[labels].add(trust)
    usual = trust.sum() / jnp.maximum(jnp.sum(size > 0), 1)
    return (trust * usual / jnp.maximum(size[labels], 1e-6)).astype(jnp.float32)


@extends(relabeled_training)
def ssr(
    *, neighbors: int = 200, agreement: float = 1.0, voters: int = 50_000, **training
) -> Method:
    """SSR+: relabel what the network is sure of, learn from labels that neighbors confirm.

    The values are the released ones for CIFAR-10.

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

    def judge(memory, epoch, labels, sure, key):
        among, everyone = random.permutation(key, len(labels))[:voters], jnp.arange(len(labels))
        how = {"num_classes": epoch.record["logits"].shape[1], "neighbors": neighbors}
        votes = count_votes(jnp.asarray(epoch.record["features"]), labels, among, **how)
        most = votes.max(axis=1)
        memory = memory | {"suspicion": 1 - votes[everyone, epoch.labels] / most}
        return memory, votes[everyone, labels] >= agreement * most  # a quotient would not be exact

    return relabeled_training(judge, **training)
