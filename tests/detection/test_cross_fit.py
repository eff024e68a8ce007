"""Folds, and the verdicts of several networks put together."""

import numpy as np
import pytest
from detections import made_up, promised

from spr_jax.detection.cross_fit import cross_fit, folds_of, usual_folds


def test_folds_hold_every_class_evenly():
    labels = np.random.default_rng(0).permutation(np.repeat(["a", "b", "c"], [30, 31, 5]))
    fold = folds_of(labels, 3)
    counts = np.array([[np.sum(labels[fold == k] == name) for name in "abc"] for k in range(3)])
    assert counts.max(axis=0).tolist() == [10, 11, 2] and counts.min(axis=0).tolist() == [10, 10, 1]
    assert np.bincount(fold).tolist() == [22, 22, 22]
    assert (folds_of(labels, 3, seed=1) != fold).any()
    assert usual_folds(labels) == 3 and usual_folds(np.array(["a", "b", "b", "b"])) == 1
    with pytest.raises(ValueError, match="class c has 5 examples; .* folds is 6"):
        folds_of(labels, 6)


def test_what_networks_found_is_put_together_in_the_order_of_the_examples():
    generator = np.random.default_rng(0)
    given = generator.permutation(np.repeat(["a", "b", "c"], [40, 21, 9]))
    fold = folds_of(given, 2)
    wrong = generator.random((2, 70)).astype(np.float32) / 2  # by network
    wrong[fold, np.arange(70)] += 0.3  # more where it did not learn
    suggested = generator.choice(["a", "b", "c"], (2, 70))
    attained = np.array([[True, True, False], [True, False, False]])

    def judge_without(number):
        part = promised(made_up(given, suggested[number], wrong[number]), 0.1, "clean")
        off = np.array([[0.5, 0.4, 0.1], [0.3, 0.5, 0.2], [0.5, 0, 0.5]])
        promise = part.promise._replace(
            attained=attained[number], lowest=np.array([0.1 * number, 0.2, 0.3])
        )
        noise = part.noise._replace(confusion=off)
        return part._replace(
            promise=promise, duality_gap=0.1 * number, noise=noise, entry_penalty=-wrong[number]
        )

    found = cross_fit(given, fold, judge_without)
    own = wrong[fold, np.arange(70)]
    np.testing.assert_array_equal(found.error_probability, own)
    np.testing.assert_array_equal(found.entry_penalty, -own)
    by_entry = cross_fit(given, fold, judge_without, by_entry=True)
    np.testing.assert_array_equal(by_entry.order, np.argsort(own, kind="stable"))
    # The other classes cannot keep the level by all networks, so none of theirs is called clean.
    np.testing.assert_array_equal(found.clean, (own <= 0.5) & (given == "a"))
    np.testing.assert_array_equal(found.suggested, suggested[fold, np.arange(70)])
    np.testing.assert_array_equal(found.order, np.argsort(-own, kind="stable"))
    assert found.duality_gap == pytest.approx(0.1)
    assert found.promise.attained.tolist() == [True, False, False]
    np.testing.assert_allclose(found.promise.lowest, [0.1, 0.2, 0.3])

    noise = found.noise
    assert noise.rate == pytest.approx(own.mean())
    assert noise.interval == pytest.approx((own.mean() - 0.02, own.mean() + 0.02), abs=1e-5)
    np.testing.assert_allclose(noise.by_class, [own[given == label].mean() for label in "abc"])
    width = np.diff(noise.by_class_interval, axis=1)[:, 0]
    np.testing.assert_allclose(width, 0.1, atol=1e-5)
    np.testing.assert_allclose(noise.confusion.sum(axis=1), 1)
    np.testing.assert_allclose(np.diag(noise.confusion), 1 - noise.by_class)
    assert noise.confusion[0, 1] == pytest.approx(4 * noise.confusion[0, 2])
