"""Every config in configs/ builds a small stand-in of its data set, its network and its method."""

import importlib
from functools import partial
from itertools import cycle
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import jax_utils

from spr_jax import settings
from spr_jax.backbones import BACKBONES
from spr_jax.batches import make_batch
from spr_jax.datasets import DATASETS
from spr_jax.devices import AXIS
from spr_jax.experiment import init_state, make_experiment
from spr_jax.methods import METHODS
from spr_jax.train import make_program, start_epoch, train_epoch
from spr_jax.types import Dataset, Split

HOME = Path(__file__).parent.parent / "configs"
NAMES = sorted(
    path.stem for path in HOME.glob("*.py") if path.stem not in ("__init__", "base", "recipes")
)
LARGE = ("animal10n", "webvision")
SHAPES = {  # of an image, number of classes; Inception takes no smaller ones
    "digits": ((8, 8, 1), 10),
    "mnist": ((28, 28, 1), 10),
    "cifar10": ((32, 32, 3), 10),
    "cifar10n": ((32, 32, 3), 10),
    "animal10n": ((64, 64, 3), 10),
    "folder": ((32, 32, 3), 10),
    "webvision": ((75, 75, 3), 50),
}


def stand_in(name):
    shape, num_classes = SHAPES[name]
    labels = np.arange(2 * num_classes, dtype=np.int32) % num_classes
    images = np.random.default_rng(0).integers(0, 256, (len(labels), *shape), dtype=np.uint8)
    split, statistics = Split(images, labels, labels), (0.5,) * shape[-1]
    classes = tuple(map(str, range(num_classes)))
    return Dataset(name, split, {"test": split}, classes, statistics, statistics, "flip")


def test_there_is_a_config_for_every_experiment():
    assert {"digits_sym", "mnist_sym", "mnist_asym", "cifar10_sym", "cifar10_asym"} < {*NAMES}
    assert {"cifar10n", "animal10n", "webvision"} < {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_config_begins_with_its_command(name):
    text = importlib.import_module(f"configs.{name}").__doc__
    assert f"python -m spr_jax.main --config=configs/{name}.py" in text


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory):
    """Configs that differ in their labels only are one program."""
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("xla")))
    yield
    jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture
def make(monkeypatch, compiled_once):
    """A config's (config, setup) on the stand-in, in batches of four."""

    def make(name):
        config = importlib.import_module(f"configs.{name}").get_config()
        settings.resolve(config)
        config.batch_size = config.eval_batch_size = 4
        settings.check(config)
        chosen = config.dataset.name
        monkeypatch.setitem(DATASETS, chosen, lambda: stand_in(chosen))
        config.dataset = {"name": chosen}
        if "width" in config.backbone:
            config.backbone.width = 4
        return config, make_experiment(config).setup

    return make


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LARGE])
def test_a_config_takes_two_steps(name, make):
    """One of each kind, if the method has two."""
    config, setup = make(name)
    kinds = cycle([False, setup.method.other_loss is not None])
    method = setup.method._replace(takes_other=lambda epoch, chance: next(kinds))
    setup = setup._replace(method=method)
    labels = np.asarray(setup.dataset.train.labels)
    memory = jax_utils.replicate(setup.method.init(labels, setup.dataset.num_classes))
    state = jax_utils.replicate(init_state(config, setup))
    before = [np.asarray(leaf) for leaf in jax.tree.leaves(state.networks[0].params)]
    progress = start_epoch(setup, state, memory)
    data = jax_utils.replicate((setup.dataset.train.images, labels))
    progress = train_epoch(
        make_program(setup), setup, progress, memory, data, 0, on_step=lambda taken: taken == 2
    )
    assert progress.place == 2
    assert np.isfinite([np.asarray(loss) for loss in progress.losses]).all()
    after = jax.tree.leaves(progress.state.networks[0].params)
    assert all((old != new).any() for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("name", LARGE)
def test_the_loss_of_a_large_network_has_its_shapes(name, make):
    """XLA would compile these for minutes on a CPU."""
    config, setup = make(name)
    networks = jax.eval_shape(lambda: init_state(config, setup)).networks
    labels = np.asarray(setup.dataset.train.labels)
    memory = jax.eval_shape(lambda: setup.method.init(labels, setup.dataset.num_classes))

    def loss(networks, memory, loss):
        images = (jnp.asarray(setup.dataset.train.images[:4]),) * setup.method.num_views
        index, weights, key = jnp.arange(4), jnp.ones(4, jnp.float32), jax.random.key(0)
        batch = make_batch(images, jnp.asarray(labels), index, weights, key, dataset=setup.dataset)
        return loss(networks, batch, memory, key)

    for kind in (setup.method.loss, setup.method.other_loss):
        one = partial(loss, loss=kind)
        mapped = jax.vmap(one, in_axes=None, axis_name=AXIS, axis_size=1, out_axes=None)
        value, (after, record) = jax.eval_shape(mapped, networks, memory)
        shape = lambda leaf: (leaf.shape, leaf.dtype)  # noqa: E731
        assert jax.tree.map(shape, after) == jax.tree.map(shape, networks)
        assert value.shape == () and record["features"].shape[0] == 4


def test_registries_are_covered():
    configs = [importlib.import_module(f"configs.{name}").get_config() for name in NAMES]
    assert {config.backbone.name for config in configs} == {*BACKBONES}
    assert {config.dataset.name for config in configs} == {*DATASETS}
    assert {"spr", "ce"} <= {*METHODS}
