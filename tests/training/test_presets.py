"""What presets decide, what the user decides, and what a selection rule refuses."""

from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

from spr_jax.methods import METHODS
from spr_jax.methods.selection_rules import RULES
from spr_jax.registry import build, options_of
from spr_jax.training.base_config import get_config
from spr_jax.training.config import check, resolve
from spr_jax.training.presets import PRESETS

HOME = Path(__file__).parents[2] / "configs"
EXPERIMENTS = sorted({path.stem for path in HOME.glob("*.py")} - {"__init__", "recipes"})


def resolved(experiment="animal10n", preset="paper", method="spr", **changes):
    """All fields of an experiment as they are run, by dotted name."""
    config = import_module(f"configs.{experiment}").get_config(method)
    config.preset = preset
    config.update_from_flattened_dict(changes)
    resolve(config)
    return flat(config.to_dict())


def flat(fields, prefix=""):
    found = {}
    for name, value in fields.items():
        nested = isinstance(value, dict)
        found |= flat(value, f"{prefix}{name}.") if nested else {prefix + name: value}
    return found


def rule_of(fields):
    prefix = "method.select."
    return {n.removeprefix(prefix): v for n, v in fields.items() if n.startswith(prefix)}


def test_a_preset_sets_exactly_the_options_of_its_rule():
    for name, preset in PRESETS.items():
        rule = rule_of(resolved(preset=name))
        chosen = rule.pop("name")
        assert chosen == preset.rule["name"] and set(rule) == set(
            signature(RULES[chosen]).parameters
        )
        expected = options_of(RULES[chosen]) | preset.rule | {"name": chosen}
        assert rule | {"name": chosen} == expected, name


def test_every_experiment_can_be_run_with_every_preset():
    for experiment in EXPERIMENTS:
        for preset in PRESETS:
            config = import_module(f"configs.{experiment}").get_config()
            config.preset = preset
            resolve(config)
            check(config)
            assert None not in flat(config.to_dict()).values(), (experiment, preset)
            assert "by_preset" not in config
            build(METHODS, config.method)
            assert resolve(config) is None and config.preset == preset  # a second time


def test_our_presets_divide_by_what_is_learned_from():
    """The published ones by the batch, so that a step shrinks with what is left out."""
    for experiment in ("mnist_sym", "cifar10_sym", "animal10n", "folder"):
        found = {p: resolved(experiment, p)["method.divide_by_clean"] for p in PRESETS}
        assert found == {"paper": False, "released": False, "noise_model": True, "path": True}
    told = resolved("cifar10_sym", "noise_model", **{"method.divide_by_clean": False})
    assert told["method.divide_by_clean"] is False


def test_our_presets_select_by_one_network_and_the_published_ones_as_it_trains():
    for experiment in ("mnist_sym", "cifar10_sym", "folder", "webvision"):
        found = {p: resolved(experiment, p)["method.record_from"] for p in PRESETS}
        expected = {"paper": "train", "released": "train", "noise_model": "scan", "path": "scan"}
        assert found == expected
    assert resolved("features", "noise_model")["method.record_from"] == "inputs"
    told = resolved("cifar10_sym", "noise_model", **{"method.record_from": "train"})
    assert told["method.record_from"] == "train"


def test_references_train_as_the_method_they_bound():
    """Whatever the preset decides for SPR's training it decides for them, too."""
    for preset in PRESETS:
        for experiment in ("mnist_sym", "cifar10_sym", "features"):
            spr = resolved(experiment, preset)
            for method in ("oracle", "small_loss"):
                own = resolved(experiment, preset, method)
                shared = {*own} & {*spr} - {"method.name"}
                assert "method.penalize" in shared and "method.divide_by_clean" in shared
                assert {name: own[name] for name in shared} == {name: spr[name] for name in shared}


@pytest.mark.parametrize("method", ["spr", "oracle", "small_loss"])
def test_the_penalty_grows_slowly_on_mnist_by_our_presets(method):
    found = {p: resolved("mnist_asym", p, method)["method.penalty_growth"] for p in PRESETS}
    assert found == {"paper": 1.2, "released": 1.2, "noise_model": 1.03, "path": 1.03}


def test_the_penalty_on_cifar10_does_not_grow_where_most_labels_are_wrong():
    """By the rate that is run, not the one that the config file begins with."""
    growth = {
        (experiment, rate): resolved(experiment, **{"noise.rate": rate})["method.penalty_growth"]
        for experiment, rate in (("cifar10_sym", 0.6), ("cifar10_sym", 0.8), ("cifar10_asym", 0.4))
    }
    assert [*growth.values()] == [1.02, 1.0, 1.02]
    told = resolved("cifar10_sym", **{"noise.rate": 0.8, "method.penalty_growth": 1.1})
    assert told["method.penalty_growth"] == 1.1


def test_presets_of_methods_without_a_selection_differ_in_the_optimizer_alone():
    for experiment in EXPERIMENTS:
        each = [resolved(experiment, preset, "ce") for preset in PRESETS]
        differing = {field for field in each[0] if len({fields[field] for fields in each}) > 1}
        assert all(field.startswith("optimizer.") for field in differing - {"preset"}), experiment


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_an_explicit_value_wins(preset):
    """Also one that is zero or false."""
    for field, value in {
        "optimizer.momentum": 0.7 if preset == "released" else 0.0,
        "method.penalize": "all",
        "method.select.per_class": 0,
        "method.select.keep": 0.3,
        "method.select.intercept": True,
        "method.select.ties": "interpolated" if preset == "released" else "released",
    }.items():
        usual = resolved(preset=preset)
        assert resolved(preset=preset, **{field: value}) == usual | {field: value} != usual


def test_exact_is_an_old_name_of_noise_model():
    with pytest.warns(FutureWarning, match="'exact' is now called 'noise_model'"):
        found = resolved(preset="exact")
    assert found == resolved(preset="noise_model")


@pytest.mark.parametrize(
    ("preset", "option", "value"),
    [("noise_model", "keep", 0.5), ("paper", "level", 0.1), ("path", "intercept", False)],
)
def test_an_option_of_another_rule_is_refused(preset, option, value):
    with pytest.raises(ValueError, match=f"method.select.{option} is {value}.*it has .*pca_dim"):
        resolved(preset=preset, **{f"method.select.{option}": value})


def test_a_rule_that_is_named_takes_its_own_defaults():
    """With the preset's own options if it is the preset's rule."""
    for name, rule in RULES.items():
        found = rule_of(resolved(preset="noise_model", **{"method.select.name": name}))
        assert found == options_of(rule) | {"name": name}
    named, left_open = (
        rule_of(resolved(preset="released", **changes))
        for changes in ({"method.select.name": "share"}, {})
    )
    assert named == left_open != rule_of(resolved(preset="paper"))


def test_unknown_names_come_with_the_nearest():
    with pytest.raises(ValueError, match="preset is 'papr'; did you mean 'paper'?"):
        resolved(preset="papr")
    with pytest.raises(ValueError, match="'knockof'; did you mean 'knockoffs'?"):
        resolved(**{"method.select.name": "knockof"})


def test_a_config_that_was_not_made_for_presets_resolves():
    config = get_config("ce")
    with config.unlocked():
        del config.by_preset
    resolve(config)
    check(config)
