"""Which examples to call suspect, when nothing else is asked for: those worth looking at.

To look at a set S finds errors and costs time. F1 weighs both, and where a label is wrong with
probability p_i, a set can be expected to have

    F1(S) = 2 (sum of p_i over S + few) / (|S| + sum of all p_i + 2 few),

the few being errors that are found in any case: where hardly a label is wrong, no list is better
than a long one. The two readings of the labels (`solver/label_noise.py`) expect different errors;
the suspects are the most suspect examples up to the number that has the highest F1 in the mean of
both. So more are called suspect where the features are weak and errors can only be guessed, down to
a probability of about half of the F1 that can be reached.
"""

import numpy as np

FEW = 0.01  # of all examples


def worth_a_look(
    by_reading: np.ndarray,  # [readings, N], error probabilities
    weights: tuple[float, ...],  # of the readings
    order: np.ndarray,  # [N], the most suspect first
) -> np.ndarray:
    """Mark the suspects, [N] bool."""
    n = len(order)
    size, few, expected = np.arange(n + 1), FEW * n, np.zeros(n + 1)
    for weight, wrong in zip(weights, by_reading.astype(np.float64), strict=True):
        found = np.concatenate([[0], np.cumsum(wrong[order])])
        expected += weight * 2 * (found + few) / (size + found[-1] + 2 * few)
    suspect = np.zeros(n, bool)
    suspect[order[: int(expected.argmax())]] = True
    return suspect
