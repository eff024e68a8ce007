"""SimiFeat: label errors from the labels of similar examples, without training.

A short implementation from the description of Zhu, Dong and Liu, 2022, "Detecting corrupted labels
without training a model to predict", https://arxiv.org/abs/2110.06283. Examples vote for their
labels on their K - 1 nearest by angle and on themselves, weighted by similarity:

    vote  suspect where another label has the most votes
    rank  examples of a label j ordered by -log of their own label's votes; the first
          (1 - P(true = j | given = j)) N_j are suspects

P comes from the consensus of neighbours (Zhu, Song and Liu, 2021): an example and its two nearest
are taken to have one true class, so their given labels are three draws from one row of the
transition matrix T [c, c]. The authors match moments of these triples; we maximize their likelihood
by EM, which is shorter. They also average over augmented images, which features do not have.
"""

import numpy as np
from sklearn.neighbors import NearestNeighbors

K = 10
STEPS = 100


def similar(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The K most similar examples [N, K], itself first, and their similarities [N, K]."""
    centred = features - features.mean(axis=0)
    unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    search = NearestNeighbors(n_neighbors=K - 1, algorithm="brute", metric="cosine").fit(unit)
    distance, index = search.kneighbors()
    itself = 2 * distance[:, :1] - distance[:, 1:2]  # as far as the next ones are from each other
    index = np.hstack([np.arange(len(features))[:, None], index])
    return index, 1 - np.hstack([itself, distance])


def votes_of(labels: np.ndarray, similarity: np.ndarray, num_classes: int) -> np.ndarray:
    """Similarity-weighted votes [N, c] of unit length; `labels` [N, K] are those of the similar."""
    votes = [np.sum(similarity * (labels == k), axis=1) for k in range(num_classes)]
    votes = np.maximum(np.stack(votes, axis=1), 0)
    return votes / np.maximum(np.linalg.norm(votes, axis=1, keepdims=True), 1e-12)


def similarity_vote(
    index: np.ndarray,  # [N, K], of `similar`
    similarity: np.ndarray,  # [N, K]
    given: np.ndarray,  # [N]
) -> tuple[np.ndarray, np.ndarray]:
    """Suspicion [N] and suspects [N] by vote."""
    votes = votes_of(given[index], similarity, int(given.max()) + 1)
    return _loss(votes, given), votes.argmax(axis=1) != given


def similarity_rank(
    index: np.ndarray,  # [N, K], of `similar`
    similarity: np.ndarray,  # [N, K]
    given: np.ndarray,  # [N]
) -> tuple[np.ndarray, np.ndarray]:
    """Suspicion [N] and suspects [N] by rank within each given class."""
    num_classes = int(given.max()) + 1
    loss = _loss(votes_of(given[index], similarity, num_classes), given)
    suspect = np.zeros(len(given), bool)
    for label, probability in enumerate(probability_correct(given[index[:, :3]], num_classes)):
        members = np.flatnonzero(given == label)
        count = round((1 - probability) * len(members))
        suspect[members[np.argsort(-loss[members], kind="stable")[:count]]] = True
    return loss, suspect


def _loss(votes, given):
    return -np.log(np.maximum(votes[np.arange(len(given)), given], 1e-12))


def probability_correct(triples: np.ndarray, num_classes: int) -> np.ndarray:
    """P(true = j | given = j), [c], from the labels of examples and their two nearest [N, 3]."""
    prior = np.bincount(triples[:, 0], minlength=num_classes) / len(triples)
    transition = 0.7 * np.eye(num_classes) + 0.3 / num_classes  # T, row: true class
    # Triples with the same labels, in any order, have the same posterior.
    triples, counts = np.unique(np.sort(triples, axis=1), axis=0, return_counts=True)
    draws = np.eye(num_classes)[triples].sum(axis=1)  # [n, c]
    for _ in range(STEPS):
        logs = draws @ np.log(np.maximum(transition, 1e-12)).T  # [n, c]
        logs += np.log(np.maximum(prior, 1e-12))
        posterior = np.exp(logs - logs.max(axis=1, keepdims=True))
        posterior *= (counts / posterior.sum(axis=1))[:, None]
        prior = posterior.sum(axis=0) / counts.sum()
        transition = posterior.T @ draws
        transition /= np.maximum(transition.sum(axis=1, keepdims=True), 1e-12)
    joint = prior[:, None] * transition
    return np.diag(joint) / np.maximum(joint.sum(axis=0), 1e-12)
