"""Features of the user's images, from a small network that learns on them with SPR.

    network = learn_network(dataset, Path("found/training"))  # resumes from its last checkpoint
    features = features_of(network, dataset.train.images, dataset.mean, dataset.std)

The size of the network and the length of training follow from the machine and the number of images:
minutes. For better features train longer with `spr_jax.main`, or pass your own.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from tqdm import tqdm

from spr_jax.augment import normalise
from spr_jax.backbones.network import Network
from spr_jax.detection.find import components_for
from spr_jax.training import start
from spr_jax.training.base_config import get_config
from spr_jax.training.batches import stream
from spr_jax.training.loop import last_network
from spr_jax.types import Dataset

BATCH_SIZES = (16, 64)  # global: for few images, so that an epoch has several steps, and for many
FEW = 1000
VISITS = 500_000  # images seen in all epochs together: minutes of C2F2 on two cores
EPOCHS = (5, 30)  # at least, at most


def learn_network(
    dataset: Dataset,
    workdir: Path,
    *,
    epochs: int | None = None,
    seed: int = 0,
    select: bool = True,
    should_stop: Callable[[int], bool] = lambda step: False,
    report: Callable[[str], None] = print,
) -> Network:
    """Train on the labels as given, resuming from `workdir` if it holds a checkpoint.

    Args:
      dataset: whose training images are learned; its test sets are left alone.
      workdir: folder of the training run.
      epochs: of training; None chooses by the number of images.
      seed: of training.
      select: with SPR, which selects the labels to learn from; if not, from all of them.
      should_stop: asked after every step.
      report: told the progress, a line per epoch.

    Returns:
      The network of the last epoch.

    Raises:
      spr_jax.training.Stopped: if it was asked to stop; the same call resumes.
      ValueError: in one sentence, what was given and what is expected.
    """
    config = config_for(dataset, epochs=epochs, seed=seed)
    if not select:
        config.method.select.update(name="all", pca_dim=None)
        config.method.record_from = "train"  # which nobody reads, and is there anyway
    untested = dataset._replace(tests={})  # not needed, and slow
    start(config, workdir, dataset=untested, should_stop=should_stop, report=report)
    return last_network(config, workdir, dataset=untested)


def config_for(dataset: Dataset, *, epochs: int | None = None, seed: int = 0) -> ConfigDict:
    """Preset `noise_model`; C2F2 where there is no accelerator, or images are tiny."""
    count, *size, _ = dataset.train.images.shape
    is_small = jax.default_backend() == "cpu" or min(size) < 32
    config = get_config("spr", backbone="c2f2" if is_small else "resnet18")
    config.preset, config.seed = "noise_model", seed
    config.dataset = ConfigDict({"name": "in_hand", "fingerprint": fingerprint(dataset)})
    config.epochs = epochs or int(np.clip(VISITS // count, *EPOCHS))
    config.batch_size = BATCH_SIZES[count >= FEW]
    config.optimizer.update(learning_rate=0.05, weight_decay=1e-3)
    config.method.select.pca_dim = components_for(count, num_classes=dataset.num_classes)
    if is_small:
        config.method.cutmix = 0.0  # a network that underfits gains nothing by it
    return config


def fingerprint(dataset: Dataset) -> str:
    """Hash of image count, size, names and labels, to tie a run to its data."""
    train = dataset.train
    names = None if train.names is None else train.names.tolist()
    facts = dataset.name, dataset.class_names, train.images.shape, names
    digest = hashlib.sha256(repr(facts).encode())
    digest.update(np.asarray(train.labels, np.int64).tobytes())
    return digest.hexdigest()[:16]


def features_of(
    network: Network,
    images: Any,  # [N, h, w, channels] uint8, or image files with the same indexing
    mean: Sequence[float],
    std: Sequence[float],
    *,
    batch_size: int = 250,
) -> np.ndarray:
    """Features of the images as the network sees them without augmentation, [N, d]."""
    count = len(images)
    steps = -(-count // batch_size)
    index = np.resize(np.arange(count), (steps, batch_size))  # all batches full: compiled once
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
