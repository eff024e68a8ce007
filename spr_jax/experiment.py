"""What a config makes: data with its noise, method, optimizer, networks."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from spr_jax import noise
from spr_jax.backbones import BACKBONES, Classifier
from spr_jax.datasets import DATASETS
from spr_jax.devices import AXIS
from spr_jax.methods import METHODS, Method, Stage
from spr_jax.network import make_network
from spr_jax.optim import make_optimizer, make_schedule
from spr_jax.registry import build
from spr_jax.train import Setup, TrainState
from spr_jax.types import Dataset, Split


class Phase(NamedTuple):
    """A stage of the method, as it is run."""

    setup: Setup
    schedule: Callable  # step since the networks were fresh -> learning rate
    first: int  # epoch
    fresh_since: int  # epoch


class Experiment(NamedTuple):
    phases: tuple[Phase, ...]  # one, unless the method has stages
    manifest: noise.Manifest
    validation: Split | None  # held out of the training data, noise and all
    members: np.ndarray  # [N], what is left for training: indices of the data set

    @property
    def setup(self) -> Setup:
        """Of the first phase; all have the same data."""
        return self.phases[0].setup

    def phase_at(self, epoch: int) -> Phase:
        return [phase for phase in self.phases if phase.first <= epoch][-1]


def make_experiment(config) -> Experiment:
    """Load the data, draw the noise, build the method; nothing is trained yet."""
    dataset = build(DATASETS, config.dataset)
    dataset, manifest = noise.corrupt(dataset, **config.noise)
    dataset, validation, members = hold_out(dataset, config.validation_share, config.seed)
    setup = Setup(
        dataset=dataset,
        method=None,
        optimizer=None,
        batch_size=config.batch_size,
        seed=config.seed,
        drop_last=config.drop_last,
        ema=config.ema,
        workers=config.workers,
    )
    method = build(METHODS, config.method)
    stages = (Stage(method),) if isinstance(method, Method) else method
    return Experiment(make_phases(config, setup, stages), manifest, validation, members)


def make_phases(config, setup: Setup, stages: tuple[Stage, ...]) -> tuple[Phase, ...]:
    """Stages one after the other; a schedule spans the epochs from one fresh start to the next."""
    firsts = list(accumulate((stage.epochs for stage in stages[:-1]), initial=0))
    if firsts[-1] >= config.epochs:
        raise ValueError(
            f"The first {len(stages) - 1} stages of {config.method.name} take {firsts[-1]} epochs "
            f"and the run has {config.epochs}; raise epochs, or shorten them."
        )
    starts = [0, *(first for first, stage in zip(firsts, stages, strict=True) if stage.restart)]
    phases = []
    for first, stage in zip(firsts, stages, strict=True):
        since = max(start for start in starts if start <= first)
        until = min([start for start in starts if start > first], default=config.epochs)
        schedule = make_schedule(config.optimizer, until - since, len(setup.order(0).index))
        if stage.learning_rate is not None:
            schedule = optax.constant_schedule(stage.learning_rate)
        optimizer = make_optimizer(config.optimizer, schedule)
        own = setup._replace(method=stage.method, optimizer=optimizer)
        phases.append(Phase(own, schedule, first, since))
    return tuple(phases)


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


def init_state(config, setup: Setup, epoch: int = 0) -> TrainState:
    """Fresh networks for the run from `epoch` on, not yet replicated."""
    options = dict(config.backbone)
    backbone = BACKBONES[options.pop("name")](
        dtype={"float32": None, "bfloat16": jnp.bfloat16}[config.dtype],
        axis_name=AXIS if config.sync_batch_stats else None,
        **options,
    )
    module = Classifier(backbone, setup.dataset.num_classes)
    images = jnp.zeros((1, *setup.dataset.train.images.shape[1:]), jnp.float32)
    keys = jax.random.split(setup.key("init", epoch), setup.method.num_networks)
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
