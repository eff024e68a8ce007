"""Label errors of images: load them, learn features from them, look for errors in those.

images = load_images(folder="photos", size=32)
found, features = find_errors(images.dataset, images.labels, Path("found/training"))
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spr_jax.cross_fit import cross_fit, folds_of, take, usual_folds
from spr_jax.datasets import DATASETS
from spr_jax.datasets.images import ImageFiles
from spr_jax.image_features import features_of, learn_network, usual_size
from spr_jax.label_errors import Detection, find_label_errors
from spr_jax.registry import build, options_of
from spr_jax.report import CARD_SIDE
from spr_jax.types import Dataset

LEAST_IMAGES = 20  # to learn anything from


class Images(NamedTuple):
    """Those whose labels are looked at: the training images of a data set."""

    dataset: Dataset
    labels: np.ndarray  # [N] class names, as given
    true: np.ndarray | None  # [N] class names, where known
    shown: Any  # [N, h, w, channels], for the page: as large as it shows them


def load_images(
    *,
    folder: str = "",
    name: str = "",
    size: int | None = None,
    skip_unreadable: bool = False,
    data_dir: str = "",
) -> Images:
    """A user's folder, of which nothing is held out, or a data set by its name."""
    if folder and not Path(folder).expanduser().is_dir():
        raise ValueError(f"There is no folder {folder!r}; --images is where the images are.")
    if name == "folder":
        raise ValueError("Images of one's own are given with --images=DIR, not with --dataset.")
    options = {"name": "folder" if folder else name, "data_dir": data_dir}
    if folder:
        options |= {"path": folder, "size": size or usual_size(), "test_share": 0.0}
        options["skip_unreadable"] = skip_unreadable
    elif name in DATASETS and "data_dir" not in options_of(DATASETS[name]):
        del options["data_dir"]  # embedded
    dataset = build(DATASETS, options)
    train, names = dataset.train, np.array(dataset.class_names)
    true = None if train.true_labels is None else names[train.true_labels]
    shown = train.images
    if folder:
        root = Path(folder).expanduser()
        shown = ImageFiles([str(root / file) for file in train.names], CARD_SIDE, CARD_SIDE)
    return Images(dataset, names[train.labels], true, shown)


def find_errors(
    dataset: Dataset,
    labels: np.ndarray,  # [N] class names: those of the data set, or some of them flipped
    workdir: Path,
    *,
    folds: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    **criterion,
) -> tuple[Detection, np.ndarray]:
    """What is found, and features [N, d] to compare examples with.

    An example is judged by one of several networks, which did not learn from it (`cross_fit.py`),
    and the features are of the first of them; or by one network for all, with one fold.
    """
    if len(labels) < LEAST_IMAGES:
        raise ValueError(
            f"Got {len(labels)} images to train a network on; expected at least {LEAST_IMAGES}: "
            "give more, or their features from another network with --features."
        )
    folds = folds or usual_folds(labels)
    codes = {name: code for code, name in enumerate(dataset.class_names)}
    given = np.array([codes[label] for label in labels.tolist()], np.int32)
    train = dataset.train._replace(labels=given)

    def features_after(examples, home):
        network = learn_network(dataset._replace(train=examples), home, epochs=epochs, seed=seed)
        return features_of(network, train.images, dataset.mean, dataset.std)

    def find(features):
        return find_label_errors(features, labels, seed=seed, **criterion)

    if folds == 1:
        features = features_after(train, workdir)
        return find(features), features
    fold, seen = folds_of(labels, folds, seed), []

    def without(number):
        home = workdir.with_name(f"{workdir.name}-fold-{number + 1}-of-{folds}")
        seen.append(features_after(take(train, np.flatnonzero(fold != number)), home))
        return find(seen[-1])

    by_entry = criterion.get("keep") is not None
    return cross_fit(labels, fold, without, by_entry=by_entry), seen[0]
