"""DivideMix (Li et al., 2020): two networks divide the data for each other, then learn by MixMatch.

https://arxiv.org/abs/2002.07394. After every epoch a mixture of two normal distributions is fitted
to the losses of each network; w is the probability of the component of small losses. To a network
those examples are labeled whose w, as its peer finds it, is above a threshold. With p its own mean
prediction over two views, and q that of both networks, the targets are

    labeled      Sharpen(w e_y + (1 - w) p)
    unlabeled    Sharpen(q)

Views and targets of all are mixed by MixUp, and on mixed targets t the network descends

    mean_labeled CE(t, p)  +  lambda_u mean_unlabeled |t - p|^2 / c  +  KL(1/c || mean p).
"""

import jax
import jax.numpy as jnp
from jax import lax, random

from spr_jax import augment
from spr_jax.devices import AXIS
from spr_jax.losses import cross_entropy
from spr_jax.methods.batch_masks import mean_over
from spr_jax.methods.method import Method, Stage, expect, nth_probability, weighted_mean
from spr_jax.methods.peers import forward_all
from spr_jax.methods.ssr import one_by_one
from spr_jax.methods.whole_batch import common_key, own_part, whole
from spr_jax.solver.two_gaussians import fit_two_gaussians

BESIDE = {"first_network": nth_probability(0), "second_network": nth_probability(1)}


def divide_mix(
    warmup: int = 10,
    threshold: float = 0.5,
    temperature: float = 0.5,
    mixup: float = 4.0,
    unlabeled_weight: float = 25.0,
    ramp: int = 16,
    confidence_penalty: bool = False,
) -> tuple[Stage, ...]:
    """DivideMix: networks divide the data for each other; unlabeled examples are guessed and mixed.

    The values are the released ones for CIFAR-10. Here both networks are trained at once, all
    predictions behind targets are made in eval mode, and batches hold labeled and unlabeled
    examples as they come.

    Args:
      warmup: epochs of training on all given labels.
      threshold: probability of small loss above which an example counts as labeled.
      temperature: of sharpening; 1: none.
      mixup: alpha of the Beta distribution of shares.
      unlabeled_weight: lambda_u, once grown.
      ramp: epochs in which lambda_u grows from zero.
      confidence_penalty: warm up with -H(p) in the loss; released for asymmetric noise.
    """
    expect(warmup >= 1, "warmup", warmup, "1 or more")
    expect(0 <= threshold < 1, "threshold", threshold, "a probability below 1")
    expect(0 < temperature <= 1, "temperature", temperature, "above 0, up to 1")
    expect(mixup > 0, "mixup", mixup, "above 0")
    expect(unlabeled_weight >= 0, "unlabeled_weight", unlabeled_weight, "0 or more")
    expect(ramp >= 1, "ramp", ramp, "1 or more")

    def init(labels, num_classes):
        return {
            "small_loss": jnp.ones((len(labels), 2), jnp.float32),  # w, by the losses of each
            "clean": jnp.ones(len(labels), bool),
            "suspicion": jnp.zeros(len(labels), jnp.float32),
        }

    def warm_up(networks, batch, memory, key):
        outputs, networks = forward_all(networks, batch.images, key)
        each = 0.0
        for output in outputs:
            log_p = jax.nn.log_softmax(output.logits)
            each += cross_entropy(output.logits, batch.labels)
            each += confidence_penalty * jnp.sum(jnp.exp(log_p) * log_p, axis=1)
        return weighted_mean(each, batch.weights), (networks, {})

    def mix(networks, batch, memory, key):
        mixing_key, forward_key = random.split(key)
        partner_key, share_key = random.split(common_key(mixing_key))
        images, weights = one_by_one(*batch.views), jnp.repeat(batch.weights, 2)
        guesses = [lax.stop_gradient(guess(network, batch.views)) for network in networks]
        partner = own_part(random.permutation(partner_key, len(whole(weights))))
        images, share = augment.mixup(share_key, images, whole(images)[partner], alpha=mixup)
        outputs, after = forward_all(networks, images, forward_key)
        grown = unlabeled_weight * jnp.clip(batch.epoch / ramp, 0, 1)
        loss = 0.0
        for number, output in enumerate(outputs):
            w = memory["small_loss"][batch.index, 1 - number]  # as the peer divides
            targets = find_targets(w, batch.labels, guesses[number], sum(guesses) / 2)
            targets = jnp.repeat(targets, 2, axis=0)
            targets = share * targets + (1 - share) * whole(targets)[partner]
            labeled, log_p = jnp.repeat(w > threshold, 2), jax.nn.log_softmax(output.logits)
            squared = jnp.mean((jnp.exp(log_p) - targets) ** 2, axis=1)
            loss += mean_over(labeled, -jnp.sum(targets * log_p, axis=1), weights)
            loss += grown * mean_over(~labeled, squared, weights)
            mean = lax.pmean(jnp.mean(weights[:, None] * jnp.exp(log_p), axis=0), AXIS)
            loss -= jnp.mean(jnp.log(len(mean) * jnp.maximum(mean, 1e-6)))
        return loss, (after, {})

    def find_targets(w, labels, own, both):
        given, w = jax.nn.one_hot(labels, own.shape[1]), w[:, None]
        refined = w * given + (1 - w) * own
        return sharpen(jnp.where(w > threshold, refined, both), temperature)

    def revise(memory, epoch, key):
        logits = (jnp.asarray(epoch.record[name]) for name in ("logits", "logits_1"))
        losses = [cross_entropy(those, jnp.asarray(epoch.labels)) for those in logits]
        w = jnp.stack([small_loss(each, epoch.visited) for each in losses], axis=1)
        return {"small_loss": w, "clean": w[:, 0] > threshold, "suspicion": 1 - w.mean(axis=1)}

    first = Method(
        init, (warm_up,), revise, num_networks=2, record_from="scan", predict_beside=BESIDE
    )
    return Stage(first, warmup), Stage(first._replace(steps=(mix,), num_views=2))


def guess(network, views):
    """Mean prediction over views, in eval mode, so that statistics are those of mixed images."""
    return sum(jax.nn.softmax(network.predict(view).logits) for view in views) / len(views)


def sharpen(p, temperature):
    """p_k^(1/T) / sum_j p_j^(1/T), [b, c]."""
    powers = p ** (1 / temperature)
    return powers / powers.sum(axis=1, keepdims=True)


def small_loss(losses, visited):
    """Probability of the component of small losses, which are brought to [0, 1] first; [N].

    Of examples that were not visited there is no loss; it is 0.
    """
    losses = losses[visited]
    low, high = losses.min(), losses.max()
    values = (losses - low) / jnp.maximum(high - low, 1e-12)
    probability = fit_two_gaussians(values).posterior(values)[:, 0]
    return jnp.zeros(len(visited), jnp.float32).at[visited].set(probability.astype(jnp.float32))
