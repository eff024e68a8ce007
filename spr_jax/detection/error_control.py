"""A clean set, or a list of suspects, with a stated fraction of mistakes in it.

The probability that each label is wrong (`solver/label_noise.py`) gives the mistakes to expect in
any set of examples. Class by class, the surest examples are taken as long as

    (1 + INFLATION sum e + 1.64 sqrt(sum e (1 - e))) / size  <=  level,

where e is the probability of a mistake under the least favourable of the models, and a little more,
and the 1 is that of the knockoff filter: a set too small to show mistakes cannot promise that there
are few. A class that cannot keep the level has no examples in the set; this is reported, never
silently relaxed.
"""

from typing import NamedTuple

import numpy as np

from spr_jax.solver.label_noise import DEVIATIONS, LabelNoise

INFLATION = 1.5  # factor on the expected mistakes, since models are never exact,
DISAGREEMENT_INFLATION = 4  # and even less so where they disagree
UNFORESEEN = 0.002  # probability of a mistake that no model knows of
LEAST_EVIDENCE = 3.0  # deviations; labels at random had at most 1.5 (26 draws)
LEAST_AUROC = 0.9  # expected; below it no level is claimed


class Level(NamedTuple):
    chosen: np.ndarray  # [N] bool
    attained: np.ndarray  # [c] bool
    lowest: np.ndarray  # [c], the lowest level that a class could keep; infinite if none


def keep_cleanest(noise: LabelNoise, labels: np.ndarray, level: float) -> Level:
    """Keep as many examples of each class as possible, with at most this fraction wrong."""
    return _take(noise, labels, level, noise.wrong, noise.most, noise.rate[0])


def flag_surest(noise: LabelNoise, labels: np.ndarray, level: float) -> Level:
    """Flag as many examples of each class as possible, with at most this fraction correct."""
    return _take(noise, labels, level, 1 - noise.wrong, 1 - noise.least, 1 - noise.rate[0])


def is_explained(noise: LabelNoise) -> bool:
    """Tell whether the features predict the labels better than chance."""
    num_classes = len(noise.rate) - 1
    return bool(noise.evidence > LEAST_EVIDENCE and noise.rate[0] < 1 - 1 / num_classes)


def expected_auroc(error_probability: np.ndarray) -> float:
    """Expected AUROC of these probabilities as scores, assuming that they are calibrated."""
    wrong = np.sort(np.asarray(error_probability, np.float64))
    pairs = np.sum(wrong * np.cumsum(1 - wrong))
    return float(pairs / max(wrong.sum() * (1 - wrong).sum(), 1e-12))


def _take(noise, labels, level, rank, mistake, rate):
    """Take the examples of least `rank`, class by class, while the bound is within the level."""
    inflation = INFLATION + DISAGREEMENT_INFLATION * float(noise.disagreement[0]) / max(rate, 0.01)
    can_claim = is_explained(noise) and expected_auroc(noise.wrong) >= LEAST_AUROC
    num_classes = len(noise.rate) - 1
    chosen, lowest = np.zeros(len(labels), bool), np.full(num_classes, np.inf)
    for label in range(num_classes) if can_claim else ():
        mine = np.flatnonzero(labels == label)
        mine = mine[np.argsort(rank[mine], kind="stable")]
        e = np.minimum(mistake[mine].astype(np.float64) + UNFORESEEN, 1)
        mistakes = 1 + inflation * np.cumsum(e) + DEVIATIONS * np.sqrt(np.cumsum(e * (1 - e)))
        bound = mistakes / np.arange(1, len(mine) + 1)
        within = np.flatnonzero(bound <= level)
        chosen[mine[: within[-1] + 1 if len(within) else 0]] = True
        lowest[label] = bound.min(initial=np.inf)
    return Level(chosen, lowest <= level, lowest)
