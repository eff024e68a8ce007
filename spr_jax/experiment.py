"""What a config makes: data with its noise, method, optimizer, networks."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spr_jax import noise
from spr_jax.backbones import BACKBONES, Classifier
from spr_jax.datasets import DATASETS
from spr_jax.devices import AXIS
from spr_jax.methods import METHODS
from spr_jax.network import make_network
from spr_jax.optim import make_optimizer, make_schedule
from spr_jax.registry import build
from spr_jax.train import Setup, TrainState
from spr_jax.types import Dataset, Split


class Experiment(NamedTuple):
    setup: Setup
    schedule: Callable  # step -> learning rate
    manifest: noise.Manifest
    validation: Split | None  # held out of the training data, noise and all
    members: np.ndarray  # [N], what is left for training: indices of the data set


def make_experiment(config) -> Experiment:
    """Load the data, draw the noise, build the method; nothing is trained yet."""
    dataset = build(DATASETS, config.dataset)
    dataset, manifest = noise.corrupt(dataset, **config.noise)
    dataset, validation, members = hold_out(dataset, config.validation_share, config.seed)
    setup = Setup(
        dataset=dataset,
        method=build(METHODS, config.method),
        optimizer=None,
        batch_size=config.batch_size,
        seed=config.seed,
        drop_last=config.drop_last,
        ema=config.ema,
        workers=config.workers,
    )
    schedule = make_schedule(config.optimizer, config.epochs, len(setup.order(0).index))
    setup = setup._replace(optimizer=make_optimizer(config.optimizer, schedule))
    return Experiment(setup, schedule, manifest, validation, members)


def hold_out(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Split | None, np.ndarray]:
    """Keep a share of each class of the training data, as it is labelled, for validation."""
    train = dataset.train
    chosen = np.zeros(len(train.labels), bool)
    for label in range(dataset.num_classes):
        members = np.flatnonzero(train.labels == label)
        members = np.random.default_rng((seed, label)).permutation(members)
        chosen[members[: int(share * len(members))]] = True
    members = np.flatnonzero(~chosen)
    if not chosen.any():
        return dataset, None, members

    def part(index):
        streamed = not isinstance(train.images, np.ndarray)
        images = train.images.take(index) if streamed else train.images[index]
        rest = (None if column is None else column[index] for column in train[2:])
        return Split(images, train.labels[index], *rest)

    return dataset._replace(train=part(members)), part(np.flatnonzero(chosen)), members


def init_state(config, setup: Setup) -> TrainState:
    """Fresh networks, not yet replicated."""
    options = dict(config.backbone)
    backbone = BACKBONES[options.pop("name")](
        dtype={"float32": None, "bfloat16": jnp.bfloat16}[config.dtype],
        axis_name=AXIS if config.sync_batch_stats else None,
        **options,
    )
    module = Classifier(backbone, setup.dataset.num_classes)
    images = jnp.zeros((1, *setup.dataset.train.images.shape[1:]), jnp.float32)
    keys = jax.random.split(setup.key("init"), setup.method.num_networks)
    networks = jax.jit(lambda keys: tuple(make_network(module, key, images) for key in keys))(keys)
    opt_states = tuple(setup.optimizer.init(network.params) for network in networks)
    return TrainState(networks, opt_states, networks if setup.ema else (), jnp.int32(0))


def describe(config) -> str:
    """What a run would be: networks, steps, memory."""
    setup = make_experiment(config).setup
    state = jax.eval_shape(lambda: init_state(config, setup))
    steps, train = len(setup.order(0).index), setup.dataset.train

    def mebibytes(tree):
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)) / 2**20

    images = 0 if setup.is_streamed else np.prod(train.images.shape) / 2**20
    memory = jax.eval_shape(
        partial(setup.method.init, num_classes=setup.dataset.num_classes), train.labels
    )
    sizes = [network.num_parameters for network in state.networks]
    return "\n".join(
        [
            f"Networks: {len(sizes)} of {sizes[0]:,} parameters.",
            f"Examples: {len(train.labels):,}, {'streamed' if setup.is_streamed else 'in memory'}.",
            f"Steps: {steps} an epoch, {steps * config.epochs:,} in all.",
            f"Devices: {jax.device_count()} x {jax.devices()[0].device_kind}.",
            f"On each device: state {mebibytes(state):.0f} MiB, images {images:.0f} MiB, "
            f"memory of the method {mebibytes(memory):.1f} MiB, and what a step needs.",
        ]
    )
