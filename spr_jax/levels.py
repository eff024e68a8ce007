"""A clean set, or a list of suspects, with a stated share of mistakes in it.

From the chance that each label is wrong (`solver/noise_model.py`) follow the mistakes to expect in
any set. Class by class, the surest examples are taken as long as

    (1 + INFLATION sum e + 1.64 sqrt(sum e (1 - e))) / size  <=  level,

e the chance of a mistake by the least favourable of the models, and a little more, and the 1 as in
the knockoff filter: a set too small to show mistakes cannot promise that there are few. A class
that cannot keep the level has no examples in the set; this is reported, never mended in silence.
"""

from typing import NamedTuple

import numpy as np

from spr_jax.solver.noise_model import DEVIATIONS, LabelNoise

INFLATION = 1.5  # of expected mistakes; models are never exact,
OF_DISAGREEMENT = 4  # and less so where they disagree
UNFORESEEN = 0.002  # chance of a mistake that no model knows of
LEAST_AUROC = 0.9  # expected; below it no level is claimed


class Level(NamedTuple):
    chosen: np.ndarray  # [N] bool
    attained: np.ndarray  # [c] bool
    lowest: np.ndarray  # [c], the lowest level that a class could keep; infinite if none


def keep_cleanest(noise: LabelNoise, labels: np.ndarray, level: float) -> Level:
    """As many examples of each class as can be kept with that share of wrong labels."""
    return _take(noise, labels, level, noise.wrong, noise.most, noise.rate[0])


def flag_surest(noise: LabelNoise, labels: np.ndarray, level: float) -> Level:
    """As many examples of each class as can be flagged with that share of right labels."""
    return _take(noise, labels, level, 1 - noise.wrong, 1 - noise.least, 1 - noise.rate[0])


def is_explained(noise: LabelNoise) -> bool:
    """Whether the features say anything of the labels, beyond what so many parameters always do."""
    n, c = len(noise.wrong), len(noise.rate) - 1
    enough = min(4 * c**2, 150 * c, n * np.log(c) / 2.5)  # labels at random gain less
    return bool(noise.gain > enough and noise.rate[0] < 1 - 1 / c)


def expected_auroc(wrong: np.ndarray) -> float:
    """Of the chances as scores, if they are right."""
    wrong = np.sort(np.asarray(wrong, np.float64))
    pairs = np.sum(wrong * np.cumsum(1 - wrong))
    return float(pairs / max(wrong.sum() * (1 - wrong).sum(), 1e-12))


def _take(noise, labels, level, rank, mistake, share):
    inflation = INFLATION + OF_DISAGREEMENT * float(noise.disagreement[0]) / max(share, 0.01)
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
