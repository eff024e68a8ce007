"""Read config.json files written by earlier versions, in the words of this one."""

import json
from collections.abc import Mapping
from typing import Any

from spr_jax.backbones import BACKBONES
from spr_jax.datasets import DATASETS
from spr_jax.methods import METHODS
from spr_jax.methods.selection_rules import RULES
from spr_jax.registry import options_of
from spr_jax.training.base_config import get_config
from spr_jax.training.presets import ALIASES

CHANGE_NO_RESULT = ("dataset.data_dir", "workers", "compilation_cache", "checkpoint")

# Method -> old option -> new one.
SPR_TRAINING = {
    "sparse": "penalty_weight",
    "growth": "penalty_growth",
    "q": "penalty_q",
    "sparse_on": "penalty_of",
    "sparse_over": "penalize",
    "by_clean": "divide_by_clean",
}
RENAMED = {
    "spr": SPR_TRAINING | {"features": "record_from"},
    "small_loss": SPR_TRAINING,
    "oracle": SPR_TRAINING,
    "sr": {"every": "grow_every"},
    "pencil": {"learn": "label_epochs"},
    "plc": {"few": "min_changed"},
}
# The options of all rules were SPR's own before 0.2, and `select` a word.
RULE_OF = {
    "piece": {"name": "share", "within": "piece"},
    "class": {"name": "share", "within": "class"},
    "auto": {"name": "noise_model"},
    "knockoffs": {"name": "knockoffs"},
    "none": {"name": "all"},
    "random": {"name": "random"},
}
RULE_OPTIONS = {
    "most_wrong": "max_error_probability",
    "least_right": "min_correct_kept",
    "knockoffs": "rivals",
}
# A field that is missing was added after the run, which did as with its default, except for:
BEFORE_IT_EXISTED = {
    "method.select.min_correct_kept": "a tenth of each class",
    "method.final_rate": "the run's schedule",
}


def new_name(option: str) -> str | None:
    """The present name of a method's option that earlier versions had; None if it is unknown."""
    for renamed in RENAMED.values():
        if option in renamed:
            return renamed[option]
    new = RULE_OPTIONS.get(option, option)
    return f"select.{new}" if any(new in options_of(rule) for rule in RULES.values()) else None


def modernize(config: dict[str, Any]) -> dict[str, Any]:
    """Translate a config as JSON has it; one of this version stays as it is."""
    config = {name: value for name, value in config.items() if name != "by_preset"}
    preset = config.get("preset", "paper")
    config["preset"] = ALIASES.get(preset, preset)
    method = dict(config.get("method", {}))
    config["method"] = method
    old_rule = method.get("select")
    if isinstance(old_rule, str):
        method["select"] = _modern_rule(method, old_rule)
    for old, new in RENAMED.get(method.get("name", ""), {}).items():
        if old in method and new not in method:
            method[new] = method.pop(old)
    if method.get("record_from") == "eval":
        method["record_from"] = "scan"
    if method.get("name") in METHODS:  # a rule's options used to stand among its method's
        known = {"name", *options_of(METHODS[method["name"]])}
        config["method"] = {name: method[name] for name in method if name in known}
    return config


def _modern_rule(method, old_rule):
    rule = dict(RULE_OF[old_rule])
    known = options_of(RULES[rule["name"]])
    for old, value in method.items():
        new = RULE_OPTIONS.get(old, old)
        if new in known and new not in rule:
            rule[new] = value
    return rule


def differences(theirs: dict[str, Any], mine: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """(field, their value, mine) wherever two configs may lead to different results.

    `theirs` may be of an earlier version. A field it lacks was added since, and counts as the value
    that changes nothing.
    """
    return list(_compare(modernize(theirs), mine, defaults_of(mine)))


def _compare(theirs, mine, defaults, prefix=""):
    if theirs.get("name", mine.get("name")) != mine.get("name"):  # nothing else is comparable
        yield f"{prefix}name", theirs["name"], mine.get("name")
        return
    for name in sorted({*theirs, *mine}):
        field, own = prefix + name, mine.get(name)
        if field.startswith(CHANGE_NO_RESULT) or field == "preset":  # its choices stand elsewhere
            continue
        missing = BEFORE_IT_EXISTED.get(field, defaults.get(name, own))
        other = theirs.get(name, missing)
        if isinstance(own, dict) and isinstance(other, dict):
            inner = defaults.get(name)
            yield from _compare(other, own, inner if isinstance(inner, dict) else {}, f"{field}.")
        elif other != own:
            yield field, other, own


def complete(config: dict[str, Any]) -> dict[str, Any]:
    """Add the fields that a config lacks, at their defaults."""

    def merge(defaults, given):
        pairs = {name: (defaults[name], given[name]) for name in defaults if name in given}
        inner = {
            name: merge(*pair)
            for name, pair in pairs.items()
            if all(isinstance(value, dict) for value in pair)
        }
        return defaults | given | inner

    defaults = defaults_of(config)
    del defaults["by_preset"]
    return merge(defaults, config)


def defaults_of(config: dict[str, Any]) -> dict[str, Any]:
    """Default values of the fields that a run with this config has."""
    names = {kind: config.get(kind, {}).get("name") for kind in ("method", "dataset", "backbone")}
    known: dict[str, Mapping] = {"method": METHODS, "dataset": DATASETS, "backbone": BACKBONES}
    chosen = {kind: name for kind, name in names.items() if name in known[kind]}
    defaults = json.loads(get_config(**chosen).to_json())
    if names["method"] in METHODS:
        defaults["method"] = options_of(METHODS[names["method"]])
    rule = config.get("method", {}).get("select")
    if isinstance(rule, dict) and rule.get("name") in RULES:
        defaults["method"]["select"] = options_of(RULES[rule["name"]])
    return defaults
