"""IterNLD: outlier factors and the loss on pairs by slow counting, and who is called noisy."""

import numpy as np
import pytest
from fakes import draw_logits, make_batch, make_linear, remember, revise, step_on_logits, take_step

from spr_jax.methods.iterative_detection import iter_nld, outlier_factor
from spr_jax.methods.robust_loss import ce

pytestmark = pytest.mark.filterwarnings("ignore:The classes")  # have few examples

B, C = 12, 3


def slow_outlier_factor(features, k):
    """From the definition, by cosine distance."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    distance = 1 - unit @ unit.T
    np.fill_diagonal(distance, np.inf)
    near = np.argsort(distance, axis=1)[:, :k]
    farthest = np.sort(distance, axis=1)[:, k - 1]
    density = np.array(
        [1 / np.mean([max(farthest[b], distance[a, b]) for b in near[a]]) for a in range(len(near))]
    )
    return density[near].mean(axis=1) / density


def test_outlier_factor_is_that_of_its_definition():
    features = np.random.default_rng(0).standard_normal((30, 4))
    found = outlier_factor(features, 0.4)
    np.testing.assert_allclose(found, slow_outlier_factor(features, 12), rtol=1e-6)


def test_points_evenly_on_a_circle_are_no_outliers():
    angle = 2 * np.pi * np.arange(40) / 40
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    np.testing.assert_allclose(outlier_factor(circle, 0.1), 1, rtol=1e-6)
    crowd = np.stack([np.ones(40), 0.02 * angle], axis=1)
    factor = outlier_factor(np.append(crowd, [[-1, 1]], axis=0), 0.1)
    assert factor[-1] > 8 and np.median(factor) < 1.1


def slow_loss(logits, features, labels, clean, score, contrast):
    """Every pair on its own."""
    each = -np.log(np.exp(logits)[np.arange(B), labels] / np.exp(logits).sum(axis=1))
    kinds = {"together": [], "across": [], "noisy": []}
    for a in np.flatnonzero(clean):
        for b in set(range(B)) - {a}:
            distance = np.linalg.norm(features[a] - features[b])
            if labels[a] == labels[b]:
                kind, value = (
                    ("together", distance**2) if clean[b] else ("noisy", max(0, 1 - distance) ** 2)
                )
                kinds[kind].append(value)
            elif clean[b]:
                kinds["across"].append(max(0, 1 - distance) ** 2)
    assert all(kinds.values())
    others = np.mean(np.minimum(score, 1)[~clean] * each[~clean])
    others += contrast * sum(np.mean(values) for values in kinds.values())
    return each[clean].mean() + others / 5


def test_loss_is_over_all_pairs_of_a_batch():
    generator = np.random.default_rng(0)
    images, labels = 0.2 * generator.standard_normal((B, 2, 2, 1)), np.arange(B) % C
    clean, score = generator.random(B) < 0.6, generator.uniform(0.5, 1.3, B)
    network = make_linear(C, images)
    output, _ = network.forward(images)
    method = iter_nld(contrast=0.7)
    memory = method.init(labels, C) | {"clean": clean, "suspicion": 1 - score}
    step = take_step(method, (network,), make_batch(images, labels), memory)
    features, logits = np.asarray(output.features), np.asarray(output.logits)
    expected = slow_loss(logits, features, labels, clean, score, 0.7)
    assert step.loss == pytest.approx(expected, rel=1e-6)


def test_equal_features_have_a_slope():
    images, labels = np.ones((B, 2, 2, 1)), np.arange(B) % C
    step = take_step(iter_nld(), (make_linear(C, images),), make_batch(images, labels))
    assert np.isfinite(step.by_image).all()


def test_without_noisy_examples_and_contrast_it_is_cross_entropy():
    logits, labels = draw_logits()
    step = step_on_logits(iter_nld(contrast=0.0), logits, labels)
    np.testing.assert_allclose(step.slopes[0], step_on_logits(ce(), logits, labels).slopes[0])


def blobs(count=90, seed=0):
    generator = np.random.default_rng(seed)
    truth = np.arange(count) % C
    features = 6 * np.eye(C, 5)[truth] + generator.standard_normal((count, 5))
    shift = (generator.random(count) < 0.3) * generator.integers(1, C, count)
    return features.astype(np.float32), (truth + shift) % C, truth


def test_outliers_by_the_mean_score_of_all_rounds_are_noisy():
    (first, labels, truth), second = blobs(), blobs(seed=1)[0]
    method = iter_nld(warmup=2, detect_every=3, noisy_share=0.25)
    memory, scores = method.init(labels, C), []
    for number in range(5):
        features = first if number < 4 else second
        memory = revise(
            method, memory, {}, labels, number=number, scan=lambda now=features: {"features": now}
        )
        if number in (1, 4):
            own = np.zeros(len(labels))
            for label in range(C):
                members = labels == label
                own[members] = 1 / slow_outlier_factor(features[members], int(0.4 * members.sum()))
            scores.append(own)
        assert memory["rounds"] == len(scores)
        if number == 1:
            right = labels == truth
            assert right[memory["clean"]].mean() > right.mean() + 0.1
    np.testing.assert_allclose(1 - memory["suspicion"], np.mean(scores, axis=0), rtol=1e-4)
    for label in range(C):
        members = labels == label
        assert np.mean(~memory["clean"][members]) == pytest.approx(0.25, abs=0.03)
        worst = memory["suspicion"][members & ~memory["clean"]].min()
        assert worst > memory["suspicion"][members & memory["clean"]].max()


def test_a_class_of_few_examples_stays_clean_and_is_named():
    features, labels, _ = blobs()
    labels = np.where(np.arange(len(labels)) < 4, C, labels)
    method = iter_nld(warmup=1)
    scan = lambda: {"features": features}  # noqa: E731
    with pytest.warns(UserWarning, match=r"classes \[3\] have fewer than 5 examples") as said:
        memory = method.init(labels, C + 1)
        for number in (0, 10):
            memory = revise(method, memory, {}, labels, number=number, scan=scan)
    assert len(said) == 1
    assert memory["clean"][:4].all() and not memory["clean"].all()


def test_examples_not_visited_keep_their_place():
    features, labels, _ = blobs()
    method = iter_nld(warmup=1)
    memory = remember(method.init(labels, C), [7], clean=False, suspicion=0.4)
    after = revise(method, memory, {}, labels, skipped=[7], scan=lambda: {"features": features})
    assert not after["clean"][7] and after["suspicion"][7] == np.float32(0.4)
