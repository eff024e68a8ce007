"""The list of suspects that can be expected to have the highest F1."""

import itertools

import numpy as np
import pytest

from spr_jax.detection import suspects
from spr_jax.detection.suspects import FEW, worth_a_look

WEIGHTS = 0.7, 0.3


def marked(*readings, weights=WEIGHTS):
    readings = np.array(readings)
    order = np.argsort(-np.array(weights) @ readings, kind="stable")
    return worth_a_look(readings, weights, order)


def expected_f1(wrong, chosen, few):
    """The formula of the docstring, for any set."""
    found, size = wrong[chosen].sum(), chosen.sum()
    return 2 * (found + few) / (size + wrong.sum() + 2 * few)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_set_of_few_examples_is_better(seed):
    wrong = np.random.default_rng(seed).beta(0.3, 0.6, 9)
    chosen = marked(wrong, weights=(1.0,))
    sets = np.array(list(itertools.product([False, True], repeat=9)))
    best = max(expected_f1(wrong, each, FEW * 9) for each in sets)
    assert expected_f1(wrong, chosen, FEW * 9) == pytest.approx(best)


def test_sure_errors_are_suspect_and_sure_labels_are_not():
    wrong = np.repeat([0.99, 0.01], [30, 170])
    np.testing.assert_array_equal(marked(wrong, wrong), wrong > 0.5)


def test_where_errors_can_only_be_guessed_more_are_listed():
    guessed = np.repeat([0.45, 0.02], [60, 140])  # none is more likely wrong than correct
    np.testing.assert_array_equal(marked(guessed, guessed), guessed > 0.4)


def test_where_hardly_a_label_is_wrong_none_is_listed(monkeypatch):
    hardly = np.repeat([0.2, 0.0], [10, 990])
    assert not marked(hardly, hardly).any()
    monkeypatch.setattr(suspects, "FEW", 0.0)  # any error found is better than none
    assert marked(hardly, hardly).sum() == 10


def test_no_errors_no_suspects():
    nothing = np.zeros(50)
    assert not marked(nothing, nothing).any()


def test_both_readings_count():
    sure, border = np.repeat([0.9, 0.0], [20, 180]), np.repeat([0.0, 0.9, 0.0], [20, 60, 120])
    noisy, overlap = sure + border, sure
    assert marked(noisy, overlap, weights=(0.9, 0.1)).sum() == 80
    assert marked(noisy, overlap, weights=(0.1, 0.9)).sum() == 20
