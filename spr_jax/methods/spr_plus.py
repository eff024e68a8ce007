"""SPR+: SSR's training (`ssr.py`) with SPR's selection in place of the neighbors' vote.

Vectors do not change, so by the inputs given labels are judged once, after the first epoch; a label
of which the network is sure then needs no other judge. The running average of the network
(`config.ema`) and mirrored images in tests (`config.tta`) are options of the run.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
import numpy as np

from spr_jax.methods.method import Method, expect
from spr_jax.methods.selection_rules import RULES
from spr_jax.methods.ssr import relabeled_training
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
        rule.models_noise or not by_probability,
        "weights",
        weights,
        f"'hard' with the rule {select['name']!r}, which gives no probabilities",
    )

    def judge(memory, epoch, labels, sure, key):
        if not by_inputs or epoch.number == 0:
            memory = memory | apply_rule(memory, epoch, epoch.labels if by_inputs else labels, key)
        return memory, jnp.where(sure & by_inputs, 1, memory["trust"])

    def apply_rule(memory, epoch, labels, key):
        found = rule.choose(epoch.record["features"], np.asarray(labels), key, memory["clean"])
        trust = 1 - found.suspicion if by_probability else found.clean
        suspicion = memory["suspicion"]
        if found.suspicion is not None:  # a label that was replaced is as suspect as any
            worst = found.suspicion.max()
            suspicion = jnp.where(labels == epoch.labels, found.suspicion, worst)
        return {
            "trust": trust.astype(jnp.float32),
            "suspicion": suspicion,
            "selection": memory["selection"] | dict(found.numbers),
        }

    trained = relabeled_training(judge, **training)

    def init(labels, num_classes):
        numbers = {name: jnp.float32(0) for name in ("relabeled", *rule.numbers)}
        trust = jnp.ones(len(labels), jnp.float32)  # in the labels that the rule judged last
        return trained.init(labels, num_classes) | {"selection": numbers, "trust": trust}

    return trained._replace(init=init, record_from="inputs" if by_inputs else "scan")
