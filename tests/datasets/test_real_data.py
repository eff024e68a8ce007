"""The real MNIST, CIFAR-10 and CIFAR-10N, if SPR_RAW_DIR names a folder of their raw files.

SPR_RAW_DIR=DIR python -m pytest -m "" tests/datasets/test_real_data.py
"""

import os

import numpy as np
import pytest

from spr_jax import noise
from spr_jax.datasets import DATASETS, SOURCES, cifar10, cifar10n, prepared
from spr_jax.datasets.source import check_examples, read_raw

RAW = os.environ.get("SPR_RAW_DIR", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RAW, reason="SPR_RAW_DIR names no folder of raw files"),
]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return str(tmp_path_factory.mktemp("data"))


def test_mnist_is_prepared_and_verified(data_dir):
    prepared.prepare(SOURCES["mnist"], RAW, data_dir)
    prepared.check(SOURCES["mnist"], data_dir)
    dataset = DATASETS["mnist"](data_dir=data_dir)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(dataset.train.labels).tolist() == counts
    assert dataset.tests["test"].images.shape == (10_000, 28, 28, 1)
    assert dataset.train.images.mean() / 255 == pytest.approx(dataset.mean[0], abs=1e-4)
    noisy, manifest = noise.corrupt(dataset, kind="asymmetric", rate=0.4)
    counts = [5923, 9248, 3575, 3679, 5842, 6487, 4852, 6142, 8303, 5949]
    assert np.bincount(noisy.train.labels).tolist() == counts


@pytest.fixture
def from_raw_files(monkeypatch, tmp_path):
    """Load data sets from their raw files; MNIST shows that records hold the same."""

    def load(source, data_dir):
        splits = read_raw(source, RAW, tmp_path)
        for split, examples in splits.items():
            check_examples(source, split, examples)
        return splits

    for module in (cifar10, cifar10n):
        monkeypatch.setattr(module, "load", load)


def test_cifar10_is_read_and_verified(from_raw_files):
    dataset = DATASETS["cifar10"]()
    means = dataset.train.images.mean(axis=(0, 1, 2)) / 255
    np.testing.assert_allclose(means, dataset.mean, atol=1e-6)
    noisy, manifest = noise.corrupt(dataset, kind="symmetric", rate=0.4)
    counts = [4993, 4995, 4968, 5000, 4942, 5056, 5030, 5040, 4903, 5073]
    assert np.bincount(noisy.train.labels).tolist() == counts
    assert manifest.obtained == 0.4


def test_cifar10n_is_as_noisy_as_its_authors_say(from_raw_files):
    rates = {"aggre": 9.01, "random1": 17.23, "random2": 18.12, "random3": 17.64, "worst": 40.21}
    for labels, rate in rates.items():
        dataset = DATASETS["cifar10n"](labels=labels)
        _, manifest = noise.corrupt(dataset, kind="human")
        assert 100 * manifest.obtained == pytest.approx(rate, abs=0.01)
