"""A run whose network is a linear map, so that everything can be computed by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from spr_jax.backbones.layers import offer
from spr_jax.backbones.network import make_network
from spr_jax.devices import replicate
from spr_jax.methods import Method
from spr_jax.methods.method import nothing_to_remember, weighted_mean
from spr_jax.training.epoch import (
    Progress,
    data_on_devices,
    empty_buffers,
    finished_epoch,
    scan_epoch,
    train_epoch,
)
from spr_jax.training.run import Run, ScheduledStage
from spr_jax.training.step import TrainState, make_program
from spr_jax.types import Dataset, Output, Split

COUNT, CLASSES, SHAPE = 22, 3, (2, 2, 1)


class Linear(nn.Module):
    @nn.compact
    def __call__(self, images, train, feature_mask=None):
        flat = images.reshape(len(images), -1)
        mean = self.variable("batch_stats", "mean", jnp.zeros, flat.shape[1], jnp.float32)
        if train:
            mean.value = jax.lax.pmean(flat.mean(axis=0), "devices")
        offer(self, images - mean.value[0])
        return Output(nn.Dense(CLASSES)(flat), flat - mean.value)


def make_split(count, seed):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (count, *SHAPE)).astype(np.uint8)
    return Split(images, generator.integers(0, CLASSES, count).astype(np.int32))


def color_dataset(count=24, side=9):
    """Images that the backbone `whitened` takes, with a test set."""
    images = np.random.default_rng(0).integers(0, 256, (count, side, side, 3)).astype(np.uint8)
    labels = np.arange(count, dtype=np.int32) % CLASSES
    split, statistics = Split(images, labels, labels), ((0.5,) * 3, (0.2,) * 3)
    return Dataset("color", split, {"test": split}, tuple("abc"), *statistics, "none")


def follow() -> Method:
    """Cross-entropy that records of each example its index, and its views."""

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        each = optax.softmax_cross_entropy_with_integer_labels(output.logits, batch.labels)
        views = {f"view{number}": images for number, images in enumerate(batch.views)}
        record = {"index": batch.index} | views
        return weighted_mean(each, batch.weights), ((network,), record)

    return Method(init=nothing_to_remember, steps=(loss,))


def make_run(method, images=None, augmentation="none", **changes):
    train = make_split(COUNT, 0)
    train = train if images is None else train._replace(images=images)
    statistics = (0.5,) * train.images.shape[-1]
    names = tuple("abc")
    dataset = Dataset("tiny", train, {}, names, statistics, statistics, augmentation)
    stage = ScheduledStage(method, optax.sgd(0.5), optax.constant_schedule(0.5))
    return Run(dataset, (stage,), **{"batch_size": 4, "seed": 3} | changes)


class Case:
    """A run with its program, at the beginning."""

    def __init__(self, method=None, **changes):
        self.run = make_run(method or follow(), **changes)
        (self.stage,) = self.run.stages
        train = self.run.dataset.train
        example = jnp.zeros((1, *train.images.shape[1:]), jnp.float32)
        networks = (make_network(Linear(), jax.random.key(0), example),)
        opt_states = (self.stage.optimizer.init(networks[0].params),)
        average = networks if self.run.ema else ()
        state = replicate(TrainState(networks, opt_states, average, jnp.int32(0)))
        self.program = make_program(self.run, self.stage)
        memory = jax.device_get(self.stage.method.init(train.labels, CLASSES))
        self.data = data_on_devices(self.run)
        buffers = empty_buffers(self.run, self.stage, state, memory)
        self.start = Progress(0, state, memory, {}, buffers)

    def train(self, progress=None, epoch=0, **options):
        if progress is None:  # a step consumes its state
            progress = self.start._replace(
                state=jax.tree.map(jnp.copy, self.start.state),
                buffers=jax.tree.map(jnp.copy, self.start.buffers),
            )
        progress = progress._replace(epoch=epoch)
        return train_epoch(self.program, self.run, progress, self.data, **options)

    def finish(self, progress):
        return finished_epoch(self.program, self.run, progress, self.data)

    def scan(self, progress):
        return scan_epoch(self.program, self.run, progress, self.data)
