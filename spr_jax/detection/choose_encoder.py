"""Encoder or networks trained on the images: decide by the given labels, without the truth.

Features are good if they predict the labels of images that they were not fitted to. On a sample of
the images both candidates are asked for it: the pretrained encoder as it is, and a small network
trained on part of the sample (`learn`). On the rest (`held_out`) the labels are regressed on the
features of each, and each label is predicted from all others (`ridge.py`):

    log-likelihood = mean of log softmax(scale * prediction)[label],   best penalty and scale

Wrong labels lower the likelihood of both alike. The sample network learns from all labels: it
compiles faster than with SPR's selection, and loses nothing (on 3,000 images of CIFAR-10's test set
-1.77, with selection -1.85). Measured on test images with 20 % of the labels wrong, 2,000 held out:

    network learned from    750 images    3,000 images    efficientnet_lite0, 128 pixels
    MNIST                        -1.07           -1.03                            -1.15
    CIFAR-10                     -1.93           -1.85                            -1.31

More images help both, so no allowance is made for the small sample.
"""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spr_jax.datasets.images import ImageFiles, decode_all
from spr_jax.detection.encode import encode_in_folder, folder_of, sample_order
from spr_jax.detection.listing import Images
from spr_jax.detection.ridge import left_out
from spr_jax.encoders import Encoder
from spr_jax.io.atomic import read_json, write_json

SCRATCH = "scratch"  # the name of networks that are trained on the images
LEARN, HELD_OUT = 3000, 2000  # images of the sample, at most
LEAST = 500  # of the sample: from fewer images no network learns more than the encoder knows
VISITS = 30_000  # images that the network sees in all epochs together: half a minute of two cores
PENALTIES = 10.0 ** np.arange(-4, 2)  # of the mean eigenvalue of X'X
SCALES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


class Choice(NamedTuple):
    encoder: str
    reason: str  # a sentence
    likelihood: dict[str, float]  # of each candidate that was asked


def choose_encoder(
    images: Images,
    encoder: Encoder,
    home: Path,
    *,
    key: str,
    should_stop: Callable[[int], bool] = lambda step: False,
) -> Choice:
    """Choose between the encoder and `scratch`.

    Args:
      images: whose labels are to be judged.
      encoder: the candidate besides networks that are trained on the images.
      home: folder where features are kept (`encode.py`), the network of the sample until it has
        been asked, and the choice.
      key: identifies the images.
      should_stop: asked after every block and every step of training.

    Raises:
      spr_jax.io.signals.Stopped: if it was asked to stop; the same call resumes.
    """
    classes, codes = np.unique(images.labels, return_inverse=True)
    about = {
        "images": key,
        "labels": _hash((classes.tolist(), codes.tolist())),
        "candidate": encoder.name,
        "version": encoder.version,
    }
    stored = read_json(home / "choice.json")
    if {name: stored.get(name) for name in about} == about:
        return Choice(stored["encoder"], stored["reason"], stored["likelihood"])
    if len(codes) < LEAST:
        reason = f"{len(codes)} images are too few to train a network on"
        return Choice(encoder.name, reason, {})
    workdir = home / f"sample-{_hash(about)}"
    for other in home.glob("sample-*"):  # of other images, interrupted
        if other != workdir:
            shutil.rmtree(other)
    choice = _ask(images, codes, encoder, home, key, workdir, should_stop)
    write_json(home / "choice.json", about | choice._asdict())
    shutil.rmtree(workdir, ignore_errors=True)
    return choice


def _hash(facts):
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _ask(images, codes, encoder, home, key, workdir, should_stop):
    """Ask both candidates about the same images."""
    held_out = min(HELD_OUT, 2 * len(codes) // 5)
    sample = sample_order(len(codes))[: held_out + LEARN]
    features, errors = encode_in_folder(
        images.dataset.train.images,
        encoder,
        folder_of(encoder, home),
        key=key,
        at_least=held_out,
        should_stop=should_stop,
    )
    judged = sample[:held_out][~np.isin(sample[:held_out], list(errors))]
    if len(judged) < LEAST // 5:
        return Choice(encoder.name, "most images cannot be read", {})
    print(f"Training a small network on a sample, to choose between {encoder.name} and {SCRATCH}.")
    own = _features_from_scratch(images, sample[held_out:], judged, workdir, should_stop)
    likelihood = {
        name: predictability(seen, codes[judged])
        for name, seen in ((encoder.name, features[judged]), (SCRATCH, own))
    }
    (taken, most), (_, least) = sorted(likelihood.items(), key=lambda item: -item[1])
    other = encoder.name if taken == SCRATCH else "a network trained on the images"
    reason = (
        f"on {len(judged):,} images held out, the given labels have a mean log-likelihood of "
        f"{most:.3f} by its features and of {least:.3f} by those of {other}"
    )
    return Choice(taken, reason, likelihood)


def predictability(
    features: np.ndarray,  # [n, d]
    codes: np.ndarray,  # [n], classes
) -> float:
    """Mean log-likelihood of each label, predicted from all others by ridge regression."""
    targets, rows, best = np.eye(codes.max() + 1)[codes], np.arange(len(codes)), -np.inf
    for scores in left_out(features, targets, PENALTIES):
        for scale in SCALES:
            logits = scale * scores
            logits -= logits.max(axis=1, keepdims=True)
            normalizer = np.log(np.exp(logits).sum(axis=1))
            best = max(best, (logits[rows, codes] - normalizer).mean().item())
    return best


def _features_from_scratch(images, learned, judged, workdir, should_stop):
    """Train a small network on some images, and take its features of others."""
    from spr_jax.detection.features import EPOCHS, features_of, learn_network  # slow to import

    dataset = images.dataset
    part, held_out = (_in_memory(dataset.train.take(rows)) for rows in (learned, judged))
    epochs = int(np.clip(VISITS // len(part.labels), *EPOCHS))
    network = learn_network(
        dataset._replace(train=part),
        workdir,
        epochs=epochs,
        select=False,
        should_stop=should_stop,
        report=lambda line: None,
    )
    return features_of(network, held_out.images, dataset.mean, dataset.std)


def _in_memory(split):
    """Decode image files, and leave out those that cannot be read."""
    if not isinstance(split.images, ImageFiles):
        return split
    pixels = np.zeros(split.images.shape, np.uint8)
    good = np.flatnonzero([not error for error in decode_all(split.images, pixels)])
    return split._replace(images=pixels).take(good)
