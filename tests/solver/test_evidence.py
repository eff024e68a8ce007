"""Evidence that scores predict the labels, against NumPy and labels at random."""

import numpy as np
import pytest

from spr_jax.solver.label_noise import evidence_of


def test_evidence_in_slow_numpy():
    generator = np.random.default_rng(0)
    scores, labels = generator.standard_normal((3, 40)), generator.integers(0, 3, 40)
    frequency = np.bincount(labels) / 40
    total, variance = 0.0, 0.0
    for i in range(40):
        expected = sum(frequency[k] * scores[k, i] for k in range(3))
        total += scores[labels[i], i] - expected
        variance += sum(frequency[k] * (scores[k, i] - expected) ** 2 for k in range(3))
    np.testing.assert_allclose(evidence_of(scores, labels), total / np.sqrt(variance))
    assert evidence_of(np.zeros((3, 40)), labels) == 0


def test_evidence_of_labels_at_random_is_about_zero_to_one():
    generator = np.random.default_rng(1)
    scores = generator.standard_normal((4, 300))
    found = [float(evidence_of(scores, generator.integers(0, 4, 300))) for _ in range(200)]
    assert abs(np.mean(found)) < 0.2 and np.std(found) == pytest.approx(1, abs=0.15)
    assert evidence_of(scores, np.argmax(scores, axis=0)) > 10
