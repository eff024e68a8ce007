"""Data sets by name: functions that take options and return a `Dataset`.

The option `data_dir` is where data sets are stored; by default, where TensorFlow Datasets stores
them. A data set that is missing and cannot be prepared is a ValueError.
"""

from collections.abc import Callable

from spr_jax.datasets import (
    animal10n,
    cifar10,
    cifar10n,
    digits,
    features,
    folder,
    mnist,
    webvision,
)
from spr_jax.types import Dataset

DATASETS: dict[str, Callable[..., Dataset]] = {
    "digits": digits.digits,
    "mnist": mnist.mnist,
    "cifar10": cifar10.cifar10,
    "cifar10n": cifar10n.cifar10n,
    "animal10n": animal10n.animal10n,
    "webvision": webvision.webvision,
    "folder": folder.folder,
    "features": features.features,
}

# Data sets that are written as records from their publisher's files.
SOURCES = {module.SOURCE.name: module.SOURCE for module in (mnist, cifar10, cifar10n, animal10n)}
