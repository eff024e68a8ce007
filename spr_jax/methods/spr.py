"""SPR (Wang, Sun, Fu, CVPR 2022): learn from the labels that the features explain.

After every epoch a penalized regression of the labels on the features splits the training data
(`rules.py`). In the next epoch each mini-batch takes, at random, one of two steps:

    supervised   1/B sum_i clean_i (CE_i + lambda sum_k p_ik^q), or the penalty of noisy ones, too
    CutMix       boxes of other images pasted in; a noisy example's target is its prediction

The first epoch, which has no selection yet, is supervised throughout, as released. lambda grows by
a factor every epoch. B is the size of the batch, not the number of clean examples.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from spr_jax.augment import cutmix as paste_boxes
from spr_jax.losses import cross_entropy, sparse_norm, sparse_penalty
from spr_jax.methods.expect import expect
from spr_jax.methods.method import Method, weighted_mean
from spr_jax.methods.rules import RULES, SAYS, Choice
from spr_jax.methods.selection import mean_over
from spr_jax.registry import lookup
from spr_jax.solver import Options
from spr_jax.solver.knockoffs import Trial
from spr_jax.solver.select import SELECTORS


def spr(
    cutmix: float = 0.5,
    sparse: float = 1.2,
    growth: float = 1.02,
    q: float = 0.2,
    sparse_on: str = "probabilities",
    sparse_over: str = "clean",
    keep: float = 0.5,
    per_class: int = 10,
    classes_per_group: int = 10,
    pca_dim: int = 10,
    intercept: bool = False,
    select: str = "piece",
    level: float = 0.1,
    scale_level: bool = False,
    knockoffs: str = "random",
    fallback: str = "share",
    most_wrong: float = 0.1,
    least_right: float = 0.9,
    least_keep: float = 0.1,
    ties: str = "interpolated",
    penalty: str = "l21",
    num_penalties: int = 100,
    pairing: str = "batch",
    features: str = "train",
    by_clean: bool = False,
    visit_order_defect: bool = False,
) -> Method:
    """Scalable penalized regression: learn from the labels that the features explain.

    cutmix: chance of a CutMix step. sparse, growth: lambda in the first epoch, its growth.
    sparse_on: the penalty is of "probabilities", or of the "logits" as the paper's text has it.
    sparse_over: it is of the "clean" examples, or of "all": those without a label to be trusted are
    then learnt from as unlabelled ones, on which the network shall decide.
    per_class: examples of each class in a piece, 0 for the whole data at once.
    select: what is called clean. The share `keep` of each class, in each "piece" or over the whole
    data ("class"); labels that are wrong with a chance below `most_wrong` ("auto"); as many as the
    `level` of wrong labels among them allows ("knockoffs": "random" labels as rivals or "confident"
    ones, the level as it is or scaled as in the paper, and a `fallback` for classes that cannot
    attain it, the "share" or "none"); for ablations, all ("none") or a "random" share.
    least_right, least_keep: kept however poor the features are, by "auto" of the labels of each
    class that are likely right, by "knockoffs" of each class.
    pairing: "batch", or "clean_noisy" to mix clean with noisy only.
    features: of the training pass ("train") or of an eval-mode pass ("eval").
    by_clean: divide the loss by the number of clean examples.
    visit_order_defect: take positions in visiting order for indices, as the released code does
    (for a forensic experiment).
    """
    options = Options(
        pca_dim=pca_dim,
        intercept=intercept,
        select=select if select in SELECTORS else "class",
        ties=ties,
        penalty=penalty,
        num_penalties=num_penalties,
    )
    record_from = lookup({"train": "train", "eval": "scan"}, features)
    find_partner = lookup({"batch": lambda key, clean: None, "clean_noisy": _opposite}, pairing)
    penalize = lookup({"probabilities": sparse_penalty, "logits": sparse_norm}, sparse_on)
    find_clean = lookup(RULES, select)
    penalized = lookup({"clean": _clean_alone, "all": _everything}, sparse_over)
    lookup({"share": None, "none": None}, fallback)
    lookup({"random": None, "confident": None}, knockoffs)
    expect(0 < level < 1, "level", level, "a share between 0 and 1")
    expect(0 < most_wrong <= 1, "most_wrong", most_wrong, "a chance above 0, up to 1")
    expect(0 <= least_right <= 1, "least_right", least_right, "a share from 0 to 1")
    expect(0 <= least_keep < 1, "least_keep", least_keep, "a share from 0 to below 1")
    lookup({"interpolated": None, "released": None}, ties)
    trial = Trial(knockoffs, scale_level=scale_level, fallback=fallback, share=keep)
    choice = Choice(
        keep=keep,
        per_class=per_class,
        classes_per_group=classes_per_group,
        options=options,
        level=level,
        trial=trial,
        most_wrong=most_wrong,
        least_right=least_right,
        least_keep=least_keep,
    )

    def init(labels, num_classes):
        return {
            "labels": jnp.asarray(labels, jnp.int32),
            "clean": jnp.ones(len(labels), bool),
            "suspicion": jnp.zeros(len(labels), jnp.float32),
            "epoch": jnp.int32(0),
            "selection": {name: jnp.float32(0) for name in SAYS.get(select, ())},
        }

    def loss(networks, batch, memory, key):
        # As released: no penalty where supervised steps are the first epoch's only.
        weight = sparse * growth ** memory["epoch"].astype(jnp.float32) if cutmix < 1 else 0
        clean = memory["clean"][batch.index]
        penalty = partial(penalize, q=q)
        return supervised_step(
            networks,
            batch,
            clean,
            key,
            weight=weight,
            penalty=penalty,
            penalized=penalized(clean),
            by_clean=by_clean,
        )

    def mixed_loss(networks, batch, memory, key):
        clean = memory["clean"][batch.index]
        return cutmix_step(networks, batch, clean, key, find_partner=find_partner)

    def revise(memory, record, key):
        labels = np.asarray(memory["labels"])
        changes = find_clean(choice, record["features"], labels, key, memory["clean"])
        clean = changes["clean"] & record["visited"]
        if visit_order_defect:
            clean = clean[jnp.argsort(record["position"])]
        return memory | changes | {"clean": clean, "epoch": memory["epoch"] + 1}

    def describe(memory):
        return {"sparse_weight": sparse * growth ** int(memory["epoch"])}

    return Method(
        init=init,
        loss=loss,
        revise=revise,
        describe=describe,
        num_views=2 if cutmix > 0 else 1,
        record_from=record_from,
        other_loss=mixed_loss if cutmix > 0 else None,
        takes_other=lambda epoch, chance: epoch > 0 and chance < cutmix,
    )


def supervised_step(networks, batch, clean, key, *, weight, penalty, penalized, by_clean):
    """Cross-entropy of the clean examples, and the weighted sparse penalty of the penalized.

    The constant c^(1-q) that the released loss has for each noisy example carries no gradient and
    is left out.
    """
    output, network = networks[0].forward(batch.images, key)
    over = mean_over if by_clean else _part_of_mean
    loss = over(clean, cross_entropy(output.logits, batch.labels), batch.weights)
    loss += weight * over(penalized, penalty(output.logits), batch.weights)
    return loss, ((network,), {"features": output.features})


def _part_of_mean(chosen, losses, weights):
    """1/B sum_i chosen_i loss_i."""
    return weighted_mean(losses, weights * chosen)


def _clean_alone(clean):
    return clean


def _everything(clean):
    return jnp.ones_like(clean)


def cutmix_step(networks, batch, clean, key, *, find_partner):
    """Given labels of clean examples and predictions of noisy ones, mixed by pasted boxes.

    A prediction is the mean over two views, without gradient; the features are of the first.
    """
    first_key, second_key, mixed_key, partner_key, box_key = random.split(key, 5)
    output, network = lax.stop_gradient(networks[0].forward(batch.views[0], first_key))
    other, network = lax.stop_gradient(network.forward(batch.views[1], second_key))
    guess = jax.nn.softmax(output.logits) + jax.nn.softmax(other.logits)
    targets = jnp.where(clean, batch.labels, jnp.argmax(guess, axis=1))
    mixed = paste_boxes(box_key, batch.images, find_partner(partner_key, clean))
    network = networks[0].replace(batch_stats=network.batch_stats)
    final, network = network.forward(mixed.images, mixed_key)
    own = cross_entropy(final.logits, targets)
    partners = cross_entropy(final.logits, targets[mixed.partner])
    each = mixed.share * own + (1 - mixed.share) * partners
    return weighted_mean(each, batch.weights), ((network,), {"features": output.features})


def _opposite(key, clean):
    """For each example a random one of the other kind; of all, where there is no other kind."""
    chance = random.uniform(key, (len(clean), len(clean)))
    return jnp.argmax(chance + (clean[:, None] != clean), axis=1)
