"""SPR (Wang, Sun, Fu, CVPR 2022): learn from the labels that the features explain.

After every epoch a rule (`selection_rules.py`; the paper's is a penalized regression of the labels
on the features) splits the training data into clean and noisy. In the next epoch each mini-batch
takes, at random, one of two steps (`spr_steps.py`): supervised, or CutMix. The first epoch, which
has no selection yet, is supervised throughout, as released.
"""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
import numpy as np

from spr_jax import augment
from spr_jax.losses import sparse_norm, sparse_penalty
from spr_jax.methods.method import Method, expect
from spr_jax.methods.refinement import refine
from spr_jax.methods.selection_rules import RULES
from spr_jax.methods.spr_steps import any_partner, mixed_step, opposite_partner, supervised_step
from spr_jax.registry import build, extends, lookup

PAPERS_RULE = MappingProxyType({"name": "share"})


def spr_training(
    *,
    cutmix: float = 0.5,
    mixing: str = "cutmix",
    penalty_weight: float = 1.2,
    penalty_growth: float = 1.02,
    penalty_q: float = 0.2,
    penalty_of: str = "probabilities",
    penalize: str = "clean",
    pairing: str = "batch",
    divide_by_clean: bool = False,
) -> Method:
    """SPR's training with all labels called clean; whoever selects replaces `init` and `revise`.

    Args:
      cutmix: probability of a step that mixes examples.
      mixing: how: "cutmix" pastes a part of one image into another; "mixup", of images or vectors,
        averages them.
      penalty_weight: lambda of the sparse penalty in the first epoch.
      penalty_growth: factor by which lambda grows every epoch.
      penalty_q: exponent q of the penalty sum_k p_k^q.
      penalty_of: penalize "probabilities", or "logits" as the paper's text has it.
      penalize: the "clean" examples, or "all": untrusted examples then act as unlabeled data, on
        which the penalty pushes the network to commit to one class.
      pairing: mix with any example of the "batch", or "clean_noisy": clean with noisy ones only.
      divide_by_clean: divide the loss by the number of clean examples, or the sum of their weights,
        not by the batch size.
    """
    expect(0 <= cutmix <= 1, "cutmix", cutmix, "a probability from 0 to 1")
    find_partner = lookup({"batch": any_partner, "clean_noisy": opposite_partner}, pairing)
    mix = lookup({"cutmix": augment.cutmix, "mixup": augment.mixup}, mixing)
    penalty = lookup({"probabilities": sparse_penalty, "logits": sparse_norm}, penalty_of)
    penalized = lookup({"clean": lambda clean: clean, "all": jnp.ones_like}, penalize)

    def init(labels, num_classes):
        return {
            "clean": jnp.ones(len(labels), bool),
            "suspicion": jnp.zeros(len(labels), jnp.float32),
        }

    def supervised(networks, batch, memory, key):
        growth = penalty_growth ** batch.epoch.astype(jnp.float32)
        # As released: no penalty where supervised steps are the first epoch's only.
        weight = penalty_weight * growth if cutmix < 1 else 0
        trust, transition = counted(memory, batch.index)
        return supervised_step(
            networks,
            batch,
            trust,
            key,
            weight=weight,
            penalty=partial(penalty, q=penalty_q),
            penalized=penalized(trust),
            divide_by_clean=divide_by_clean,
            transition=transition,
        )

    def mixed(networks, batch, memory, key):
        clean = memory["clean"][batch.index]
        return mixed_step(networks, batch, clean, key, mix=mix, find_partner=find_partner)

    def describe(memory, epoch):
        return {"sparse_weight": penalty_weight * penalty_growth**epoch}

    return Method(
        init=init,
        steps=(supervised, mixed) if cutmix > 0 else (supervised,),
        describe=describe,
        choose_step=lambda epoch, draw: int(epoch > 0 and draw < cutmix),
        num_views=2 if cutmix > 0 else 1,
    )


def counted(memory, index):
    """How much each of these labels counts, and the transitions of their likelihood, if any."""
    if "transition" in memory:
        return jnp.ones(len(index)), memory["transition"]
    known = memory["correct"] if "correct" in memory else memory["clean"]
    return known[index], None


@extends(spr_training)
def spr(
    *,
    weights: str = "hard",
    record_from: str = "train",
    refine_after: int = 0,
    visit_order_defect: bool = False,
    select: Mapping[str, Any] = PAPERS_RULE,
    **training,
) -> Method:
    """Scalable penalized regression: learn from the labels that the features explain.

    Args:
      weights: learn from clean examples alone ("hard"), from each in proportion to the
        "probability" that its label is correct, or from all by the "likelihood" of their labels,
        given how often the noise model finds each class labeled as another.
      record_from: select by features of the training pass ("train"), of an eval-mode pass after
        the epoch ("scan"), or by the "inputs" themselves, where these are vectors. Those do not
        change, so the selection after the first epoch stays, or is refined once.
      refine_after: epochs after which the probabilities of a selection by the inputs are estimated
        anew from what the network predicts (`refinement.py`: if there are at least 30,000 examples,
        and unless it would explain most of the noise away); 0: never.
      visit_order_defect: take positions in visiting order for indices, as the released code does
        (for a forensic experiment).
      select: name and options of the selection rule.
      **training: options of `spr_training`.
    """
    rule = build(RULES, select)
    lookup({"train": None, "scan": None, "inputs": None}, record_from)
    lookup(dict.fromkeys(("hard", "probability", "likelihood")), weights)
    by_probability, by_likelihood = weights == "probability", weights == "likelihood"
    expect(
        rule.models_noise or weights == "hard",
        "weights",
        weights,
        f"'hard' with the rule {select['name']!r}, which does not model the noise",
    )
    can_refine = by_probability and record_from == "inputs"
    expect(
        refine_after == 0 or (refine_after > 1 and can_refine),  # the first epoch selects
        "refine_after",
        refine_after,
        "0, for never, or with weights='probability' and record_from='inputs' 2 or more",
    )
    trained = spr_training(**training)

    def init(labels, num_classes):
        numbers = {name: jnp.float32(0) for name in rule.numbers}
        memory = trained.init(labels, num_classes) | {"selection": numbers}
        if by_likelihood:  # at first every label is taken as it is
            memory |= {"transition": jnp.eye(num_classes)}
        return memory | ({"correct": jnp.ones(len(labels))} if by_probability else {})

    def revise(memory, epoch, key):
        if record_from == "inputs" and epoch.number > 0:
            return refine(memory, epoch) if epoch.number + 1 == refine_after else memory
        labels = np.asarray(epoch.labels)
        chosen = rule.choose(epoch.record["features"], labels, key, memory["clean"])
        clean = chosen.clean & epoch.visited
        if visit_order_defect:
            clean = clean[jnp.argsort(epoch.position)]
        memory = memory | {"clean": clean, "selection": dict(chosen.numbers)}
        if by_likelihood:  # classes above the highest label have no transitions
            seen, known = len(chosen.transition), jnp.asarray(memory["transition"])
            memory |= {"transition": known.at[:seen, :seen].set(chosen.transition)}
        if by_probability:
            memory |= {"correct": jnp.where(epoch.visited, 1 - chosen.suspicion, 0)}
        return memory if chosen.suspicion is None else memory | {"suspicion": chosen.suspicion}

    return trained._replace(init=init, revise=revise, record_from=record_from)
