"""How much classes overlap, by the places of their examples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spr_jax.solver import overlap
from spr_jax.solver.overlap import entropy_of_places, usual_overlap

entropy_of = jax.jit(entropy_of_places)


def gaussian_classes(distance, n=1500, c=3, seed=0):
    """Scores [1, c, n] around the corners of a simplex, true classes, and P(t | z) [n, c]."""
    generator = np.random.default_rng(seed)
    true = generator.integers(0, c, n)
    corners = distance * np.eye(c) / np.sqrt(2)
    places = corners[true] + generator.standard_normal((n, c))
    logits = places @ corners.T
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return places.T[None].astype(np.float32), true, p / p.sum(axis=1, keepdims=True)


def flipped(true, where, c=3):
    return np.where(where, (true + 1) % c, true)


@pytest.mark.parametrize("distance", [2.0, 3.0, 5.0])
def test_entropy_of_gaussian_classes_is_known(distance):
    scores, true, p = gaussian_classes(distance)
    expected = -np.mean(np.sum(p * np.log(p), axis=1))
    assert entropy_of(scores, true) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("distance", [4.0, 6.0])
def test_wrong_labels_hardly_change_it(distance):
    scores, true, p = gaussian_classes(distance)
    generator = np.random.default_rng(1)
    anywhere = generator.random(len(true)) < 0.2
    near_a_border = np.argsort(np.argsort(p.max(axis=1))) < 0.1 * len(true)
    before = float(entropy_of(scores, true))
    for where in (anywhere, near_a_border):
        after = float(entropy_of(scores, flipped(true, where)))
        assert after == pytest.approx(before, abs=0.04)


def test_overlap_grows_as_classes_come_closer():
    found = [float(usual_overlap(*gaussian_classes(d)[:2])) for d in (1.0, 2.0, 4.0, 8.0)]
    assert np.all(np.diff(found) < 0) and found[-1] < 0.05


def test_scale_rotation_and_useless_directions_do_not_matter():
    scores, true, _ = gaussian_classes(3.0)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    other = 7 * np.einsum("kc,vcn->vkn", turn, scores) + 2
    twice = np.concatenate([scores, scores])  # of half rank
    for each in (other, twice):
        after = entropy_of(jnp.asarray(each, jnp.float32), true)
        assert after == pytest.approx(float(entropy_of(scores, true)), abs=2e-3)


def test_a_part_of_many_rows_is_enough(monkeypatch):
    scores, true, _ = gaussian_classes(3.0, n=6000)
    part = float(entropy_of_places(scores, true))
    monkeypatch.setattr(overlap, "MOST_ROWS", 6000)
    assert part == pytest.approx(float(entropy_of_places(scores, true)), abs=0.03)


@pytest.mark.parametrize("c", [2, 40])
def test_scores_without_signal_give_a_number(c):
    labels = np.arange(80) % c
    for scores in (np.zeros((2, c, 80)), np.random.default_rng(0).standard_normal((2, c, 80))):
        found = float(entropy_of(jnp.asarray(scores, jnp.float32), labels))
        assert 0 <= found <= np.log(c) + 1e-5
