"""Every config in configs/ builds a small stand-in of its data set, its network and its method."""

import importlib
from functools import partial
from itertools import cycle
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import features
from spr_jax.backbones import BACKBONES
from spr_jax.datasets import DATASETS
from spr_jax.devices import AXIS
from spr_jax.methods import METHODS, TOLD_NOISE_RATE
from spr_jax.registry import build
from spr_jax.training.build import init_memory, init_state, make_run
from spr_jax.training.config import check, resolve
from spr_jax.training.epoch import data_on_devices, train_epoch
from spr_jax.training.loop import begin
from spr_jax.training.step import make_program
from spr_jax.types import Batch, Dataset, Split

HOME = Path(__file__).parents[2] / "configs"
NAMES = sorted({path.stem for path in HOME.glob("*.py")} - {"__init__", "recipes"})
LARGE = ("animal10n", "webvision")
SHAPES = {  # of an image, number of classes; Inception takes no smaller ones
    "digits": ((8, 8, 1), 10),
    "mnist": ((28, 28, 1), 10),
    "cifar10": ((32, 32, 3), 10),
    "cifar10n": ((32, 32, 3), 10),
    "animal10n": ((64, 64, 3), 10),
    "folder": ((32, 32, 3), 10),
    "webvision": ((75, 75, 3), 50),
    "features": ((16,), 10),
}


def stand_in(name):
    shape, num_classes = SHAPES[name]
    labels = np.arange(2 * num_classes, dtype=np.int32) % num_classes
    images = np.random.default_rng(0).integers(0, 256, (len(labels), *shape), dtype=np.uint8)
    if len(shape) == 1:
        images = images / np.float32(255)
    split, statistics = Split(images, labels, labels), (0.5,) * shape[-1]
    classes = tuple(map(str, range(num_classes)))
    augmentation = "feature_noise" if len(shape) == 1 else "flip"
    return Dataset(name, split, {"test": split}, classes, statistics, statistics, augmentation)


def test_every_backbone_and_data_set_has_a_config():
    configs = [importlib.import_module(f"configs.{name}").get_config() for name in NAMES]
    configs.append(features.get_config("spr,linear"))
    assert {config.backbone.name for config in configs} == {*BACKBONES}
    assert {config.dataset.name for config in configs} == {*DATASETS} == {*SHAPES}


@pytest.mark.parametrize("name", NAMES)
def test_a_config_takes_every_method(name):
    for method in METHODS:
        config = importlib.import_module(f"configs.{name}").get_config(method)
        if name in ("folder", "features") and method in TOLD_NOISE_RATE:
            config.method[TOLD_NOISE_RATE[method]] = 0.2  # else it is asked for
        resolve(config)
        check(config)
        build(METHODS, config.method)
        assert config.method.name == method and config.noise.rate < 1


def test_stages_of_every_method_fit_into_the_epochs_of_fast_training():
    for method in METHODS:
        config = importlib.import_module("configs.cifar10_fast").get_config(method)
        resolve(config)
        config.batch_size = 4
        begins = [stage.first for stage in make_run(config, stand_in("cifar10")).stages]
        assert begins[0] == 0 and begins == sorted(set(begins)) and begins[-1] < config.epochs


@pytest.mark.parametrize("name", NAMES)
def test_a_config_begins_with_its_command(name):
    text = importlib.import_module(f"configs.{name}").__doc__
    assert f"python -m spr_jax.main --config=configs/{name}.py" in text


@pytest.fixture
def make(monkeypatch):
    """Make a config's (config, run) on the stand-in, in batches of four."""

    def make(name):
        config = importlib.import_module(f"configs.{name}").get_config()
        resolve(config)
        config.batch_size = config.eval_batch_size = 4
        check(config)
        if "width" in config.backbone:
            config.backbone.width = 4
        if "widths" in config.backbone:
            config.backbone.widths = (4, 4, 4)
        return config, make_run(config, stand_in(config.dataset.name))

    return make


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "digits_sym" else pytest.mark.slow)
        for name in NAMES
        if name not in LARGE
    ],
)
def test_a_config_takes_two_steps(name, make):
    """One of each kind, if the method has two."""
    config, run = make(name)
    (stage,) = run.stages
    kinds = cycle(range(len(stage.method.steps)))
    method = stage.method._replace(choose_step=lambda epoch, draw: next(kinds))
    stage = stage._replace(method=method)
    run = run._replace(stages=(stage,))
    progress = begin(config, run)
    before = [np.asarray(leaf) for leaf in jax.tree.leaves(progress.state.networks[0].params)]
    program, data = make_program(run, stage), data_on_devices(run)
    progress = train_epoch(program, run, progress, data, on_step=lambda taken: taken == 2)
    assert progress.steps_taken == 2
    assert np.isfinite([np.asarray(loss) for loss in progress.losses]).all()
    after = jax.tree.leaves(progress.state.networks[0].params)
    assert all((old != new).any() for old, new in zip(before, after, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_the_loss_of_a_large_network_has_its_shapes(name, make):
    """XLA would compile these for minutes on a CPU."""
    config, run = make(name)
    (stage,) = run.stages
    networks = jax.eval_shape(lambda: init_state(config, run)).networks
    memory = jax.eval_shape(lambda: init_memory(run, stage))
    images, labels = run.dataset.train.images[:4], run.dataset.train.labels[:4]

    def evaluate(networks, memory, loss):
        views = (jnp.asarray(images, jnp.float32),) * stage.method.num_views
        weights = jnp.ones(4, jnp.float32)
        batch = Batch(views, jnp.asarray(labels), jnp.arange(4), weights, jnp.int32(0))
        return loss(networks, batch, memory, jax.random.key(0))

    assert len(stage.method.steps) == 2
    for loss in stage.method.steps:
        one = partial(evaluate, loss=loss)
        mapped = jax.vmap(one, in_axes=None, axis_name=AXIS, axis_size=1)
        value, (after, record) = jax.eval_shape(mapped, networks, memory)
        before = jax.tree.map(lambda leaf: ((1, *leaf.shape), leaf.dtype), networks)
        assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), after) == before
        assert value.shape == (1,) and record["features"].shape[:2] == (1, 4)
