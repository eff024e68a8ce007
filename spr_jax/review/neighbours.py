"""The order in which labels are reviewed, and the clean examples most similar to each.

An example is shown with its nearest neighbours among the clean examples of its given class, and
among those of the suggested class: a reviewer sees at a glance which of them it resembles.
"""

from typing import NamedTuple

import numpy as np

from spr_jax.detection.types import Detection

NUM_NEIGHBOURS = 3
BLOCK = 2**22  # similarities computed at once


class Neighbours(NamedTuple):
    # [M, k], most similar first; -1 where a class has no more clean examples.
    index: np.ndarray  # type: ignore[assignment]
    cosine: np.ndarray  # [M, k]


def most_suspect(
    found: Detection,
    given: np.ndarray,  # [N], indices of classes
    suggested: np.ndarray,  # [N]
) -> np.ndarray:
    """Order the examples by suspicion, alternating between all and each pair of classes in turn.

    By suspicion alone, dissimilar classes would come first: confusing them is the most certain
    error, not the most common.
    """
    pairs = (given.astype(np.int64) * len(found.noise.classes) + suggested)[found.order]
    by_pair = np.argsort(pairs, kind="stable")
    turn = np.empty(len(pairs), int)  # number of more suspect examples of the same pair
    turn[by_pair] = np.arange(len(pairs)) - np.searchsorted(pairs[by_pair], pairs[by_pair])
    in_turn = np.argsort(np.lexsort((turn, found.clean[found.order])))
    place = np.minimum(2 * np.arange(len(pairs)), 2 * in_turn + 1)
    return found.order[np.argsort(place)]


def directions_of(features: np.ndarray) -> np.ndarray:
    """Center the rows and scale them to length one: their inner products are cosines."""
    features = np.asarray(features, np.result_type(features, np.float32))
    scale = max(float(np.abs(features).max()), np.finfo(np.float32).tiny)
    rows = features / scale  # squares must stay within single precision
    rows = (rows - rows.mean(axis=0)).astype(np.float32)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def nearest_clean(
    directions: np.ndarray,  # [N, d], rows of length one
    given: np.ndarray,  # [N], indices of classes
    clean: np.ndarray,  # [N] bool
    queries: np.ndarray,  # [M], indices of examples
    wanted: np.ndarray,  # [M], the class to search for each of them
) -> Neighbours:
    """Find the most similar clean examples of a class, except the example itself."""
    index = np.full((len(queries), NUM_NEIGHBOURS), -1, np.int32)
    cosine = np.full(index.shape, -np.inf, np.float32)
    for label in np.unique(wanted):
        pool = np.flatnonzero(clean & (given == label))
        if not len(pool):
            continue
        members = directions[pool]
        asking = np.flatnonzero(wanted == label)
        for rows in np.array_split(asking, 1 + len(asking) * len(pool) // BLOCK):
            similarity = directions[queries[rows]] @ members.T
            similarity[queries[rows, None] == pool] = -np.inf
            best = _largest(similarity, NUM_NEIGHBOURS)
            place = rows[:, None], np.arange(best.shape[1])
            cosine[place] = np.take_along_axis(similarity, best, axis=1)
            index[place] = pool[best]
    index[np.isneginf(cosine)] = -1
    return Neighbours(index, cosine)


def _largest(values, count):
    """Return the columns of the largest values of each row, the largest first."""
    count = min(count, values.shape[1])
    columns = np.argpartition(values, -count)[:, -count:]
    inner = np.argsort(-np.take_along_axis(values, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, inner, axis=1)
