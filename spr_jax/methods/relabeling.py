"""Training on labels that are replaced where the network is sure: what SSR+ and SPR+ share.

After every epoch, with the predictions p of an eval-mode pass,

    relabel   y_i = argmax p_i where max p_i > relabel_above, else the given label,

always starting from the given labels; then a rule that tells the two methods apart selects clean
examples. The next epoch learns from them, classes balanced, in two strong views mixed by MixUp, and
pulls what a strong view of any example shows to what a weak one does (SimSiam, Chen and He, 2021,
https://arxiv.org/abs/2011.10566). The first epoch has no selection yet and learns from all labels.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array, lax, random

from spr_jax import augment
from spr_jax.devices import AXIS
from spr_jax.losses import cross_entropy
from spr_jax.methods.batch_masks import mean_over
from spr_jax.methods.method import Method, expect, weighted_mean
from spr_jax.methods.whole_batch import common_key, own_part, whole
from spr_jax.registry import lookup


def relabeled_training(
    *,
    relabel_above: float = 0.9,
    balance: bool = True,
    mixup: float = 4.0,
    consistency: float = 1.0,
    strong: str = "rand_augment",
) -> Method:
    """Train on all given labels; whoever relabels and selects replaces `init` and `revise`.

    Args:
      relabel_above: confidence from which a prediction replaces the given label; 1: never.
      balance: let all classes weigh the same in the loss and among partners; an epoch visits each
        example once, so weights stand for the repeated visits of the released code.
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
        trust = memory["weights"][batch.index]
        images = _one_by_one(*batch.views[-2:])
        labels, trust, weights = (
            jnp.repeat(values, 2)
            for values in (memory["labels"][batch.index], trust, batch.weights)
        )
        partners, others, share = images, labels, 1.0
        if mixup:
            partner_key, share_key = random.split(common_key(mixing_key))
            every, every_label, among = whole((images, labels, trust * weights))
            drawn = random.choice(partner_key, len(among), among.shape, p=among + 1e-9)
            partners, others = every[own_part(drawn)], every_label[own_part(drawn)]
            images, share = augment.mixup(share_key, images, partners, alpha=mixup)
        output, network = networks[0].forward(images, mixed_key)
        each = share * cross_entropy(output.logits, labels)
        each += (1 - share) * cross_entropy(output.logits, others)
        loss = mean_over(trust, each, weights)
        if consistency:
            weak, network = network.forward(batch.views[0], weak_key)
            seen, network = network.forward(batch.views[1], strong_key)
            (target, _), (_, guess) = (_heads(networks[0], view) for view in (weak, seen))
            distance = -_cosine(lax.stop_gradient(target), guess)
            loss += consistency * weighted_mean(distance, batch.weights)
        return loss, ((network,), {})

    on_top = ("none",) * (consistency > 0) + (strong, strong)
    return Method(
        init,
        (step,),
        num_views=len(on_top),
        on_top=on_top,
        record_from="scan",
        extra=Heads() if consistency else None,
    )


class Heads(nn.Module):
    """Projector and predictor of SimSiam: features [b, d] to two arrays [b, width]."""

    width: int = 128
    hidden: int = 256

    @nn.compact
    def __call__(self, features):
        def layers(inputs):
            hidden = nn.Dense(self.hidden)(inputs)
            hidden = nn.BatchNorm(use_running_average=False, axis_name=AXIS)(hidden)
            return nn.Dense(self.width)(nn.relu(hidden))

        projection = layers(features)
        return projection, layers(projection)


def _heads(network, output):
    """Projection and prediction; the statistics are the batch's, as no test ever needs others."""
    variables = {"params": network.params["extra"]}
    return Heads().apply(variables, output.features, mutable=["batch_stats"])[0]


def _cosine(first, second):
    lengths = jnp.linalg.norm(first, axis=1) * jnp.linalg.norm(second, axis=1)
    return jnp.sum(first * second, axis=1) / jnp.maximum(lengths, 1e-8)


def _one_by_one(first, second):
    """Examples of two views in turns, [2 b, ...], so that each device has whole examples."""
    return jnp.stack([first, second], axis=1).reshape(-1, *first.shape[1:])


def relabel(logits: Array, given: Array, above: float) -> Array:
    """Replace the labels of which the network is sure, [N]."""
    sure = jax.nn.softmax(logits).max(axis=1) > above
    return jnp.where(sure, jnp.argmax(logits, axis=1), given).astype(jnp.int32)


def with_selection(memory, epoch, labels, trust, *, balance):
    """Remember labels, and that each counts as far as it is trusted, [N] from 0 to 1."""
    trust = weights = jnp.where(epoch.visited, trust, 0).astype(jnp.float32)
    if balance:
        size = jnp.zeros(int(max(labels.max(), epoch.labels.max())) + 1).at[labels].add(trust)
        usual = trust.sum() / jnp.maximum(jnp.sum(size > 0), 1)
        weights = (trust * usual / jnp.maximum(size[labels], 1e-6)).astype(jnp.float32)
    kept = labels == epoch.labels
    relabeled = {"relabeled": jnp.mean(~kept, dtype=jnp.float32)}
    return memory | {
        "labels": labels,
        "weights": weights,
        "clean": (trust > 0.5) & kept,
        "selection": memory["selection"] | relabeled,
    }
