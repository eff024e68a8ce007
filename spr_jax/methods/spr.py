"""SPR (Wang, Sun, Fu, CVPR 2022): learn from the labels that the features explain.

After every epoch a penalized regression of the labels on the features splits the training data
(`solver.clean_set`). In the next epoch each mini-batch takes, at random, one of two steps:

    supervised   1/B sum_i clean_i (CE_i + lambda sum_k p_ik^q)
    CutMix       boxes of other images pasted in; a noisy example's target is its prediction

The first epoch, which has no selection yet, is supervised throughout, as released. lambda grows by
a factor every epoch. B is the size of the batch, not the number of clean examples.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.sharding import NamedSharding, PartitionSpec

from spr_jax.augment import cutmix as paste_boxes
from spr_jax.devices import AXIS, device_mesh
from spr_jax.losses import cross_entropy, sparse_norm, sparse_penalty
from spr_jax.methods.method import Method, weighted_mean
from spr_jax.registry import lookup
from spr_jax.solver import Options, clean_set, plan_pieces
from spr_jax.solver.select import SELECTORS


def spr(
    cutmix: float = 0.5,
    sparse: float = 1.2,
    growth: float = 1.02,
    q: float = 0.2,
    sparse_on: str = "probabilities",
    keep: float = 0.5,
    per_class: int = 10,
    classes_per_group: int = 10,
    pca_dim: int = 10,
    intercept: bool = False,
    select: str = "piece",
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
    keep: share of each class called clean. per_class: examples of each class in a piece, 0 for the
    whole data at once. select: a rule of solver.SELECTORS; or, for ablations, "none" to call all
    examples clean and "random" a random share of them. pairing: "batch", or "clean_noisy" to mix
    clean with noisy only. features: of the training pass ("train") or of an eval-mode pass
    ("eval"). by_clean: divide the loss by the number of clean examples. visit_order_defect: take
    positions in visiting order for indices, as the released code does (for a forensic experiment).
    """
    options = Options(
        pca_dim=pca_dim,
        intercept=intercept,
        select=select,
        ties=ties,
        penalty=penalty,
        num_penalties=num_penalties,
    )
    record_from = lookup({"train": "train", "eval": "scan"}, features)
    find_partner = lookup({"batch": lambda key, clean: None, "clean_noisy": _opposite}, pairing)
    penalize = lookup({"probabilities": sparse_penalty, "logits": sparse_norm}, sparse_on)
    lookup({**SELECTORS, "none": None, "random": None}, select)  # fail now, not after an epoch
    lookup({"interpolated": None, "released": None}, ties)

    def init(labels, num_classes):
        return {
            "labels": jnp.asarray(labels, jnp.int32),
            "clean": jnp.ones(len(labels), bool),
            "entry": jnp.zeros(len(labels), jnp.float32),
            "epoch": jnp.int32(0),
        }

    def loss(networks, batch, memory, key):
        # As released: no penalty where supervised steps are the first epoch's only.
        weight = sparse * growth ** memory["epoch"].astype(jnp.float32) if cutmix < 1 else 0
        clean = memory["clean"][batch.index]
        penalty = partial(penalize, q=q)
        return supervised_step(
            networks, batch, clean, key, weight=weight, penalty=penalty, by_clean=by_clean
        )

    def mixed_loss(networks, batch, memory, key):
        clean = memory["clean"][batch.index]
        return cutmix_step(networks, batch, clean, key, find_partner=find_partner)

    def find_clean(memory, record, key):
        """Clean set and entry penalties, [N] each."""
        count = len(memory["labels"])
        if select == "none":
            return jnp.ones(count, bool), memory["entry"]
        if select == "random":
            return random.bernoulli(key, keep, (count,)), memory["entry"]
        mesh = device_mesh()
        labels = np.asarray(memory["labels"])
        plan = plan_pieces(
            labels,
            per_class=per_class or None,
            classes_per_group=min(classes_per_group, int(labels.max()) + 1),
            multiple_of=mesh.size,
        )
        arguments = (record["features"], labels, key, memory["clean"])
        arguments = jax.device_put(arguments, NamedSharding(mesh, PartitionSpec()))
        found = clean_set(*arguments, keep, plan=plan, options=options, mesh=mesh)
        # Examples that were not visited (drop_last) are rows of zeros in this regression, too few
        # to bend it.
        return found.clean & record["visited"], found.entry

    def revise(memory, record, key):
        clean, entry = find_clean(memory, record, key)
        if visit_order_defect:
            clean = clean[jnp.argsort(record["position"])]
        return memory | {"clean": clean, "entry": entry, "epoch": memory["epoch"] + 1}

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


def supervised_step(networks, batch, clean, key, *, weight, penalty, by_clean):
    """Cross-entropy and the weighted sparse penalty of clean examples alone.

    The constant c^(1-q) that the released loss has for each noisy example carries no gradient and
    is left out.
    """
    output, network = networks[0].forward(batch.images, key)
    each = cross_entropy(output.logits, batch.labels) + weight * penalty(output.logits)
    weights = batch.weights * clean
    if by_clean:
        weights /= jnp.maximum(lax.pmean(weights.mean(), AXIS), 1e-6)
    return weighted_mean(each, weights), ((network,), {"features": output.features})


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
