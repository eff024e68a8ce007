"""Synthetic classes for the detection benchmark: features [N, d] and labels [N], by seed.

Spirals, hierarchy and grades are for reports only; the others were looked at while the detector was
made. Each function draws everything from its seed.
"""

import numpy as np
from sklearn.datasets import make_blobs, make_classification

Arrays = tuple[np.ndarray, np.ndarray]


def clustered_classes(seed: int, *, classes: int, clusters: int, spread: float) -> Arrays:
    """Classes of several Gaussian clusters each, at corners of a hypercube."""
    return make_classification(
        4000,
        n_features=20,
        n_informative=10,
        n_redundant=2,
        n_classes=classes,
        n_clusters_per_class=clusters,
        class_sep=spread,
        flip_y=0,
        random_state=seed,
    )


def blobs(seed: int, *, classes: int, dim: int, width: float, box: float = 10.0) -> Arrays:
    """One Gaussian per class, with centres in a box."""
    limits = (-box, box)
    return make_blobs(
        4000, dim, centers=classes, cluster_std=width, center_box=limits, random_state=seed
    )


def rings(seed: int) -> Arrays:
    """Three concentric rings of a plane, turned into ten dimensions and blurred."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 3, 3000)
    angle, radius = draw.uniform(0, 2 * np.pi, 3000), 1 + labels
    plane = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _lifted(plane, 10, 0.15, draw), labels


def checkerboard(seed: int) -> Arrays:
    """Two classes on the alternating fields of a 4 x 4 board, beside four columns of noise."""
    draw = np.random.default_rng(seed)
    place = draw.uniform(0, 4, (4000, 2))
    labels = np.floor(place).sum(axis=1).astype(int) % 2
    return np.hstack([place, draw.normal(size=(4000, 4))]), labels


def heavy_tails(seed: int) -> Arrays:
    """Eight classes around centres, with Student's t of three degrees of freedom: outliers."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 8, 3000)
    centres = draw.normal(0, 2.5, (8, 12))
    return centres[labels] + draw.standard_t(3, (3000, 12)), labels


def factors(seed: int) -> Arrays:
    """Six classes drawn from a softmax of five latent factors; 40 columns are mixtures of these."""
    draw = np.random.default_rng(seed)
    latent = draw.normal(size=(4000, 5))
    scores = 6 * latent @ draw.normal(size=(5, 6))
    labels = np.argmax(scores + draw.gumbel(size=scores.shape), axis=1)
    return _lifted(latent, 40, 0.5, draw), labels


def unbalanced(seed: int) -> Arrays:
    """Fifty classes whose sizes fall from 500 to fifteen, as clusters of unlike width."""
    draw = np.random.default_rng(seed)
    sizes = np.maximum(15, (500 / np.arange(1, 51)).astype(int))
    labels = np.repeat(np.arange(50), sizes)
    centres, widths = draw.normal(0, 2, (50, 24)), draw.uniform(0.5, 1.5, 50)
    return centres[labels] + widths[labels, None] * draw.normal(size=(len(labels), 24)), labels


def counts(seed: int) -> Arrays:
    """Word counts of short texts: five topics of 400 words, 40 words each, most of them common."""
    draw = np.random.default_rng(seed)
    common, topics = draw.dirichlet(np.full(400, 0.1)), draw.dirichlet(np.full(400, 0.1), size=5)
    labels = draw.integers(0, 5, 3000)
    words = [draw.multinomial(40, 0.7 * common + 0.3 * topics[label]) for label in labels]
    return np.stack(words), labels


def spirals(seed: int) -> Arrays:
    """Three arms of a spiral in a plane, turned into eight dimensions and blurred."""
    draw = np.random.default_rng(seed)
    labels, along = draw.integers(0, 3, 3000), draw.uniform(0.5, 3, 3000)
    angle = 2 * along + 2 * np.pi / 3 * labels
    plane = along[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _lifted(plane, 8, 0.12, draw), labels


def hierarchy(seed: int) -> Arrays:
    """Twenty classes in five groups: far from other groups, and close to those of their own."""
    draw = np.random.default_rng(seed)
    groups, labels = draw.normal(0, 4, (5, 30)), draw.integers(0, 20, 4000)
    centres = groups[np.arange(20) % 5] + draw.normal(0, 0.6, (20, 30))
    return centres[labels] + draw.normal(size=(4000, 30)), labels


def grades(seed: int) -> Arrays:
    """Five grades of a quality that twelve columns measure with noise: neighbours overlap."""
    draw = np.random.default_rng(seed)
    quality = draw.normal(size=4000)
    labels = np.digitize(quality, [-1, -0.4, 0.4, 1])
    weights = draw.uniform(-1, 1, 12)
    return quality[:, None] * weights + draw.normal(0, 0.5, (4000, 12)), labels


def ridges(seed: int) -> Arrays:
    """Four classes that take turns along a bent line in sixteen dimensions, three times each."""
    draw = np.random.default_rng(seed)
    along = draw.uniform(0, 12, 4000)
    waves = np.stack([along, *(3 * np.sin(along * (1 + k / 3) + k) for k in range(4))], axis=1)
    return _lifted(waves, 16, 0.15, draw), (along + draw.normal(0, 0.1, 4000)).astype(int) % 4


def weak_classes(seed: int) -> Arrays:
    """Four classes that two of ten columns hardly tell apart."""
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(3000, 10))
    scores = features[:, :2] @ draw.normal(size=(2, 4))
    return features, np.argmax(scores + draw.gumbel(size=scores.shape), axis=1)


def _lifted(low, dim, blur, draw):
    """Turn [N, k] by a random orthonormal map into [N, dim], with noise in every direction."""
    turn = np.linalg.qr(draw.normal(size=(dim, low.shape[1])))[0].T
    return low @ turn + blur * draw.normal(size=(len(low), dim))
