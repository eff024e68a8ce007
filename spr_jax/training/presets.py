"""Presets of SPR: which selection rule runs, and how its training uses what is selected."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict, config_dict

from spr_jax.methods.selection_rules import RULES
from spr_jax.registry import lookup, options_of, suggestion


class Preset(NamedTuple):
    """A word for several choices, each of which the user may set instead."""

    runs: str  # in words
    rule: Mapping[str, Any]  # name and, where they are not its defaults, options
    training: Mapping[str, Any]  # option of SPR's training -> value


AS_PUBLISHED = {"penalize": "clean", "divide_by_clean": False, "record_from": "train"}
# A loss divided by the batch would shrink the step by the fraction of labels left out. Features of
# the training pass are each of another network; early in training they explain fewer labels.
OURS = {"penalize": "all", "divide_by_clean": True, "record_from": "scan"}


PRESETS = {
    "paper": Preset(
        "SPR as in the paper's text: the penalized-regression path over small pieces",
        {"name": "share"},
        AS_PUBLISHED,
    ),
    "released": Preset(
        "SPR with the values of the released scripts, defects repaired: the path over small pieces",
        {"name": "share", "ties": "released"},
        AS_PUBLISHED,
    ),
    "noise_model": Preset(
        "ours: the label-noise model on the robust fit of the whole data; no path is solved",
        {"name": "noise_model"},
        OURS,
    ),
    "path": Preset(
        "the penalized-regression path of the whole data, the share of each class from the "
        "noise model",
        {"name": "path"},
        OURS,
    ),
}
OTHER_RULE = "other_rule"  # beside the presets: where the user names another rule
ALIASES = {"exact": "noise_model"}  # the name before 0.2


def canonical_preset(name: str) -> str:
    """The present name of a preset; warns of an old one."""
    if name in ALIASES:
        warnings.warn(
            f"The preset {name!r} is now called {ALIASES[name]!r}; the old name will go in 0.3.",
            FutureWarning,
            stacklevel=2,
        )
        return ALIASES[name]
    if name not in PRESETS:
        raise ValueError(f"preset is {name!r}; {suggestion(name, PRESETS)}")
    return name


def decide(
    config: ConfigDict,
    field: str,
    *,
    paper: Any,
    released: Any,
    ours: Any,
    path: Any = ...,
    other_rule: Any = ...,
) -> None:
    """Let the preset choose a field such as "optimizer.momentum", unless the user sets it.

    Without a value for it, the preset `path` has ours. `other_rule` is the value where the user
    names another selection rule than the preset's. None leaves an option of the rule open. A value
    may be a function of the config as it is run, where it follows from other fields.
    """
    section, name = _place_of(config, field.split("."))
    section[name] = config_dict.placeholder(section.get_type(name))
    path = ours if path is ... else path
    by_preset = {"paper": paper, "released": released, "noise_model": ours, "path": path}
    if other_rule is not ...:
        by_preset[OTHER_RULE] = other_rule
    config.by_preset[field.replace(".", "/")] = ConfigDict(by_preset)


def _place_of(config, names):
    """The section of a field, and its name there."""
    for name in names[:-1]:
        config = config[name]
    return config, names[-1]


def left_open(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a method that the preset decides, without a value."""
    names = {name: type(value) for name, value in OURS.items() if name in options}
    found = {name: config_dict.placeholder(kind) for name, kind in names.items()}
    return found | ({"select": undecided_rule()} if "select" in options else {})


def undecided_rule() -> ConfigDict:
    """A selection rule whose name and options are all open: those of every rule can be set."""
    options = {name: type(value) for rule in RULES.values() for name, value in _options(rule)}
    return ConfigDict(
        {"name": config_dict.placeholder(str)}
        | {name: config_dict.placeholder(kind) for name, kind in options.items()}
    )


def _options(rule):
    return options_of(rule).items()


def resolve(config: ConfigDict) -> None:
    """Fill in what the preset decides and the user left open; drop what the rule does not read."""
    config.preset = canonical_preset(config.preset)
    preset = PRESETS[config.preset]
    rule = config.method.select.name if "select" in config.method else None
    names_other = rule not in (None, preset.rule["name"])
    for field, by_preset in config.get("by_preset", {}).items():
        section, name = _place_of(config, field.split("/"))
        key = OTHER_RULE if names_other and OTHER_RULE in by_preset else config.preset
        value = by_preset[key]
        if section[name] is None and value is not None:
            section[name] = value(config) if callable(value) else value
    for name, value in preset.training.items():
        if name in config.method and config.method[name] is None:
            config.method[name] = value
    with config.unlocked():
        if "by_preset" in config:
            del config.by_preset
        if "select" in config.method:
            config.method.select = ConfigDict(resolve_rule(config.method.select, preset))


def resolve_rule(select: Mapping[str, Any], preset: Preset) -> dict[str, Any]:
    """Name and options of the rule: those set, then the preset's, then the rule's defaults."""
    name = select["name"] or preset.rule["name"]
    known = options_of(lookup(RULES, name))
    given = {key: value for key, value in select.items() if key != "name" and value is not None}
    for option, value in given.items():
        if option not in known:
            raise ValueError(
                f"method.select.{option} is {value!r}, but the rule {name!r} has no such option; "
                f"it has {', '.join(known) or 'none'}."
            )
    presets_own = dict(preset.rule) if preset.rule["name"] == name else {}
    return known | presets_own | given | {"name": name}
