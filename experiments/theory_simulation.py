"""A simulation of Theorem 1: how often the noisy set is recovered under the theorem's model.

    Y = X beta + size * shift + epsilon,   epsilon ~ N(0, sigma^2),

where the shift of a wrong label is +1 in its own column and -1 in that of the true class, and the
LASSO of every column is solved at the penalty that the theorem requires.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from experiments.theory import Conditions, conditions

SIGMAS = (0.02, 0.05, 0.1)
RATES = (0.1, 0.2, 0.3, 0.35, 0.4, 0.425, 0.45, 0.475, 0.5, 0.55, 0.6)  # of wrong labels
FEW_RATES = (0.1, 0.3, 0.45)  # whose shifts are varied
SIZES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)  # of a shift, in units of h

Row = dict[str, Any]


class Model(NamedTuple):
    """Balanced classes that the features nearly determine, and wrong labels."""

    basis: np.ndarray  # [n, p], orthonormal
    shift: np.ndarray  # [n, c], one-hot of the given label less that of the true one
    conditions: Conditions

    @property
    def certainty(self) -> float:
        """The probability with which the theorem promises recovery."""
        return 1 - 2 / self.shift.size


def make_model(
    rate: float, *, per_class: int = 40, classes: int = 5, blur: float = 0.02, seed: int = 0
) -> Model:
    """A model in which each class is mislabeled as every other class equally often if possible."""
    true = np.repeat(np.arange(classes), per_class)
    order = np.tile(np.arange(per_class), classes)
    others = 1 + order % (classes - 1)
    given = np.where(order < round(rate * per_class), (true + others) % classes, true)
    generator = np.random.default_rng(seed)
    features = np.eye(classes)[true] + blur * generator.standard_normal((len(true), classes))
    basis = np.linalg.qr(features)[0]
    shift = np.eye(classes)[given] - np.eye(classes)[true]
    return Model(basis, shift, conditions(basis, given, true))


def lasso(
    basis: np.ndarray,  # [n, p]
    target: np.ndarray,  # [n, k], one problem per column
    penalty: float,
    *,
    tolerance: float = 1e-9,
    most_rounds: int = 20_000,
) -> np.ndarray:
    """Solve min 1/2 ||(I - QQ')(y - gamma)||^2 + penalty ||gamma||_1 for every column y.

    Alternates least squares and shrinkage, with momentum that restarts when it points uphill.
    Zero entries are exactly zero.
    """
    projected = target - basis @ (basis.T @ target)
    last = point = np.zeros_like(target)
    momentum = 1.0
    for _ in range(most_rounds):
        gradient = projected + basis @ (basis.T @ point)
        gamma = np.sign(gradient) * np.maximum(np.abs(gradient) - penalty, 0)
        change = gamma - last
        if np.abs(gamma - point).max() < tolerance:
            break
        momentum = 1.0 if np.sum((point - gamma) * change) > 0 else momentum
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        point, last, momentum = gamma + (momentum - 1) / grown * change, gamma, grown
    return gamma


def draw_targets(model: Model, size: float, draws: int, sigma: float, seed: int) -> np.ndarray:
    """size * shift + noise, [draws, n, c]; X beta is left out, as the projection removes it."""
    noise = np.random.default_rng(seed).standard_normal((draws, *model.shift.shape))
    return size * model.shift + sigma * noise


def recovering_penalties(model: Model, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The penalties between which the LASSO has all signs right, per draw: low, high [draws].

    No path is computed. If the signs s are right, gamma_S = (X~_S' X~_S)^-1 (X~_S' y - lambda s)
    solves the problem, and it does so exactly if it has the signs s and X~'(y - X~ gamma) is below
    lambda outside S: inequalities that are linear in lambda. None satisfies them if low >= high.
    """
    low, high = np.zeros(len(targets)), np.full(len(targets), np.inf)
    design = np.eye(len(model.basis)) - model.basis @ model.basis.T
    for label, shift in enumerate(model.shift.T):
        inside, outside = np.flatnonzero(shift), np.flatnonzero(shift == 0)
        sign = shift[inside]
        projected = design @ targets[:, :, label].T  # [n, draws]
        inverse = np.linalg.inv(design[np.ix_(inside, inside)])
        free, pull = inverse @ projected[inside], inverse @ sign  # gamma_S = free - lambda pull
        across = design[np.ix_(outside, inside)]
        rest, push = projected[outside] - across @ free, across @ pull  # rest + lambda push
        # slope * lambda > level, for the signs inside and for both bounds outside
        slope = np.concatenate([-sign * pull, 1 - push, 1 + push])[:, None]
        level = np.concatenate([-sign[:, None] * free, rest, -rest])
        bound = level / np.where(slope == 0, 1, slope)
        low = np.maximum(low, np.max(bound, axis=0, where=slope > 0, initial=0))
        high = np.minimum(high, np.min(bound, axis=0, where=slope < 0, initial=np.inf))
    return low, high


def keeps_within(model: Model, targets: np.ndarray, penalty: float) -> np.ndarray:
    """True for each draw in which no correct label is called wrong."""
    draws, n, _ = targets.shape
    found = lasso(model.basis, np.moveaxis(targets, 1, 0).reshape(n, -1), penalty)
    called_wrong = found.reshape(n, draws, -1).any(axis=2)
    return ~called_wrong[~model.shift.any(axis=1)].any(axis=0)


def try_out(model: Model, size: float, sigma: float, draws: int, seed: int) -> Row:
    """Measure how often the noisy set is recovered, at the theorem's penalty and at any penalty."""
    targets = draw_targets(model, size, draws, sigma, seed)
    low, high = recovering_penalties(model, targets)
    penalty = model.conditions.least_penalty(sigma)
    row = {"eta": model.conditions.eta, "sigma": sigma, "size": size, "draws": draws}
    row |= {"penalty": penalty, "asked": model.conditions.least_shift(penalty)}
    row |= {"certainty": model.certainty, "somewhere": np.mean(low < high)}
    if np.isfinite(penalty):
        row["within"] = np.mean(keeps_within(model, targets, penalty))
        row["exactly"] = np.mean((low < penalty) & (penalty < high))
    return {name: float(value) for name, value in row.items()}


def simulate(draws: int, rates: Sequence[float] = RATES) -> list[Row]:
    """Vary eta by the rate of wrong labels, whose shifts are 1; at few rates, vary the shift."""
    rows = []
    for rate in tqdm(rates, "Simulated rates"):
        model = make_model(rate)
        name = {"rate": rate, "varied": "eta"}
        rows += [name | try_out(model, 1.0, sigma, draws, seed=0) for sigma in SIGMAS]
        if rate in FEW_RATES:
            asked = rows[-1]["asked"]
            name |= {"varied": "shift"}
            rows += [name | try_out(model, size * asked, SIGMAS[-1], draws, 1) for size in SIZES]
    return rows
