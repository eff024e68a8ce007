"""INCV (Chen et al., 2019): cross-validate on noisy labels, then co-teach on those that agree.

https://arxiv.org/abs/1905.05040. The candidates, at first all examples, are halved. A network that
is trained on one half, and on what was selected before, selects the examples of the other half
whose label it predicts. If noise of rate e is symmetric, it predicts as it was taught, so that

    (1 - e)^2 + e^2 / (c - 1)

of the labels agree: this gives e. Of the others, those with the largest losses are discarded,
min(2, e / (1 - e)) times as many as were selected. The rest is halved anew. In the end two fresh
networks teach each other on the selected examples, and leave out the fraction of wrong labels
among them,

    e^2 / (e^2 + (c - 1) (1 - e)^2).

Later on the remaining candidates are offered to them, too.
"""

import warnings
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import lax, random

from spr_jax.devices import AXIS
from spr_jax.losses import cross_entropy
from spr_jax.methods.batch_masks import mean_over
from spr_jax.methods.method import Method, Stage, expect, training_weights
from spr_jax.methods.peers import SCORED, forward_all, taught_by_peer
from spr_jax.methods.topofilter import is_lost
from spr_jax.methods.whole_batch import common_key, own_part, whole

CANDIDATE, SELECTED, DISCARDED = range(3)


