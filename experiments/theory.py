"""The conditions of the paper's Theorem 1, under which SPR finds exactly the wrong labels.

The theorem is about the element-wise penalty, whose problem separates into one LASSO per class:
for the column k of the labels, with X~ = I - H = I - Q Q' (Q [n, p] an orthonormal basis of the
features),

    min_gamma  1/2 ||X~ (y_k - gamma)||^2 + lambda ||gamma||_1.

S is where the true shift of that column is nonzero: an example of class k with label j has +1 in
column j and -1 in column k. The theorem requires

    C1  C_min = lambda_min(X~_S' X~_S) > 0,
    C2  ||X~_{S^c}' X~_S (X~_S' X~_S)^-1||_inf <= 1 - eta  for an eta > 0,
    C3  every true shift above  h = lambda (eta / sqrt(C_min mu)
                                   + ||(X~_S' X~_S)^-1 sign(gamma_S)||_inf),

with mu the largest squared norm of a column of X~ outside S. Where lambda is at least
2 sigma sqrt(mu) / eta sqrt(log(c n)), under C1 and C2 no correct label is called wrong, and with C3
all wrong labels are found, with probability above 1 - 2 / (c n).

X~ is a projection, so X~_S' X~_S = I - Q_S Q_S', and everything follows from the small matrix
G = Q_S' Q_S: the conditions of a whole data set cost O(n |S| p).
"""

from typing import NamedTuple

import numpy as np

BLOCK = 4096  # rows of the irrepresentability matrix that are in memory at a time


class Conditions(NamedTuple):
    """The conditions of a piece with known noise: those of its worst columns."""

    c_min: float  # C1 holds if it is above zero
    eta: float  # C2 holds if it is above zero
    mu: float
    inverse_sign: float  # ||(X~_S' X~_S)^-1 sign(gamma_S)||_inf
    examples: int
    classes: int

    def least_penalty(self, sigma: float) -> float:
        """The smallest lambda that the theorem allows for noise of standard deviation `sigma`."""
        if self.eta <= 0:
            return np.inf
        spread = np.sqrt(np.log(self.classes * self.examples))
        return float(2 * sigma * np.sqrt(self.mu) / self.eta * spread)

    def least_shift(self, penalty: float) -> float:
        """C3's h: shifts above it are found."""
        if self.c_min <= 0 or self.eta <= 0:
            return np.inf
        return penalty * (self.eta / np.sqrt(self.c_min * self.mu) + self.inverse_sign)


def conditions(basis: np.ndarray, given: np.ndarray, true: np.ndarray) -> Conditions:
    """C1 to C3 for orthonormal features [n, p], given labels [n] and true labels [n]."""
    num_classes = int(max(given.max(), true.max())) + 1
    columns = []
    for label in range(num_classes):
        shift = (given == label).astype(int) - (true == label)
        if shift.any():
            columns.append(_conditions_of_column(basis, shift))
    if not columns:
        raise ValueError("No label is wrong; the theorem needs at least one wrong label.")
    c_min, eta, mu, inverse_sign = zip(*columns, strict=True)
    worst = (min(c_min), min(eta), max(mu), max(inverse_sign))
    return Conditions(*map(float, worst), len(basis), num_classes)


def _conditions_of_column(basis, shift):
    inside, outside = basis[shift != 0], basis[shift == 0]
    gram = inside.T @ inside
    c_min = 1 - np.linalg.eigvalsh(gram)[-1]
    mu = 1 - np.min(np.sum(outside**2, axis=1), initial=1)
    if c_min < 1e-9:  # a direction of the features that only wrong labels span
        return 0, -np.inf, mu, np.inf
    inner = np.linalg.inv(np.eye(len(gram)) - gram)
    # (I - Q_S Q_S')^-1 = I + Q_S (I - G)^-1 Q_S', and with X~_{S^c}' X~_S = -Q_{S^c} Q_S' the
    # matrix of C2 is -Q_{S^c} (I - G)^-1 Q_S'.
    weights = inner @ inside.T
    blocks = (outside[start : start + BLOCK] for start in range(0, len(outside), BLOCK))
    largest = max((np.abs(block @ weights).sum(axis=1).max() for block in blocks), default=0)
    sign = np.sign(shift[shift != 0])
    inverse_sign = np.abs(sign + inside @ (weights @ sign)).max()
    return c_min, 1 - largest, mu, inverse_sign
