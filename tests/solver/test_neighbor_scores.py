"""Scores by the vote of neighbors, against a slow count."""

import jax
import numpy as np
import pytest

from spr_jax.solver import neighbor_scores as module
from spr_jax.solver.basis import principal_components
from spr_jax.solver.kernel_scores import normalized


def scores_of(features, labels, num_classes):
    def run(features, labels):
        components = principal_components(features, features.shape[1])
        return module.neighbor_scores(components, labels, num_classes)

    with jax.default_matmul_precision("highest"):
        return np.asarray(jax.jit(run)(features, labels))


def slow_scores(features, labels, num_classes, voters):
    votes = np.zeros((num_classes, len(features)))
    for i, row in enumerate(features):
        others = voters[voters != i]
        distance = np.sum((features[others] - row) ** 2, axis=1)
        for j in others[np.argsort(distance)[: module.NEIGHBORS]]:
            votes[labels[j], i] += 1
    logs = np.log(votes + 0.5)
    return np.asarray(normalized(logs - logs.mean(axis=0)))


@pytest.fixture
def drawn():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 200)
    features = generator.standard_normal((200, 5)) + 1.5 * np.eye(5)[labels]
    return features.astype(np.float32), labels


@pytest.mark.parametrize("most_voters", [5000, 60])
def test_votes_are_those_of_the_nearest(drawn, most_voters, monkeypatch):
    features, labels = drawn
    monkeypatch.setattr(module, "MOST_VOTERS", most_voters)
    voters = np.asarray(jax.random.permutation(jax.random.key(2), 200)[:most_voters])
    expected = slow_scores(features, labels, 3, voters)
    np.testing.assert_allclose(scores_of(features, labels, 3), expected, atol=1e-4)


def test_a_label_does_not_move_its_own_score(drawn):
    features, labels = drawn
    changed = labels.copy()
    changed[7] = (labels[7] + 1) % 3

    def ranked(labels):  # its neighbors have other votes now, and so the scale has moved
        votes = scores_of(features, labels, 3)[:, 7]
        return np.argsort(votes)

    np.testing.assert_array_equal(ranked(changed), ranked(labels))


def test_a_checkerboard_is_seen():
    generator = np.random.default_rng(0)
    places = generator.uniform(0, 6, (3000, 2)).astype(np.float32)
    labels = np.floor(places).sum(axis=1).astype(int) % 2
    assert np.mean(scores_of(places, labels, 2).argmax(axis=0) == labels) > 0.9


@pytest.mark.parametrize("n", [2, 3, 8])
def test_few_examples_do_no_harm(n):
    features = np.arange(n, dtype=np.float32)[:, None]
    assert np.isfinite(scores_of(features, np.arange(n) % 2, 2)).all()


def test_constant_features_have_no_scores():
    labels = np.random.default_rng(0).integers(0, 2, 100)
    assert (scores_of(np.ones((100, 3), np.float32), labels, 2) == 0).all()
