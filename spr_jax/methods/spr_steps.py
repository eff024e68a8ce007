"""The two steps of SPR's training, given which examples of the batch are clean, or how surely.

    supervised   1/B sum_i clean_i (CE_i + lambda sum_k p_ik^q), or the penalty of noisy ones, too
    mixed        two examples in one, by CutMix; a noisy example's target is its prediction

lambda grows by a factor every epoch. As published, B is the size of the batch; with
`divide_by_clean`, the number of examples that the term is over. Where transitions T between classes
are known, the supervised step may learn from all labels instead, by their likelihood,

    likelihood   -1/B sum_i log sum_t p_it T_{t y_i}
"""

import jax
import jax.numpy as jnp
from jax import lax, random

from spr_jax.losses import cross_entropy, forward_corrected
from spr_jax.methods.batch_masks import mean_over
from spr_jax.methods.method import weighted_mean
from spr_jax.methods.whole_batch import common_key, own_part, whole


def supervised_step(
    networks,
    batch,
    clean,
    key,
    *,
    weight,
    penalty,
    penalized,
    divide_by_clean,
    transition=None,
):
    """Sum cross-entropy of the clean examples and the weighted sparse penalty of the penalized.

    `clean` and `penalized` are masks, or weights from 0 to 1; a `transition` [c, c] takes the
    likelihood of the labels in place of cross-entropy.

    The constant c^(1-q) that the released loss has for each noisy example carries no gradient and
    is left out.
    """
    output, network = networks[0].forward(batch.images, key)
    over = mean_over if divide_by_clean else _part_of_mean
    if transition is None:
        each = cross_entropy(output.logits, batch.labels)
    else:
        each = forward_corrected(output.logits, batch.labels, transition)
    loss = over(clean, each, batch.weights)
    loss += weight * over(penalized, penalty(output.logits), batch.weights)
    return loss, ((network,), {"features": output.features})


def _part_of_mean(chosen, losses, weights):
    """1/B sum_i chosen_i loss_i."""
    return weighted_mean(losses, weights * chosen)


def mixed_step(networks, batch, clean, key, *, mix, find_partner):
    """Mix examples two by two, with given labels of clean and predictions of noisy ones.

    A prediction is the mean over two views, without gradient; the features are those of the first.
    Partners are of the whole batch, and the same is drawn for it on all devices.
    """
    first_key, second_key, mixed_key, drawing_key = random.split(key, 4)
    partner_key, box_key = random.split(common_key(drawing_key))
    output, network = lax.stop_gradient(networks[0].forward(batch.views[0], first_key))
    other, network = lax.stop_gradient(network.forward(batch.views[1], second_key))
    guess = jax.nn.softmax(output.logits) + jax.nn.softmax(other.logits)
    targets = jnp.where(clean, batch.labels, jnp.argmax(guess, axis=1))
    everyone, every_target, every_clean = whole((batch.images, targets, clean))
    partner = own_part(find_partner(partner_key, every_clean))
    mixed = mix(box_key, batch.images, everyone[partner])
    network = networks[0].replace(batch_stats=network.batch_stats)
    final, network = network.forward(mixed.images, mixed_key)
    own = cross_entropy(final.logits, targets)
    partners = cross_entropy(final.logits, every_target[partner])
    each = mixed.share * own + (1 - mixed.share) * partners
    return weighted_mean(each, batch.weights), ((network,), {"features": output.features})


def any_partner(key, clean):
    """For each example another one, or itself: a random permutation, [B]."""
    return random.permutation(key, len(clean))


def opposite_partner(key, clean):
    """For each example pick a random one of the other kind, or of all if there is no other kind."""
    draws = random.uniform(key, (len(clean), len(clean)))
    return jnp.argmax(draws + (clean[:, None] != clean), axis=1)
