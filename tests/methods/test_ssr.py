"""SSR+: votes of neighbors in plain NumPy, and the clean set that follows from them."""

import numpy as np
import pytest
from fakes import revise

from spr_jax.methods.ssr import ssr
from spr_jax.solver.neighbor_scores import count_votes

C = 3


def slow_votes(features, labels, num_classes, neighbors):
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    sizes = np.bincount(labels, minlength=num_classes)
    votes = np.zeros((len(labels), num_classes))
    for i, own in enumerate(unit):
        for j in np.argsort(-(unit @ own))[:neighbors]:
            votes[i, labels[j]] += 1 / sizes[labels[j]]
    return votes


@pytest.mark.parametrize("neighbors", [1, 7, 500])
def test_votes_are_those_of_the_nearest(neighbors):
    generator = np.random.default_rng(0)
    features, labels = generator.standard_normal((300, 5)), generator.integers(0, 4, 300) % 3
    found = count_votes(
        features, labels, generator.permutation(300), num_classes=4, neighbors=neighbors
    )
    np.testing.assert_allclose(found, slow_votes(features, labels, 4, neighbors), rtol=1e-6)


def test_fewer_voters_choose_among_themselves():
    features, true, given = blobs(wrong=0)
    found = count_votes(features, given, np.arange(9), num_classes=C, neighbors=2)
    np.testing.assert_array_equal(found.argmax(axis=1), true)
    assert found.max() == pytest.approx(2 / 3)


def blobs(count=90, wrong=12, seed=0):
    """Three clusters of directions; the first labels are wrong."""
    generator = np.random.default_rng(seed)
    true = np.arange(count) % C
    features = 4 * np.eye(C)[true] + 0.5 * generator.standard_normal((count, C))
    given = np.where(np.arange(count) < wrong, (true + 1) % C, true)
    return features, true, given


def test_wrong_labels_among_neighbors_of_another_class_are_found():
    features, true, given = blobs()
    method = ssr(neighbors=20)
    record = {"features": features, "logits": np.zeros((len(true), C))}
    memory = revise(method, method.init(given, C), record, given)
    np.testing.assert_array_equal(memory["clean"], given == true)
    np.testing.assert_array_equal(memory["labels"], given)  # nobody is sure of uniform predictions
    np.testing.assert_array_equal(memory["weights"] > 0, given == true)
    assert memory["suspicion"][given != true].min() > memory["suspicion"][given == true].max()


def test_sure_predictions_turn_wrong_labels_into_clean_examples_for_one_epoch():
    features, true, given = blobs()
    method = ssr(neighbors=20)
    sure = {"features": features, "logits": 9.0 * np.eye(C)[true]}
    memory = revise(method, method.init(given, C), sure, given)
    np.testing.assert_array_equal(memory["labels"], true)
    assert (memory["weights"] > 0).all()
    np.testing.assert_array_equal(memory["clean"], given == true)  # of the given labels
    unsure = sure | {"logits": np.zeros((len(true), C))}
    again = revise(method, memory, unsure, given)
    np.testing.assert_array_equal(again["labels"], given)


def test_every_label_is_confirmed_where_no_agreement_is_asked_for():
    features, true, given = blobs()
    method = ssr(neighbors=20, agreement=0.0, balance=False)
    record = {"features": features, "logits": np.zeros((len(true), C))}
    memory = revise(method, method.init(given, C), record, given, skipped=[5])
    np.testing.assert_array_equal(memory["weights"], np.arange(len(true)) != 5)


def test_own_vote_decides_alone():
    """With one neighbor, itself, every label is confirmed."""
    features, true, given = blobs()
    record = {"features": features, "logits": np.zeros((len(true), C))}
    method = ssr(neighbors=1)
    assert revise(method, method.init(given, C), record, given)["clean"].all()
