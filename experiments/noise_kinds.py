"""Label noise of several kinds on a source of known truth, for the detection benchmark.

A cell is a source, a kind of noise, its rate and a seed; its labels are a pure function of these.
Exactly rate * N labels (but one at least) are wrong, chosen with weights w_i and sent to a class:

    symmetric  any example                            any other class
    pairs      any example                            the class it is most confused with
    matrix     some classes more often than others    by a random transition matrix
    hard       w_i = sqrt(p of the runner-up)         the runner-up
    border     two of three nearest to the border     the runner-up
    instance   as in spr_jax.noise (Xia et al., 2020), where features and a random map point to

The runner-up is the most probable class other than the true one for a linear model that has not
seen the example and learned from TRUE labels; confusion is that model's as well. "human" are the
labels of CIFAR-10N, whose rate is what people made it.
"""

import zlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from experiments.predictions import out_of_fold
from experiments.sources import MOST_ROWS, Examples, load_source, path_of
from spr_jax.io.arrays import load_arrays
from spr_jax.noise import by_matrix, instance_dependent

RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
DRAWN = ("symmetric", "pairs", "matrix", "hard", "border", "instance")
KINDS = ("none", *DRAWN, "human")
HUMAN = {"aggre_label": 0.09, "random_label1": 0.17, "worse_label": 0.40}  # fraction wrong
HUMAN_SOURCE = "cifar10_encoder"


class Cell(NamedTuple):
    """One set of noisy labels."""

    source: str
    kind: str
    rate: float
    seed: int


class LabelSet(NamedTuple):
    features: np.ndarray  # [N, d]
    given: np.ndarray  # [N]
    true: np.ndarray  # [N]


def draw_cell(cell: Cell, most_rows: int = MOST_ROWS) -> LabelSet:
    """The examples of a cell with their noisy labels.

    People's labels are taken for all examples of the source, whatever `most_rows` is.
    """
    if cell.kind == "human":
        examples = load_source(cell.source, 10**9)
        return LabelSet(examples.features, _human(cell, examples), examples.true)
    examples = load_source(cell.source, most_rows)
    given = examples.true
    if cell.kind != "none":
        seed = zlib.crc32(repr(tuple(cell)).encode())
        reference = reference_of(cell.source, most_rows) if cell.kind in REFERRING else None
        given = draw_labels(cell.kind, examples, reference, cell.rate, seed)
    return LabelSet(examples.features, given.astype(np.int32), examples.true)


@lru_cache(maxsize=4)
def reference_of(source: str, most_rows: int) -> np.ndarray:
    """Class probabilities [N, c] of models that learned from the true labels of other examples."""
    examples = load_source(source, most_rows)
    return out_of_fold(examples.features, examples.true)


def draw_labels(
    kind: str,
    examples: Examples,
    reference: np.ndarray | None,  # [N, c], for the kinds that are REFERRING to it
    rate: float,
    seed: int,
) -> np.ndarray:
    """Labels [N] of which rate * N, but one at least, are wrong."""
    generator = np.random.default_rng(seed)
    count = max(1, round(rate * len(examples.true)))
    if kind == "instance":
        return _instance(examples, rate, count, seed, generator)
    weights, targets = PROPOSALS[kind](examples, reference, count, generator)
    chosen = generator.choice(len(weights), count, replace=False, p=weights / weights.sum())
    given = examples.true.copy()
    given[chosen] = targets[chosen]
    return given


def runner_up(reference: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The most probable class other than the true one, [N], and its probability [N]."""
    others = reference.copy()
    others[np.arange(len(true)), true] = -1
    return others.argmax(axis=1), others.max(axis=1)


def _symmetric(examples, reference, count, generator):
    wrong = 1 - np.eye(examples.num_classes)
    return np.ones(len(examples.true)), _sent(examples, wrong, generator)


def _pairs(examples, reference, count, generator):
    confusion = np.eye(examples.num_classes)[examples.true].T @ reference  # [c, c] sums
    np.fill_diagonal(confusion, -1)
    wrong = np.eye(examples.num_classes)[confusion.argmax(axis=1)]
    return np.ones(len(examples.true)), _sent(examples, wrong, generator)


def _matrix(examples, reference, count, generator):
    classes = examples.num_classes
    wrong = generator.dirichlet(np.full(classes, 0.5), size=classes) + 1e-6
    often = generator.uniform(0.25, 1.75, classes)  # how often a class is mistaken, relatively
    return often[examples.true], _sent(examples, wrong, generator)


def _hard(examples, reference, count, generator):
    targets, probability = runner_up(reference, examples.true)
    return np.sqrt(np.maximum(probability, 1e-12)), targets


def _border(examples, reference, count, generator):
    targets, probability = runner_up(reference, examples.true)
    margin = reference[np.arange(len(targets)), examples.true] - probability
    nearest = np.argsort(np.abs(margin), kind="stable")[: count * 3 // 2 + 1]
    weights = np.zeros(len(targets))
    weights[nearest] = 1
    return weights, targets


PROPOSALS = {
    "symmetric": _symmetric,
    "pairs": _pairs,
    "matrix": _matrix,
    "hard": _hard,
    "border": _border,
}
REFERRING = ("pairs", "hard", "border")


def _sent(examples, wrong, generator):
    """A wrong class [N] for every example, by the row of its true class in `wrong` [c, c]."""
    np.fill_diagonal(wrong, 0)
    wrong /= wrong.sum(axis=1, keepdims=True)
    seed = int(generator.integers(2**31))
    return by_matrix(examples.true, wrong, num_classes=examples.num_classes, seed=seed)


def _instance(examples, rate, count, seed, generator):
    """Draw more errors than are wanted, since their number is random, and undo some."""
    how = {"num_classes": examples.num_classes, "seed": seed}
    given = instance_dependent(examples.true, examples.features, min(1.5 * rate, 0.95), **how)
    wrong = np.flatnonzero(given != examples.true)
    undone = generator.permutation(wrong)[count:]
    given[undone] = examples.true[undone]
    return given


def _human(cell, examples):
    """The labels whose place in HUMAN is the seed of the cell."""
    labels = load_arrays(path_of("cifar10n"))
    return labels[list(HUMAN)[cell.seed]][examples.index].astype(np.int32)
