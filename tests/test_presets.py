"""What the presets "paper", "released" and "exact" decide, and what the experiments are."""

from importlib import import_module
from pathlib import Path

import pytest

from spr_jax import settings

PRESETS = ("paper", "released", "exact")
OF_SPR = {
    "method.per_class": (10, 10, 0),
    "method.classes_per_group": (10, 10, 100),
    "method.pca_dim": (10, 10, 64),
    "method.intercept": (False, False, True),
    "method.select": ("piece", "piece", "auto"),
    "method.sparse_over": ("clean", "clean", "all"),
    "method.ties": ("interpolated", "released", "interpolated"),
}
DECAY = {"optimizer.weight_decay": (1e-4, 5e-4, 5e-4)}
OF_EXPERIMENT = {
    "animal10n": {"optimizer.momentum": (0.9, 0.0, 0.0)},
    "cifar10_sym": DECAY,
    "cifar10_asym": DECAY,
    "cifar10n": DECAY,
}
EXPERIMENTS = sorted(
    path.stem
    for path in Path(settings.__file__).parents[1].glob("configs/*.py")
    if path.stem not in ("__init__", "base", "recipes")
)
# Of the paper, section 6 of the reference: what no preset changes.
FIELDS = ("backbone.name", "epochs", "batch_size", "optimizer.learning_rate", "optimizer.clip_norm")
FIELDS += ("method.cutmix", "method.sparse", "method.growth", "method.q", "method.keep")
RECIPES = {
    "mnist_sym": ("c2f2", 50, 128, 0.01, 5.0, 0.0, 1.2, 1.2, 0.2, 0.5),
    "cifar10_sym": ("resnet18", 180, 128, 0.01, 5.0, 0.5, 1.2, 1.02, 0.2, 0.5),
    "animal10n": ("vgg19_bn", 160, 128, 0.1, 5.0, 0.5, 1.2, 1.02, 0.2, 0.5),
    "webvision": ("inception_resnet_v2", 300, 128, 0.01, 5.0, 1.0, 1.2, 1.02, 0.2, 0.5),
}


def resolved(experiment, preset=None, method="spr", **changes):
    """All fields of an experiment as they are run, by dotted name."""
    config = import_module(f"configs.{experiment}").get_config(method)
    config.preset = preset or config.preset
    config.update_from_flattened_dict(changes)
    settings.resolve(config)
    return flat(config.to_dict())


def flat(fields, prefix=""):
    found = {}
    for name, value in fields.items():
        inner = (
            flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        )
        found |= inner
    return found


def decided(experiment, method="spr"):
    """The fields in which presets differ, with the value in each."""
    each = [resolved(experiment, preset, method) for preset in PRESETS]
    values = {field: tuple(fields[field] for fields in each) for field in each[0]}
    return {field: v for field, v in values.items() if len(set(v)) > 1 and field != "preset"}


def test_experiments_are_found():
    assert set(EXPERIMENTS) >= {*OF_EXPERIMENT, *RECIPES}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_presets_differ_where_paper_and_release_do(experiment):
    assert decided(experiment) == OF_SPR | OF_EXPERIMENT.get(experiment, {})


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_presets_of_other_methods_differ_in_the_optimizer_alone(experiment):
    assert decided(experiment, "ce") == OF_EXPERIMENT.get(experiment, {})


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_nothing_is_left_open(experiment, preset):
    assert None not in resolved(experiment, preset).values()


@pytest.mark.parametrize("experiment", RECIPES)
def test_recipe_is_that_of_the_paper(experiment):
    assert resolved(experiment)["preset"] == "paper"
    for preset in PRESETS:
        fields = resolved(experiment, preset)
        assert tuple(fields[field] for field in FIELDS) == RECIPES[experiment]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("optimizer.momentum", 0.0),
        ("optimizer.momentum", 0.7),
        ("method.per_class", 0),
        ("method.pca_dim", 32),
        ("method.intercept", False),
        ("method.intercept", True),
        ("method.ties", "released"),
    ],
)
def test_explicit_value_wins(field, value, preset):
    changed, straight = (
        resolved("animal10n", preset, **changes) for changes in ({field: value}, {})
    )
    assert changed == straight | {field: value}


def test_unknown_preset_comes_with_the_nearest():
    with pytest.raises(ValueError, match="preset is 'papr'; did you mean 'paper'?"):
        resolved("cifar10_sym", "papr")
