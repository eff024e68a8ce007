"""Data sets by name. Each is a function of its options that returns a `Dataset`."""

from spr_jax.datasets import animal10n, cifar10, cifar10n, digits, folder, mnist, webvision

DATASETS = {
    "digits": digits.digits,
    "mnist": mnist.mnist,
    "cifar10": cifar10.cifar10,
    "cifar10n": cifar10n.cifar10n,
    "animal10n": animal10n.animal10n,
    "webvision": webvision.webvision,
    "folder": folder.folder,
}

# Those that are written as records from their publisher's files.
SOURCES = {module.SOURCE.name: module.SOURCE for module in (mnist, cifar10, cifar10n, animal10n)}
