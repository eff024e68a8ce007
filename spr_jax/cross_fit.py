"""Cross-fitting: whether a label is wrong is judged by a network that did not learn from it.

A network that has begun to memorise draws an example to its given label, right or wrong. So the
data is cut into folds, and a network for each learns from all others. Networks do not see in the
same space: each has a regression of its own, and what it says of its fold is kept. The regression
is on all examples, as a fold is a small data set where classes are many.

F1 of the suspects, and AUROC of the chances, C2F2, one seed, before SPR had `least_right`:

    wrong labels                 one network     3 folds, all examples   the fold alone
    1,438 digits, 20 % symmetric   0.914  0.9866     0.958  0.9988       0.964  0.9992
                  40 % symmetric   0.911  0.9963     0.950  0.9984       0.964  0.9982
                  40 % of 5 pairs  0.922  0.9671     0.932  0.9892       0.831  0.9471
    5,000 of MNIST, the same       0.967  0.9985     0.969  0.9992       0.966  0.9990
"""

from collections.abc import Callable

import numpy as np

from spr_jax.files import shown
from spr_jax.label_errors import Detection, Noise, Promise
from spr_jax.types import Split

FOLDS = 3  # each network learns from two thirds; all of them take twice as long as one


def usual_folds(labels: np.ndarray) -> int:
    """FOLDS, or as many as the smallest class has examples for."""
    return min(FOLDS, np.unique(labels, return_counts=True)[1].min().item())


def folds_of(labels: np.ndarray, folds: int, seed: int = 0) -> np.ndarray:
    """[N], the fold of each example; every class is in all of them, as evenly as can be."""
    fold, placed = np.empty(len(labels), int), 0
    for place, label in enumerate(np.unique(labels)):
        members = np.flatnonzero(labels == label)
        if len(members) < folds:
            raise ValueError(
                f"The class {shown(label)} has {len(members)} examples; expected at least {folds}, "
                f"one in each of {folds} folds: lower --folds, or remove the class."
            )
        members = np.random.default_rng((seed, place)).permutation(members)
        fold[members] = (placed + np.arange(len(members))) % folds
        placed += len(members)
    return fold


def take(split: Split, index: np.ndarray) -> Split:
    """Some examples of a split."""
    images = split.images
    images = images[index] if isinstance(images, np.ndarray) else images.take(index)
    return Split(images, *(None if column is None else column[index] for column in split[1:]))


def cross_fit(
    labels: np.ndarray,  # [N]
    fold: np.ndarray,  # [N]
    find: Callable[[int], Detection],
    *,
    by_entry: bool = False,
) -> Detection:
    """`find(k)` judges all examples by the network that fold k was kept from; that fold counts.

    The order is by chance to be wrong, or by entry, which is that of a share to keep.
    """
    parts = [find(number) for number in range(fold.max() + 1)]

    def own(field):
        return np.stack([getattr(part, field) for part in parts])[fold, np.arange(len(fold))]

    wrong, entry = own("wrong"), own("entry")
    return Detection(
        clean=own("clean"),
        entry=entry,
        suggested=own("suggested"),
        gap=max(part.gap for part in parts),
        wrong=wrong,
        order=np.argsort(-entry, kind="stable") if by_entry else np.lexsort((-entry, -wrong)),
        noise=_noise(wrong, labels, [part.noise for part in parts]),
        promise=_common_promise([part.promise for part in parts]),
    )


def _noise(wrong, labels, noises) -> Noise:
    """The chances that were kept say how many are wrong; the networks, how sure that is.

    Each network's own share is mostly of examples that it learned from, and so too low.
    """
    classes = noises[0].classes
    by_class = np.array([wrong[labels == label].mean() for label in classes])
    confusion = np.mean([noise.confusion for noise in noises], axis=0)
    return Noise(
        rate=float(wrong.mean()),
        interval=tuple(_around(wrong.mean(), noises, "rate", "interval").tolist()),
        classes=classes,
        by_class=by_class,
        by_class_interval=_around(by_class, noises, "by_class", "by_class_interval"),
        confusion=_with_shares(confusion, by_class),
        explained=all(noise.explained for noise in noises),
    )


def _around(share, noises, middle, interval):
    """The intervals of the networks, in the mean, moved to where the share is; [..., 2]."""
    offsets = [
        np.array(getattr(noise, interval)) - np.expand_dims(getattr(noise, middle), -1)
        for noise in noises
    ]
    return np.clip(np.expand_dims(share, -1) + np.mean(offsets, axis=0), 0, 1)


def _with_shares(confusion, by_class):
    """Rows that say where the wrong labels of a class belong, with so many wrong labels."""
    others = confusion * (1 - np.eye(len(confusion)))
    others *= (by_class / np.maximum(others.sum(axis=1), 1e-30))[:, None]
    return others + np.diag(1 - others.sum(axis=1))


def _common_promise(promises) -> Promise | None:
    """What all networks say that can be kept."""
    if promises[0] is None:
        return None
    attained = np.all([promise.attained for promise in promises], axis=0)
    lowest = np.max([promise.lowest for promise in promises], axis=0)
    return promises[0]._replace(attained=attained, lowest=lowest)
