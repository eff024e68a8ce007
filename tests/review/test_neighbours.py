"""The order of a review, and the nearest clean examples."""

import numpy as np
import pytest
from detections import made_up

from spr_jax.review import neighbours
from spr_jax.review.neighbours import directions_of, most_suspect, nearest_clean


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int64])
def test_directions_are_cosines_about_the_mean(kind):
    features = np.random.default_rng(0).integers(0, 200, (40, 5)).astype(kind)
    directions = directions_of(features)
    centred = features.astype(np.float64) - features.astype(np.float64).mean(axis=0)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(directions, centred / lengths, atol=1e-6)
    np.testing.assert_array_equal(directions_of(np.ones((3, 2), kind)), np.zeros((3, 2)))


def test_nearest_clean_agrees_with_a_search_one_by_one(monkeypatch):
    generator = np.random.default_rng(0)
    directions = generator.standard_normal((50, 4)).astype(np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    given, clean = generator.integers(0, 3, 50), generator.random(50) < 0.7
    queries, wanted = generator.permutation(50)[:30], generator.integers(0, 3, 30)
    found = nearest_clean(directions, given, clean, queries, wanted)
    monkeypatch.setattr(neighbours, "BLOCK", 20)
    np.testing.assert_array_equal(
        nearest_clean(directions, given, clean, queries, wanted).index, found.index
    )
    for row, (query, label) in enumerate(zip(queries, wanted, strict=True)):
        others = [i for i in range(50) if clean[i] and given[i] == label and i != query]
        others.sort(key=lambda i: -(directions[i] @ directions[query]))
        assert found.index[row].tolist() == others[: neighbours.NUM_NEIGHBOURS]
        expected = directions[others[: neighbours.NUM_NEIGHBOURS]] @ directions[query]
        np.testing.assert_allclose(found.cosine[row], expected, rtol=1e-5)


def test_a_class_with_too_few_clean_examples_leaves_gaps():
    directions = np.eye(4, dtype=np.float32)
    given, clean = np.array([0, 0, 1, 1]), np.array([True, True, False, False])
    index = nearest_clean(directions, given, clean, np.array([0, 2]), np.array([0, 1])).index
    assert index.tolist() == [[1, -1, -1], [-1, -1, -1]]


def test_cards_are_the_most_suspect_of_all_and_of_each_pair():
    given = np.array(["a"] * 6 + ["b"] * 3)
    suggested = np.array(["b"] * 6 + ["a"] * 2 + ["b"])
    found = made_up(given, suggested, [0.9, 0.95, 0.8, 0.99, 0.7, 0.75, 0.6, 0.55, 0.1])
    codes = np.searchsorted(["a", "b"], given), np.searchsorted(["a", "b"], suggested)
    # 3, 1 and 0 are the surest of all; 6 is the surest of its pair, 8 is not suspect.
    assert most_suspect(found, *codes).tolist() == [3, 1, 6, 0, 2, 7, 5, 4, 8]
    assert sorted(most_suspect(found, *codes)) == list(range(9))
