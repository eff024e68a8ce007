"""Features of one's own images, from a small network that learns on them with SPR.

    network = learn_network(dataset, Path("found/training"))  # goes on from its last checkpoint
    features = features_of(network, dataset.train.images, dataset.mean, dataset.std)

How large the network is, and how long it learns, follows from the machine and the number of images:
minutes. Who has longer trains with `spr_jax.main`, or takes the features of another encoder.
"""

import contextlib
import hashlib
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import flags
from flax import jax_utils
from ml_collections import ConfigDict
from tqdm import tqdm

from spr_jax import main
from spr_jax.augment import normalise
from spr_jax.base_config import get_config
from spr_jax.batches import stream
from spr_jax.checkpoint import Checkpoints
from spr_jax.datasets import DATASETS
from spr_jax.experiment import Experiment, make_experiment
from spr_jax.label_errors import components_for
from spr_jax.network import Network
from spr_jax.run import restore
from spr_jax.types import Dataset

BATCH_SIZES = (16, 64)  # over all devices: of few images, that there be some steps, and of many
FEW = 1000
VISITS = 500_000  # images seen in all epochs together: minutes of C2F2 on two cores
EPOCHS = (5, 30)  # at least, at most
IN_HAND = "in_hand"  # what a config calls a data set that was not loaded by its name


def usual_size() -> int:
    """Pixels to which a user's images are brought, where no other size is asked for."""
    return 32 if jax.default_backend() == "cpu" else 64


def learn_network(
    dataset: Dataset, workdir: Path, *, epochs: int | None = None, seed: int = 0
) -> Network:
    """Train on the labels as they are given, with SPR, as far as `workdir` is not there yet.

    Raises:
      spr_jax.run.Stopped: on Ctrl-C or SIGTERM; the same call goes on from there.
      ValueError: in one sentence, what was given and what is expected.
    """
    config = config_for(dataset, epochs=epochs, seed=seed)
    with _in_hand(dataset), _usual_signals_after():
        main.start(config, workdir)
        return last_network(config, make_experiment(config), workdir)


def config_for(dataset: Dataset, *, epochs: int | None = None, seed: int = 0) -> ConfigDict:
    """Preset `exact`; C2F2 where there is no accelerator, or little to see in an image."""
    count, *size, _ = dataset.train.images.shape
    is_small = jax.default_backend() == "cpu" or min(size) < 32
    config = get_config("spr", backbone="c2f2" if is_small else "resnet18")
    config.preset, config.seed = "exact", seed
    config.dataset = ConfigDict({"name": IN_HAND, "fingerprint": fingerprint(dataset)})
    config.epochs = epochs or int(np.clip(VISITS // count, *EPOCHS))
    config.batch_size = BATCH_SIZES[count >= FEW]
    config.optimizer.update(learning_rate=0.05, weight_decay=1e-3)
    config.method.pca_dim = components_for(count, num_classes=dataset.num_classes)
    if is_small:
        config.method.cutmix = 0.0  # a network that underfits gains nothing by it
    return config


def fingerprint(dataset: Dataset) -> str:
    """Of images, by their number, size and names, and of their labels: a run is of one data set."""
    train = dataset.train
    names = None if train.names is None else train.names.tolist()
    facts = dataset.name, dataset.class_names, train.images.shape, names
    digest = hashlib.sha256(repr(facts).encode())
    digest.update(np.asarray(train.labels, np.int64).tobytes())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _in_hand(dataset) -> Iterator[None]:
    """Let a config name this data set, for as long as it is used."""

    def load(fingerprint: str = "") -> Dataset:
        return dataset._replace(tests={})  # which nobody asks for, and which take time

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()  # `main` reads its own, which are as usual
    DATASETS[IN_HAND] = load
    try:
        yield
    finally:
        del DATASETS[IN_HAND]


@contextlib.contextmanager
def _usual_signals_after() -> Iterator[None]:
    """Training asks to be stopped by a signal; what comes after it just ends."""
    usual = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def last_network(config, experiment: Experiment, workdir: Path) -> Network:
    """The network of a run, or the first of two, as its last checkpoint has it."""
    checkpoints = Checkpoints(workdir / "checkpoints")
    try:
        state = restore(config, experiment, checkpoints).progress.state
    finally:
        checkpoints.close()
    return jax_utils.unreplicate(state.evaluated)[0]


def features_of(
    network: Network,
    images: Any,  # [N, h, w, channels] uint8, or image files with the same indexing
    mean: Sequence[float],
    std: Sequence[float],
    *,
    batch_size: int = 250,
) -> np.ndarray:
    """[N, d], as the network sees them without augmentation."""
    count = len(images)
    steps = -(-count // batch_size)
    index = np.resize(np.arange(count), (steps, batch_size))  # all full: compiled once
    if isinstance(images, np.ndarray):
        batches = (images[rows] for rows in index)
    else:
        batches = (views[0] for views in stream(images, index, random_crops=False))
    batches = tqdm(batches, "Features", steps, leave=False)
    mean, std = tuple(mean), tuple(std)
    found = [np.asarray(_features(network, batch, mean=mean, std=std)) for batch in batches]
    return np.concatenate(found)[:count]


@partial(jax.jit, static_argnames=("mean", "std"))
def _features(network, images, *, mean, std):
    return network.predict(normalise(images, mean, std)).features
