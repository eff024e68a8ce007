"""Slow NumPy translations that the package is compared with."""

import numpy as np


def projection(scores):
    """I - H, the design of the regression once beta is eliminated."""
    return np.eye(len(scores)) - scores @ np.linalg.pinv(scores)


def penalties(scores, targets, num=100, ratio=1e-3):
    residual = projection(scores) @ targets
    return np.linalg.norm(residual, axis=1).max() * np.logspace(0, np.log10(ratio), num)


def row_by_row(scores, targets, grid, tolerance=1e-13, sweeps=100_000):
    """Block coordinate descent over the dense I - H, one row of gamma at a time.

    min_gamma 1/2 ||A (Y - gamma)||^2 + penalty sum_i ||gamma_i||, A = I - H, for each penalty
    of a decreasing grid with warm starts: [num_penalties, n, c].
    """
    design = projection(scores)
    gamma = np.zeros_like(targets)
    path = []
    for penalty in grid:
        for _ in range(sweeps):
            largest = 0.0
            for i in range(len(gamma)):
                free = design[i, i]
                if free < 1e-12:
                    continue
                pull = design[i] @ (targets - gamma) + free * gamma[i]
                size = np.linalg.norm(pull)
                new = pull * max(0.0, 1 - penalty / max(size, 1e-300)) / free
                largest = max(largest, np.abs(new - gamma[i]).max())
                gamma[i] = new
            if largest < tolerance:
                break
        path.append(gamma.copy())
    return np.array(path)


def released_selection(nonzero, slots, quota):
    """The released walk: from the smallest penalty up, rows in order, while a class has room.

    nonzero [num_penalties, n], penalties decreasing; slots [n]; quota for each class. [n] bool.
    """
    selected = np.zeros(nonzero.shape[1], bool)
    room = dict.fromkeys(slots.tolist(), quota)
    for at_penalty in nonzero[::-1]:
        for row, is_nonzero in enumerate(at_penalty):
            if not is_nonzero and not selected[row] and room[slots[row]] > 0:
                selected[row] = True
                room[slots[row]] -= 1
    return selected


def pca_scores(features, dim):
    centred = features - features.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    return left[:, :dim] * values[:dim]


def greedy_groups(prototypes, classes_per_group):
    """Groups of unlike classes, as nested lists of nearly equal length."""
    similarity = prototypes @ prototypes.T
    unused = list(range(len(prototypes)))
    groups_left = -(-len(unused) // classes_per_group)
    groups = []
    while unused:
        size = -(-len(unused) // groups_left)
        group = [unused.pop(0)]
        while len(group) < size:
            farthest = min(unused, key=lambda k: similarity[k, group].sum())
            unused.remove(farthest)
            group.append(farthest)
        groups.append(group)
        groups_left -= 1
    return groups
