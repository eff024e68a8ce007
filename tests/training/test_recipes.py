"""Recipes name fields that exist, and reach the configs."""

from importlib import import_module

import pytest

from configs import recipes
from spr_jax.datasets import DATASETS
from spr_jax.methods import METHODS, TOLD_NOISE_RATE
from spr_jax.registry import build
from spr_jax.training.config import resolve

EXPERIMENTS = {
    "animal10n": "animal10n",
    "cifar10": "cifar10_asym",
    "cifar10_fast": "cifar10_fast",
    "digits": "digits_sym",
    "folder": "folder",
    "features": "features",
    "mnist": "mnist_asym",
    "webvision": "webvision",
}


def recipe_of(experiment, method, **changes):
    config = import_module(f"configs.{experiment}").get_config(method)
    config.update_from_flattened_dict(changes)
    resolve(config)
    return config


def told(dataset, method):
    """What the user must say of data whose noise is not known."""
    asked = dataset in ("folder", "features") and method in TOLD_NOISE_RATE
    return {f"method.{TOLD_NOISE_RATE[method]}": 0.2} if asked else {}


def test_plain_training_on_animal10n_has_no_dropout():
    """Else dropout, at a lower rate, would be compared with more of it."""
    rates = [recipe_of("animal10n", method).backbone.dropout for method in ("ce", "dropout")]
    assert rates == [0.0, 0.1]


@pytest.mark.parametrize("method, option", TOLD_NOISE_RATE.items())
def test_methods_are_told_the_noise_rate_that_is_run(method, option):
    for experiment, changes, rate in (
        ("cifar10_sym", {"noise.rate": 0.6}, 0.6),
        ("cifar10_sym", {"noise.kind": "none", "noise.rate": 0.0}, 0.0),
        ("mnist_features", {"noise.rate": 0.3}, 0.3),
        ("cifar10n", {}, 0.4021),
        ("cifar10n", {"dataset.labels": "aggre"}, 0.0903),
        ("animal10n", {}, 0.08),
        ("folder", {f"method.{option}": 0.15}, 0.15),
    ):
        assert recipe_of(experiment, method, **changes).method[option] == rate, experiment


@pytest.mark.parametrize(
    "experiment, changes",
    [
        ("folder", {}),
        ("features", {}),
        ("cifar10_features", {"noise.kind": "human", "noise.rate": 0.0}),
        ("mnist_sym", {"noise.manifest": "earlier.npz"}),
        ("mnist_sym", {"noise.kind": "matrix", "noise.rate": 0.0}),
    ],
)
def test_an_unknown_noise_rate_is_asked_for(experiment, changes):
    for method, option in TOLD_NOISE_RATE.items():
        with pytest.raises(ValueError, match=f"method.{option} is not set.*{method} must be told"):
            recipe_of(experiment, method, **changes)


def test_recipes_belong_to_known_data_sets_and_methods():
    assert {*recipes.RECIPES} == {*EXPERIMENTS} <= {*DATASETS, "cifar10_fast"}
    assert {name for table in recipes.RECIPES.values() for name in table} <= {*METHODS}


@pytest.mark.parametrize("dataset", EXPERIMENTS)
def test_recipe_reaches_its_config_and_builds(dataset):
    for method, recipe in recipes.RECIPES[dataset].items():
        config = recipe_of(EXPERIMENTS[dataset], method, **told(dataset, method))
        for field, value in recipe.items():
            found = config
            for name in field.split("."):
                found = found[name]
            assert found == value and type(found) is type(value), field
        build(METHODS, config.method)
        stages = config.method.get("estimate_epochs", config.method.get("stage_epochs", 0))
        assert stages < config.epochs or config.method.get("stages") == "nl", method
