"""Detections made up by hand: the page is tested without a detector."""

import numpy as np

from spr_jax.detection.types import Detection, Noise, Promise


def made_up(
    given, suggested, error_probability, *, clean=None, promise=None, explained=True
) -> Detection:
    given, suggested = np.asarray(given), np.asarray(suggested)
    wrong = np.asarray(error_probability, np.float32)
    classes = np.unique(np.concatenate([given, suggested]))
    by_class = np.array(
        [wrong[given == label].mean() if label in given else 0 for label in classes]
    )
    around = np.stack([by_class - 0.05, by_class + 0.05], axis=1).clip(0, 1)
    rate = float(wrong.mean())
    return Detection(
        clean=wrong <= 0.5 if clean is None else clean,
        entry_penalty=2 * wrong,
        suggested=suggested,
        duality_gap=0.0,
        error_probability=wrong,
        order=np.argsort(-wrong, kind="stable"),
        noise=Noise(
            rate=rate,
            interval=(max(rate - 0.02, 0), min(rate + 0.02, 1)),
            classes=classes,
            by_class=by_class,
            by_class_interval=around,
            confusion=np.eye(len(classes)),
            explained=explained,
            fit_gap=0.0,
        ),
        promise=promise,
    )


def promised(found: Detection, level: float, kind: str) -> Detection:
    numbers = np.full(len(found.noise.classes), level)
    return found._replace(promise=Promise(level, kind, numbers > 0, numbers))


def pets(n=60, names=("cat", "cow", "dog")):
    """Features [n, 3], given labels, a detection with a third suspect, images [n, 6, 8, 3].

    Example i is truly names[i % 3] and, where i < n / 3, called the next; the smaller i is, the
    more suspect is the example.
    """
    kind = np.arange(n) % 3
    features = np.eye(3)[kind] + 0.1 * np.random.default_rng(0).random((n, 3))
    is_wrong = np.arange(n) < n // 3
    names = np.array(names)
    given, true = names[(kind + is_wrong) % 3], names[kind]
    wrong = np.where(is_wrong, 0.99 - 0.29 * np.arange(n) / n, 0.2 - 0.1 * np.arange(n) / n)
    images = np.full((n, 6, 8, 3), 60 * kind[:, None, None, None] + 40, np.uint8)
    return features, given, made_up(given, true, wrong), images
