"""Recipes name fields that exist, and reach the configs."""

from importlib import import_module

import pytest

from configs import recipes
from spr_jax.datasets import DATASETS
from spr_jax.methods import METHODS
from spr_jax.registry import build
from spr_jax.training.config import resolve

EXPERIMENTS = {
    "animal10n": "animal10n",
    "cifar10": "cifar10_asym",
    "digits": "digits_sym",
    "folder": "folder",
    "features": "features",
    "mnist": "mnist_asym",
    "webvision": "webvision",
}


def recipe_of(experiment, method):
    config = import_module(f"configs.{experiment}").get_config(method)
    resolve(config)
    return config


def test_plain_training_on_animal10n_has_no_dropout():
    """Else dropout, at a lower rate, would be compared with more of it."""
    rates = [recipe_of("animal10n", method).backbone.dropout for method in ("ce", "dropout")]
    assert rates == [0.0, 0.1]


def test_recipes_belong_to_known_data_sets_and_methods():
    assert {*recipes.RECIPES} == {*EXPERIMENTS} <= {*DATASETS}
    assert {name for table in recipes.RECIPES.values() for name in table} <= {*METHODS}


@pytest.mark.parametrize("dataset", EXPERIMENTS)
def test_recipe_reaches_its_config_and_builds(dataset):
    for method, recipe in recipes.RECIPES[dataset].items():
        config = import_module(f"configs.{EXPERIMENTS[dataset]}").get_config(method)
        resolve(config)
        for field, value in recipe.items():
            found = config
            for name in field.split("."):
                found = found[name]
            assert found == value and type(found) is type(value), field
        build(METHODS, config.method)
        stages = config.method.get("estimate_epochs", config.method.get("stage_epochs", 0))
        assert stages < config.epochs or config.method.get("stages") == "nl", method