def incv(
    iterations: int = 4,
    fold_epochs: int = 50,
    top: int = 1,
    symmetric: bool = True,
    ramp: int = 10,
    add_from: int = 40,
) -> tuple[Stage, ...]:
    """Iterative noisy cross-validation: co-teaching on labels that held-out networks predict.

    A fold is judged after its last epoch; the released code takes the epoch that agrees best with
    the held-out labels in some of them. The first halves are every second example of a class.

    Args:
      iterations: of the cross-validation.
      fold_epochs: epochs of each of its trainings, two per iteration, all from the same weights.
      top: classes that count as predicted, the most probable ones; c - 1 above is c / top - 1.
      symmetric: whether the noise is; if not, nothing is discarded, and the last c - 1 above is 1.
      ramp: epochs in which the fraction left out grows from zero.
      add_from: epoch of co-teaching from which candidates are offered, for each two selected
        examples at most one; twice as late if the noise is asymmetric, or e above 0.6.
    """
    counts = {"iterations": iterations, "fold_epochs": fold_epochs, "top": top, "ramp": ramp}
    for name, value in counts.items():
        expect(value >= 1, name, value, "1 or more")
    expect(add_from >= 0, "add_from", add_from, "0 or more")

    def init(labels, num_classes):
        expect(top < num_classes, "top", top, f"less than the {num_classes} classes")
        role = jnp.full(len(labels), CANDIDATE, jnp.int32)
        return {
            "role": role,
            "next_role": role,  # as judged; it holds once both halves are
            "half": (training_weights(labels, num_classes, every=2) > 0).astype(jnp.int32),
            "noise_rate": jnp.float32(-1),  # not known yet
            "clean": jnp.ones(len(labels), bool),
        }

    def all_selected(labels, num_classes):  # until the folds hand on what they found
        memory = init(labels, num_classes)
        return memory | {"role": memory["role"] + SELECTED, "noise_rate": jnp.float32(0)}

    def trained_on(half):
        def loss(networks, batch, memory, key):
            output, network = networks[0].forward(batch.images, key)
            role, own = memory["role"][batch.index], memory["half"][batch.index] == half
            chosen = (role == SELECTED) | ((role == CANDIDATE) & own)
            each = cross_entropy(output.logits, batch.labels)
            return mean_over(chosen, each, batch.weights), ((network,), {})

        return loss

    def judge(memory, epoch, key, *, half, is_last):
        if epoch.number + 1 < fold_epochs:
            return memory
        logits, labels = np.asarray(epoch.scan()["logits"]), np.asarray(epoch.labels)
        judged = (memory["role"] == CANDIDATE) & (memory["half"] != half) & epoch.visited
        rank = np.sum(logits > np.take_along_axis(logits, labels[:, None], axis=1), axis=1)
        agrees, noise_rate = judged & (rank < top), memory["noise_rate"]
        if noise_rate < 0:
            agreement = agrees.sum() / max(judged.sum(), 1)
            noise_rate = np.float32(estimate_noise(agreement, logits.shape[1], top))
        role = np.where(agrees, SELECTED, memory["next_role"])
        if symmetric:
            others = np.flatnonzero(judged & ~agrees)
            worst_first = np.argsort(-np.asarray(cross_entropy(logits[others], labels[others])))
            most = int(min(2, noise_rate / (1 - noise_rate)) * agrees.sum())
            role[others[worst_first[:most]]] = DISCARDED
        if is_last:
            lost = is_lost(labels, role == SELECTED)
            role[lost] = SELECTED
            if lost.any():  # once, as this is the last fold
                names = np.unique(labels[lost]).tolist()
                warnings.warn(f"Nothing of the classes {names} agrees: all is kept.", stacklevel=2)
        memory = memory | {"next_role": role.astype(np.int32), "noise_rate": noise_rate}
        memory["clean"] = role == SELECTED
        if half == 0:
            return memory
        halves = np.asarray(random.permutation(key, len(labels)) % 2, np.int32)
        return memory | {"role": memory["next_role"], "half": halves}

    def teach(networks, batch, memory, key):
        forward_key, draw_key = random.split(key)
        outputs, networks = forward_all(networks, batch.images, forward_key)
        losses = [cross_entropy(output.logits, batch.labels) for output in outputs]
        role, rate, real = memory["role"][batch.index], memory["noise_rate"], batch.weights > 0
        first = add_from * jnp.where(symmetric & (rate <= 0.6), 1, 2)
        num_candidates, num_selected, _ = jnp.bincount(memory["role"], length=3)
        draws = random.uniform(common_key(draw_key), whole(role).shape)  # for any devices alike
        offered = own_part(draws) < num_selected / num_candidates / 2
        selected = real & (role == SELECTED)
        among = selected | (real & (role == CANDIDATE) & offered & (batch.epoch >= first))
        wrong = wrong_among_selected(rate, outputs[0].logits.shape[1] if symmetric else 2)
        # As many are learned from as without the candidates.
        share = lax.psum(selected.sum(), AXIS) / jnp.maximum(lax.psum(among.sum(), AXIS), 1)
        share *= 1 - wrong * jnp.minimum(batch.epoch / ramp, 1)
        return taught_by_peer(losses, among, share, batch.weights), (networks, {})

    def describe(memory, epoch):
        known = memory["noise_rate"] >= 0
        return {"estimated_noise": float(memory["noise_rate"])} if known else {}

    losses_of = trained_on(0), trained_on(1)
    folds: list[Stage] = []
    for half in (0, 1) * iterations:
        revise = partial(judge, half=half, is_last=len(folds) == 2 * iterations - 1)
        fold = Method(init, (losses_of[half],), revise, describe=describe)
        folds.append(Stage(fold, fold_epochs, restart="same"))
    teaching = Method(all_selected, (teach,), describe=describe, num_networks=2, **SCORED)
    return *folds, Stage(teaching, restart="fresh")


def estimate_noise(agreement, num_classes, top=1):
    """Solve (1 - e)^2 + a e^2 = agreement with a = 1 / (c / top - 1), for the smaller root."""
    a = top / (num_classes - top)
    return (1 - np.sqrt(max(0, 1 - (1 + a) * (1 - agreement)))) / (1 + a)


def wrong_among_selected(rate, num_classes):
    """Fraction of wrong labels among those that agree: label and network are wrong alike."""
    return rate**2 / (rate**2 + (num_classes - 1) * (1 - rate) ** 2)
