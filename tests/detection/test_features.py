"""Features of images, and the training that they come from."""

import numpy as np
import pytest
from photo_folder import Mean

from spr_jax.datasets import DATASETS
from spr_jax.detection import features as image_features
from spr_jax.detection.features import config_for, features_of, fingerprint
from spr_jax.types import Dataset, Split


def small_dataset(count=30, images=None):
    generator = np.random.default_rng(0)
    if images is None:
        images = generator.integers(0, 256, (count, 6, 5, 1)).astype(np.uint8)
    labels = np.arange(count, dtype=np.int32) % 2
    return Dataset("made", Split(images, labels), {}, ("a", "b"), (0.5,), (0.25,), "none")


@pytest.mark.parametrize("batch_size", [7, 30, 100])
def test_features_are_in_the_order_of_the_images(batch_size):
    images = small_dataset().train.images
    features = features_of(Mean(), images, (0.5,), (0.25,), batch_size=batch_size)
    wanted = 10 * (images.mean(axis=(1, 2)) / 255 - 0.5) / 0.25
    np.testing.assert_allclose(features, wanted, atol=1e-4)


def test_features_of_files_are_those_of_their_pixels(photos):
    options = {"size": 16, "test_share": 0.0, "memory_gb": 1e-9}
    streamed = DATASETS["folder"](path=str(photos), **options)
    assert not isinstance(streamed.train.images, np.ndarray)
    look = {"mean": (0.5,) * 3, "std": (0.25,) * 3, "batch_size": 7}
    pixels = features_of(Mean(), streamed.train.images[:], **look)
    np.testing.assert_allclose(features_of(Mean(), streamed.train.images, **look), pixels)


def test_training_is_sized_to_the_data():
    few, many = small_dataset(30), small_dataset(60_000, np.zeros((60_000, 1, 1, 1), np.uint8))
    low, high = image_features.EPOCHS
    assert config_for(few).epochs == high and low < config_for(many).epochs < high
    assert config_for(few, epochs=2).epochs == 2
    assert [config_for(each).method.select.pca_dim for each in (few, many)] == [2, 64]
    assert config_for(few).backbone.name == "c2f2" and config_for(few).preset == "noise_model"


def test_a_run_belongs_to_one_data_set():
    dataset = small_dataset()
    labels = dataset.train.labels.copy()
    labels[3] = 1 - labels[3]
    relabelled = dataset._replace(train=dataset.train._replace(labels=labels))
    named = dataset._replace(train=dataset.train._replace(names=np.arange(30).astype(str)))
    marks = {fingerprint(each) for each in (dataset, relabelled, named, small_dataset(28))}
    assert len(marks) == 4 and fingerprint(small_dataset()) in marks
