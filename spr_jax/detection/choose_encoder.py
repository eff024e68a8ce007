"""Encoder or networks trained on the images: decide by the given labels, without the truth.

Features are good if they predict the labels of images that they were not fitted to. On a sample of
the images both candidates are asked for it: the pretrained encoder as it is, and a small network
trained on part of the sample (`learn`). On the rest (`held_out`) the labels are regressed on the
features of each, and each label is predicted from all others:

    scores = Y - (Y - H Y) / (1 - h),   H = X (X'X + penalty I)^-1 X',   h = diag H
    log-likelihood = mean of log softmax(scale * scores)[label],   best penalty and scale

Wrong labels lower the likelihood of both alike.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spr_jax.datasets.images import ImageFiles, decode_all
from spr_jax.detection.encode import encode_in_folder, folder_of, sample_order
from spr_jax.detection.listing import Images
from spr_jax.encoders import Encoder
from spr_jax.io.atomic import write_json

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
    labels = hashlib.sha256(repr((classes.tolist(), codes.tolist())).encode()).hexdigest()[:16]
    about = {"images": key, "labels": labels, "candidate": encoder.name, "version": encoder.version}
    path = home / "choice.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    if {name: stored.get(name) for name in about} == about:
        return Choice(stored["encoder"], stored["reason"], stored["likelihood"])
    if len(codes) < LEAST:
        reason = f"{len(codes)} images are too few to train a network on"
        return Choice(encoder.name, reason, {})
    choice = _ask(images, codes, encoder, home, key, should_stop)
    write_json(path, about | choice._asdict())
    return choice


def _ask(images, codes, encoder, home, key, should_stop):
    order = sample_order(len(codes))
    held_out = min(HELD_OUT, 2 * len(codes) // 5)
    sample = order[: LEARN + held_out]
    features, errors = encode_in_folder(
        images.dataset.train.images,
        encoder,
        folder_of(encoder, home),
        key=key,
        at_least=len(sample),
        should_stop=should_stop,
    )
    sample = sample[~np.isin(sample, list(errors))]
    judged, learned = sample[:held_out], sample[held_out:]
    likelihood = {encoder.name: predictability(features[judged], codes[judged])}
    own = _features_from_scratch(images, learned, judged, home / "sample_network", should_stop)
    likelihood[SCRATCH] = predictability(own, codes[judged])
    shutil.rmtree(home / "sample_network")
    taken = max(likelihood, key=likelihood.__getitem__)
    (better, most), (_, least) = sorted(likelihood.items(), key=lambda item: -item[1])
    other = "a network trained on the images" if taken != SCRATCH else encoder.name
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
    targets = np.eye(codes.max() + 1)[codes]
    prior = targets.mean(axis=0)
    centred = features.astype(np.float64) - features.mean(axis=0, dtype=np.float64)
    left, values = _left_singular(centred)
    residual, rows, best = targets - prior, np.arange(len(codes)), -np.inf
    for penalty in PENALTIES * values.mean():
        shrunk = left * (values / (values + penalty))
        leverage = (left * shrunk).sum(axis=1) + 1 / len(codes)
        scores = -(residual - shrunk @ (left.T @ residual)) / (1 - leverage)[:, None]
        scores += targets
        for scale in SCALES:
            logits = scale * scores
            logits -= logits.max(axis=1, keepdims=True)
            normalizer = np.log(np.exp(logits).sum(axis=1))
            best = max(best, (logits[rows, codes] - normalizer).mean().item())
    return best


def _left_singular(matrix):
    """Left singular vectors [n, r] and squared singular values [r], without those that are zero."""
    n, d = matrix.shape
    wide = n <= d
    values, vectors = np.linalg.eigh(matrix @ matrix.T if wide else matrix.T @ matrix)
    kept = values > max(values[-1], 1e-300) * 1e-10
    values, vectors = values[kept], vectors[:, kept]
    return (vectors if wide else matrix @ vectors / np.sqrt(values)), values


def _features_from_scratch(images, learned, judged, workdir, should_stop):
    """Train a small network on some images, and take its features of others."""
    from spr_jax.detection.features import EPOCHS, features_of, learn_network  # slow to import

    dataset = images.dataset
    part, held_out = (_in_memory(dataset.train.take(np.sort(rows))) for rows in (learned, judged))
    epochs = int(np.clip(VISITS // len(learned), *EPOCHS))
    network = learn_network(
        dataset._replace(train=part), workdir, epochs=epochs, should_stop=should_stop
    )
    back = np.argsort(np.argsort(judged))
    return features_of(network, held_out.images, dataset.mean, dataset.std)[back]


def _in_memory(split):
    """Decode files that are small enough to train on at once."""
    if not isinstance(split.images, ImageFiles):
        return split
    pixels = np.zeros(split.images.shape, np.uint8)
    decode_all(split.images, pixels)
    return split._replace(images=pixels)
