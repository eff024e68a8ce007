"""TopoFilter: components and votes by slow counting, and which examples are kept."""

import numpy as np
import pytest
from fakes import draw_logits, remember, revise, slow_cross_entropy, step_on_logits

from spr_jax.methods.robust_loss import ce
from spr_jax.methods.topofilter import largest_components, topofilter, wins_vote

pytestmark = pytest.mark.filterwarnings("ignore:The classes")  # have few examples

C = 3


def blobs(count=120, flipped=0.3, seed=0, spread=1.0):
    """Features around a center for each class, labels of which some are flipped, and the truth."""
    generator = np.random.default_rng(seed)
    truth = np.arange(count) % C
    features = 8 * np.eye(C, 5)[truth] + spread * generator.standard_normal((count, 5))
    shift = (generator.random(count) < flipped) * generator.integers(1, C, count)
    return features, (truth + shift) % C, truth


def slow_neighbors(features, count):
    distance = np.linalg.norm(features[:, None] - features, axis=2)
    np.fill_diagonal(distance, np.inf)
    return np.argsort(distance, axis=1)[:, :count]


def slow_components(features, labels, count):
    """Flood each class from every example, by edges in either direction."""
    neighbors, kept = slow_neighbors(features, count), np.zeros(len(labels), bool)
    linked = np.zeros((len(labels),) * 2, bool)
    np.put_along_axis(linked, neighbors, True, axis=1)
    linked = (linked | linked.T) & (labels[:, None] == labels)
    for label in np.unique(labels):
        parts, rest = [], set(np.flatnonzero(labels == label))
        while rest:
            part, front = set(), {min(rest)}
            while front:
                part |= front
                front = {j for i in front for j in np.flatnonzero(linked[i])} - part
            parts.append(sorted(part))
            rest -= part
        kept[max(parts, key=len)] = True
    return kept


@pytest.mark.parametrize("count", [1, 2, 4])
def test_largest_components_are_those_of_a_slow_flood(count):
    features, labels, _ = blobs(spread=2.0)
    found = largest_components(features, labels, count)
    np.testing.assert_array_equal(found, slow_components(features, labels, count))
    assert 0 < found.sum() < len(labels)


@pytest.mark.parametrize("agreement", [0.0, 0.5, 0.9])
def test_votes_are_counted_with_the_own(agreement):
    features, labels, _ = blobs(flipped=0.5, spread=3.0)
    expected = []
    for label, near in zip(labels, slow_neighbors(features, 6), strict=True):
        votes = np.bincount([label, *labels[near]], minlength=C)
        expected.append(votes.argmax() == label and votes.max() >= agreement * 6)
    found = wins_vote(features, labels, 6, agreement)
    np.testing.assert_array_equal(found, expected)
    assert 0 < found.sum() < len(labels)


def filtered(features, labels, number=0, memory=None, skipped=(), **options):
    method = topofilter(**{"warmup": 0, "vote_neighbors": 8} | options)
    memory = memory or method.init(labels, C)
    record = {"features": np.asarray(features, np.float32)}
    after = revise(method, memory, {}, labels, number=number, skipped=skipped, scan=lambda: record)
    return after["clean"]


def test_flipped_labels_are_left_out_wherever_the_features_lie():
    features, labels, truth = blobs(flipped=0.3)
    clean = filtered(features, labels)
    right = labels == truth
    assert right[clean].mean() > 0.97 and clean[right].mean() > 0.9
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 5)))[0]
    np.testing.assert_array_equal(filtered(3 * features @ rotation + 7, labels), clean)
    np.testing.assert_array_equal(filtered(features, np.zeros_like(labels), graph_neighbors=60), 1)


def test_selection_starts_after_the_warm_up_and_grows_every_few_epochs():
    features, labels, _ = blobs(flipped=0.3, spread=2.0)
    options = {"warmup": 3, "filter_every": 2, "graph_neighbors": 2, "agreement": 0.0}
    other = features[:, ::-1] + np.random.default_rng(2).standard_normal(features.shape)
    assert filtered(features, labels, 2, **options).all()
    first = filtered(features, labels, 3, **options)
    assert not first.all()
    np.testing.assert_array_equal(filtered(other, labels, 4, {"clean": first}, **options), first)
    joined = slow_components(other, labels, 2) | first
    assert joined.sum() > first.sum()
    joined[joined] = wins_vote(other[joined], labels[joined], 8, 0.0)
    second = filtered(other, labels, 5, {"clean": first}, **options)
    np.testing.assert_array_equal(second, joined)


def test_examples_not_visited_are_neither_neighbors_nor_judged():
    features, labels, _ = blobs()
    skipped = [4, 50]
    clean = filtered(features, labels, skipped=skipped)
    seen = ~np.isin(np.arange(len(labels)), skipped)
    assert clean[skipped].all()
    np.testing.assert_array_equal(clean[seen], filtered(features[seen], labels[seen]))


def test_a_class_that_would_vanish_is_kept_and_named_once():
    features, labels, truth = blobs(flipped=0.0)
    labels = labels.copy()
    labels[[0, 40]] = C  # two examples of a fourth class, amid two others
    method, scan = topofilter(warmup=0, vote_neighbors=8), lambda: {"features": features}
    with pytest.warns(UserWarning, match=r"classes \[3\] have fewer than 5") as said:
        memory = method.init(labels, C + 1)
        for number in (0, 5):
            memory = revise(method, memory, {}, labels, number=number, scan=scan)
            assert memory["clean"][[0, 40]].all()
            assert memory["selection"]["classes_kept_whole"] == 1
    assert len(said) == 1


def test_a_step_learns_from_the_kept_alone():
    logits, labels = draw_logits()
    method, kept = topofilter(), np.arange(8) % 3 > 0
    memory = remember(method.init(labels, 4), np.arange(8), clean=kept)
    step = step_on_logits(method, logits, labels, memory)
    losses, slope = slow_cross_entropy(logits[0], labels)
    assert step.loss == pytest.approx(losses[kept].mean())
    np.testing.assert_allclose(step.slopes[0], kept[:, None] * slope / kept.sum(), atol=1e-7)
    everything = step_on_logits(method, logits, labels).slopes[0]
    np.testing.assert_allclose(everything, step_on_logits(ce(), logits, labels).slopes[0])
