"""From a user's images to what the detector takes: features, or a data set to train on."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from spr_jax.datasets.images import open_image
from spr_jax.detection.choose_encoder import SCRATCH, Choice, choose_encoder
from spr_jax.detection.compress import COMPONENTS, leading_components
from spr_jax.detection.encode import DEFAULT_ENCODER, encode_in_folder, folder_of
from spr_jax.detection.listing import Images, fingerprint_of, list_images, load_images
from spr_jax.detection.user_data import Unreadable, UserData
from spr_jax.encoders import Encoder, load_encoder
from spr_jax.io.arrays import read_features
from spr_jax.io.signals import Stopped
from spr_jax.io.text import shown

AUTO = "auto"


def data_from_images(
    home: Path,
    *,
    folder: str = "",
    name: str = "",
    data_dir: str = "",
    encoder: str = AUTO,
    own_features: str | None = None,
    size: int | None = None,
    pca_dim: int = 0,
    should_stop: Callable[[int], bool] = lambda step: False,
) -> UserData:
    """List images and give them features, or say that networks are to be trained on them.

    Args:
      home: folder where features and the choice of an encoder are kept.
      folder: of the user's images.
      name: of a data set, instead of a folder.
      data_dir: folder where data sets and decoded images are stored.
      encoder: a name in `ENCODERS`, onnx:FILE, `scratch`, or `auto` (`choose_encoder.py`).
      own_features: file of features instead, a row for each image in the order of the listing.
      size: to which images are resized to train on them.
      pca_dim: principal components that the detector will be asked to use; 0: the usual ones.
      should_stop: asked after every block of images, and every step of training.

    Raises:
      ValueError: in one sentence, what was given and what is expected.
      spr_jax.io.signals.Stopped: if it was asked to stop; the same call resumes.
      OSError: if `home` cannot be written to.
    """
    images = list_images(folder=folder, name=name, data_dir=data_dir)
    key = fingerprint_of(images.dataset)
    if own_features:
        data = _data_of(images, {})._replace(features=read_features(own_features))
        return data._replace(pictures_key=key)
    _check_counts(images.labels)
    choice, model = Choice(SCRATCH, "it was asked for", {}), None
    if encoder != SCRATCH:
        choice, model = _choose(images, encoder, home, key, should_stop)
    if model:
        data = _encode(images, model, home, key, pca_dim, should_stop)
    elif folder:
        data = _decode(images, folder, size, data_dir)
    else:
        data = _data_of(images, {})._replace(dataset=images.dataset)
    if should_stop(0):  # asked while images were decoded
        raise Stopped
    return data._replace(features_from=choice._asdict(), pictures_key=key)


def _check_counts(labels):
    """Refuse a folder in which no label has others to be compared with."""
    classes, counts = np.unique(labels, return_counts=True)
    if (counts >= 2).sum() < 2:
        raise ValueError(
            f"Got {len(labels)} images of {len(classes)} classes, and fewer than two classes have "
            "two or more; expected at least two images in each of two classes."
        )


def _choose(
    images: Images, name: str, home: Path, key: str, should_stop
) -> tuple[Choice, Encoder | None]:
    """Return the choice, and the encoder unless networks are to be trained."""
    if name != AUTO:
        return Choice(name, "it was asked for", {}), load_encoder(name)
    try:
        candidate = load_encoder(DEFAULT_ENCODER)
    except ValueError as error:  # its weights are not installed
        return Choice(SCRATCH, f"there is no encoder: {str(error).rstrip('.')}", {}), None
    choice = choose_encoder(images, candidate, home, key=key, should_stop=should_stop)
    return choice, None if choice.encoder == SCRATCH else candidate


def _encode(images, encoder, home, key, pca_dim, should_stop) -> UserData:
    """Give features to the images that can be read."""
    pictures, folder = images.dataset.train.images, folder_of(encoder, home)
    features, errors = encode_in_folder(pictures, encoder, folder, key=key, should_stop=should_stop)
    if len(errors) == len(pictures):
        shutil.rmtree(home)
    data = _data_of(images, errors)
    components = max(COMPONENTS, 2 * len(np.unique(images.labels)), pca_dim)
    features = leading_components(features, folder / "components.npy", components=components)
    if data.unreadable:
        features = features[data.unreadable.others(len(data.labels))]
    return data._replace(features=features)


def _decode(images, folder, size, data_dir) -> UserData:
    """Load the images that can be read, to train networks on them."""
    loaded = load_images(folder=folder, size=size, skip_unreadable=True, data_dir=data_dir)
    train, errors = images.dataset.train, {}
    there: Any = loaded.dataset.train.names
    for index in np.flatnonzero(~np.isin(train.names, there)).tolist():
        try:
            open_image(train.images.paths[index])
        except ValueError as error:
            errors[index] = str(error)
    return _data_of(images, errors)._replace(dataset=loaded.dataset)


def _data_of(images: Images, errors: dict[int, str]) -> UserData:
    """The examples without those whose files cannot be read, which are listed beside them."""
    train, labels, true = images.dataset.train, images.labels, images.true
    if not errors:
        return UserData(labels, None, train.names, pictures=train.images, true=true)
    names = np.array(train.images.paths if train.names is None else train.names)
    lost = np.array(sorted(errors))
    if len(lost) == len(labels):
        raise ValueError(
            f"None of the {len(labels)} images can be read; the first error: {errors[0]}"
        )
    unreadable = Unreadable(lost, names[lost], labels[lost], [errors[row] for row in lost])
    kept = unreadable.others(len(labels) - len(lost))
    gone = np.setdiff1d(labels, labels[kept])
    if len(np.unique(labels[kept])) < 2:
        raise ValueError(
            f"No image of the class {shown(gone[0])} can be read, and one class is left; the first "
            f"error: {errors[lost[0]]}"
        )
    true, pictures = None if true is None else true[kept], train.take(kept).images
    return UserData(labels[kept], None, names[kept], pictures, true, unreadable=unreadable)
