"""Numbers made by hand: measures of a verdict, and where we stand against rivals."""

import json

import numpy as np
import pytest

from experiments.detection_cells import (
    Cell,
    development_cells,
    estimate,
    has_levels,
    quality,
    top_precision,
)
from experiments.detection_verdict import (
    Asked,
    Group,
    against_rivals,
    best_rival,
    coverage,
    levels_kept,
    means,
    pairs,
    requirements,
    standing,
)
from experiments.rival_detectors import Verdict

WRONG = np.array([True, True, False, False, False])


def test_measures_of_a_verdict():
    suspect = np.array([True, False, True, False, False])
    found = quality(Verdict(np.array([5.0, 1.0, 4.0, 2.0, 0.0]), suspect), WRONG)
    assert found == {
        "flagged": 0.4,
        "precision": 0.5,
        "recall": 0.5,
        "f1": 0.5,
        "auroc": pytest.approx(4 / 6),
        "ap": pytest.approx((1 / 1 + 2 / 4) / 2),
        "top": 0.5,
    }


def test_without_suspects_nothing_is_found():
    found = quality(Verdict(np.arange(5.0), np.zeros(5, bool)), WRONG)
    assert (found["precision"], found["recall"], found["f1"]) == (0, 0, 0)


def test_without_errors_only_flags_are_measured():
    found = quality(Verdict(np.arange(5.0), WRONG), np.zeros(5, bool))
    assert found["flagged"] == 0.4 and found["f1"] is found["auroc"] is found["ap"] is None


def test_examples_that_tie_for_the_last_places_count_in_part():
    assert top_precision(np.array([3.0, 1.0, 1.0, 1.0, 1.0]), WRONG) == pytest.approx(
        (1 + 1 / 4) / 2
    )
    assert top_precision(np.zeros(5), WRONG) == pytest.approx(2 / 5)


def test_an_interval_covers_its_ends():
    assert estimate(0.3, (0.1, 0.4), WRONG)["covers"]
    assert not estimate(0.3, (0.41, 0.5), WRONG)["covers"]
    assert not estimate(0.3, (0.1, 0.39), WRONG)["covers"]


def row(detector, f1, *, source="iris", kind="symmetric", rate=0.1, seed=0, **more):
    cell = Cell(source, kind, rate, seed)._asdict()
    values = {"f1": f1, "auroc": f1, "flagged": 0.0, "wrong": rate}
    return {"cell": cell, "most_rows": 9, "detector": detector} | values | more


def level(option, bound, mistaken, taken=10, trivial=False):
    found = {"option": option, "level": bound, "taken": taken}
    return found | {"mistaken": mistaken, "trivial": trivial}


ROWS = [
    row("spr_jax", 0.8, covers=True, levels=[level("max_noise_in_clean", 0.05, 0.05)]),
    row("spr_jax", 0.9, seed=1, covers=False, levels=[level("max_false_alarms", 0.1, 0.2)]),
    row("cleanlab", 0.86, levels=[]),
    row("cleanlab", 0.84, seed=1),
    row("neighbours", 0.5),
    row("spr_told", 0.9),
    row("before", 0.8, covers=False, levels=[level("max_false_alarms", 0.1, 0.2)]),
    row("before", 0.9, kind="hard"),
    row("spr_jax", 0.4, kind="hard", covers=True, levels=[level("max_false_alarms", 0.1, 0.9, 0)]),
    row("cleanlab", 0.5, kind="hard"),
    row("spr_jax", None, kind="none", rate=0.0, auroc=None, flagged=0.02, covers=True),
    row("spr_jax", None, source="wine", kind="none", rate=0.0, auroc=None, flagged=0.01),
]


def test_means_are_over_seeds():
    of = means(ROWS)
    assert of[Group("iris", "symmetric", 0.1)]["spr_jax"]["f1"] == pytest.approx(0.85)
    assert of[Group("iris", "none", 0.0)]["spr_jax"] == {"flagged": 0.02}


