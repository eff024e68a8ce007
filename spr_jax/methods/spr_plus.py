"""SPR+: SSR's training (Feng et al., 2022) with SPR's selection in place of the neighbors' vote.

Labels y are replaced where the network is sure (`relabeling.py`); then a rule of SPR
(`selection_rules.py`) selects the examples whose y the features explain. Vectors do not change, so
by the inputs given labels are judged once, after the first epoch; a label of which the network is
sure then needs no other judge. The running average of the network (`config.ema`) and mirrored
images in tests (`config.tta`), which belong to the recipe, are options of the run.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spr_jax.methods.method import Method, expect
from spr_jax.methods.relabeling import relabel, relabeled_training, with_selection
from spr_jax.methods.selection_rules import RULES
from spr_jax.registry import build, extends, lookup

OUR_RULE = MappingProxyType({"name": "noise_model"})


@extends(relabeled_training)
def spr_plus(
    *,
    judge_by: str = "network",
    weights: str = "hard",
    select: Mapping[str, Any] = OUR_RULE,
    **training,
) -> Method:
    """SPR+: SPR's selection with confident relabeling, balanced classes, MixUp and agreeing views.

    Args:
      judge_by: features that explain labels: those of the "network" after each epoch, or the
        "inputs" themselves, where these are vectors.
      weights: learn from clean examples alone ("hard"), or from each in proportion to the
        "probability" that its label is correct.
      select: name and options of the selection rule.
      **training: options of `relabeled_training`.
    """
    rule = build(RULES, select)
    by_inputs = lookup({"network": False, "inputs": True}, judge_by)
    by_probability = lookup({"hard": False, "probability": True}, weights)
    expect(
        rule.gives_probability or not by_probability,
        "weights",
        weights,
        f"'hard' with the rule {select['name']!r}, which gives no probabilities",
    )
    trained = relabeled_training(**training)
    above, balance = training.get("relabel_above", 0.9), training.get("balance", True)

    def init(labels, num_classes):
        numbers = {name: jnp.float32(0) for name in ("relabeled", *rule.numbers)}
        trust = jnp.ones(len(labels), jnp.float32)  # of labels as the rule last judged them
        return trained.init(labels, num_classes) | {"selection": numbers, "trust": trust}

    def revise(memory, epoch, key):
        logits = jnp.asarray((epoch.scan() if by_inputs else epoch.record)["logits"])
        labels = relabel(logits, epoch.labels, above)
        if not by_inputs or epoch.number == 0:
            judged = np.asarray(epoch.labels if by_inputs else labels)
            chosen = rule.choose(epoch.record["features"], judged, key, memory["clean"])
            trust = 1 - chosen.suspicion if by_probability else chosen.clean
            memory = memory | {
                "trust": trust.astype(jnp.float32),
                "selection": memory["selection"] | dict(chosen.numbers),
            }
            if chosen.suspicion is not None:  # a label that was replaced is as suspect as any
                most = chosen.suspicion.max()
                suspicion = jnp.where(judged == epoch.labels, chosen.suspicion, most)
                memory = memory | {"suspicion": suspicion}
        trust = jnp.asarray(memory["trust"])
        if by_inputs:
            trust = jnp.where(jax.nn.softmax(logits).max(axis=1) > above, 1, trust)
        return with_selection(memory, epoch, labels, trust, balance=balance)

    record_from = "inputs" if by_inputs else "scan"
    return trained._replace(init=init, revise=revise, record_from=record_from)
