"""Label errors of images: learn features from them, find the errors in those.

images = load_images(folder="photos", size=32)
found, features = train_and_detect(images.dataset, images.labels, Path("found/training"))
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from spr_jax.detection.cross_fit import cross_fit, folds_of, usual_folds
from spr_jax.detection.features import features_of, learn_network
from spr_jax.detection.find import find_label_errors
from spr_jax.detection.options import DEFAULTS, DetectorOptions
from spr_jax.detection.types import Detection
from spr_jax.types import Dataset

LEAST_IMAGES = 20  # fewer teach a network nothing


def train_and_detect(
    dataset: Dataset,
    labels: np.ndarray,  # [N] class names: those of the data set, or some of them flipped
    workdir: Path,
    *,
    folds: int | None = None,
    epochs: int | None = None,
    options: DetectorOptions = DEFAULTS,
    should_stop: Callable[[int], bool] = lambda step: False,
) -> tuple[Detection, np.ndarray]:
    """Train networks on the images, and find the label errors from their features.

    Args:
      dataset: its training images are judged.
      labels: of the training images, in their order.
      workdir: folder of the training run; a run that it already holds is resumed. With several
        folds each has its own folder next to it.
      folds: number of networks; each image is judged by the one that was not trained on it
        (`cross_fit.py`). 1: one network, for all images. None: 3, if every class has 3 images.
      epochs: of training; None: by the number of images.
      options: of the detector.
      should_stop: asked after every step of training.

    Returns:
      The detection, and the features [N, d] of the first network, to compare examples with.

    Raises:
      ValueError: in one sentence, what was given and what is expected.
      spr_jax.training.Stopped: if it was asked to stop; the same call resumes.
    """
    if len(labels) < LEAST_IMAGES:
        raise ValueError(
            f"Got {len(labels)} images to train a network on; expected at least {LEAST_IMAGES}: "
            "give more, or the features that another network has for them."
        )
    folds = folds or usual_folds(labels)
    codes = {name: code for code, name in enumerate(dataset.class_names)}
    given = np.array([codes[label] for label in labels.tolist()], np.int32)
    train = dataset.train._replace(labels=given)

    def judge(examples, home):
        """Judge all images by a network that is trained on some examples."""
        network = learn_network(
            dataset._replace(train=examples),
            home,
            epochs=epochs,
            seed=options.seed,
            should_stop=should_stop,
        )
        features = features_of(network, train.images, dataset.mean, dataset.std)
        return find_label_errors(features, labels, **options._asdict()), features

    if folds == 1:
        return judge(train, workdir)
    fold, all_features = folds_of(labels, folds, options.seed), []

    def judge_without(number):
        home = workdir.with_name(f"{workdir.name}-fold-{number + 1}-of-{folds}")
        found, features = judge(train.take(np.flatnonzero(fold != number)), home)
        all_features.append(features)
        return found

    by_entry = options.keep is not None
    return cross_fit(labels, fold, judge_without, by_entry=by_entry), all_features[0]