def test_the_best_rival_may_be_one_that_is_told():
    found = means(ROWS)[Group("iris", "symmetric", 0.1)]
    assert best_rival(found, "f1") == 0.9 and best_rival(found, "f1", told=False) == 0.85
    assert best_rival({}, "f1") is None


def test_a_small_difference_is_even():
    both = [(0.85, 0.85), (0.86, 0.85), (0.862, 0.85), (0.84, 0.85), (0.838, 0.85)]
    assert standing(both, 0.01) == (1, 3, 1)
    assert standing(both, 0.01).not_behind == 0.8
    assert standing(pairs(means(ROWS), "f1", "cleanlab"), 0.01) == (0, 1, 1)


def test_only_levels_that_claim_something_count():
    assert levels_kept(ROWS) == (1, 2)
    assert levels_kept(ROWS, "max_noise_in_clean") == (1, 1)
    assert levels_kept([row("spr_jax", 1, levels=[level("a", 0.1, 0, trivial=True)])]) == (0, 0)


def test_requirements_are_judged_by_hand_made_numbers():
    found = {asked.what: asked for asked in requirements(ROWS)}
    values = {what: asked.found for what, asked in found.items()}
    assert values == {
        "F1 not behind the best rival, fraction of cells": 0.0,
        "the same, rivals that are told the rate left out": 0.5,
        "F1 not behind each single rival, lowest fraction": 0.0,  # told: 0.9 against 0.85
        "F1 relative to the best rival, lowest": pytest.approx(0.8),
        "the same where noise is hard": pytest.approx(0.8),
        "F1 gained on the version before, symmetric and pairs, mean": pytest.approx(0.05),
        "AUROC not behind the best rival, fraction": 0.0,
        "intervals that cover": 0.75,
        "the same, lowest kind of noise": 0.5,
        "correct labels flagged, mean of sources": pytest.approx(0.015),
        "the same, highest source": 0.02,
        "levels kept where claimed, lowest kind of noise": 0.5,
    }
    met = [what for what, asked in found.items() if asked.is_met]
    assert met == [
        "F1 relative to the best rival, lowest",
        "F1 gained on the version before, symmetric and pairs, mean",
        "correct labels flagged, mean of sources",
    ]


def test_what_was_not_measured_is_neither_met_nor_missed():
    assert {asked.is_met for asked in requirements([])} == {None}
    assert Asked("", 0.5, 0.5).is_met and Asked("", 0.5, 0.5, at_least=False).is_met
    assert coverage([]) is None


def test_people_have_bounds_of_their_own():
    rows = [row("spr_jax", 0.7, source="cifar10_encoder", kind="human", rate=0.09, seed=0)]
    (asked,) = [asked for asked in requirements(rows) if "people" in asked.what]
    assert asked == ("F1 on people's labels, 9% wrong", 0.64, 0.7, True) and asked.is_met


def test_a_new_rule_is_compared_with_stored_rivals(tmp_path):
    store = tmp_path / "detection.jsonl"
    other = row("cleanlab", 0.99) | {"most_rows": 10}  # of other examples
    store.write_text("".join(json.dumps(one) + "\n" for one in [*ROWS, other]))
    text = against_rivals([row("spr_jax", 0.87, covers=True)], store)
    assert (
        "| F1 not behind the best rival, fraction of cells | 0.85 | 0.000 | **not met** |" in text
    )
    assert "told the rate left out | 0.85 | 1.000 | met |" in text


def test_levels_are_measured_for_the_first_seed_and_for_people():
    seeds = {0: True, 1: False, 1000: True, 1001: False}
    assert {seed: has_levels(Cell("iris", "hard", 0.1, seed)) for seed in seeds} == seeds
    assert has_levels(Cell("cifar10_encoder", "human", 0.17, 1))


def test_rules_are_chosen_on_development_sources_only():
    cells = development_cells(["iris"], kinds=["none", "hard"], rates=[0.1, 0.2], seeds=3)
    assert len(cells) == 1 + 2 * 3 and all(cell.seed < 100 for cell in cells)
    with pytest.raises(ValueError, match="'bupa' is no development source"):
        development_cells(["bupa"])
