"""Forward (Patrini et al., CVPR 2017, https://arxiv.org/abs/1609.03683): model the label noise.

The network predicts the true class; its prediction, passed through the probability T_jk that class
j is labeled k, is fitted to the given labels. T is known, or read off a network trained before.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from spr_jax.io.arrays import read_features
from spr_jax.losses import cross_entropy, forward_corrected
from spr_jax.methods.method import Method, Stage, expect, training_weights, weighted_mean


def forward(
    matrix: str = "", estimate_epochs: int = 50, percentile: float = 97.0
) -> Method | tuple[Stage, ...]:
    """Forward correction: fit the labels through a matrix of how classes are mislabelled.

    Args:
      matrix: a .npy or .csv file, true classes in rows. Without one, a first network is trained to
        estimate it, and the run continues with a fresh network.
      estimate_epochs: epochs of the first network.
      percentile: the example that stands for a class is the most probable one below this
        percentile; with 100, the most probable of all.
    """
    if matrix:
        return corrected(read_matrix(matrix))
    expect(estimate_epochs >= 1, "estimate_epochs", estimate_epochs, "1 or more")
    expect(0 < percentile <= 100, "percentile", percentile, "a number above 0 and at most 100")
    return Stage(estimating(percentile), estimate_epochs), Stage(corrected(), restart="fresh")


def read_matrix(path: str) -> np.ndarray:
    """Read a transition matrix [c, c], whose rows are probabilities that add up to 1."""
    matrix = read_features(Path(path).expanduser())
    if matrix.dtype.kind not in "iuf" or matrix.ndim != 2 or len(set(matrix.shape)) != 1:
        raise ValueError(
            f"{path} holds {matrix.dtype} of the shape {matrix.shape}; expected numbers, with a "
            "row and a column for each class."
        )
    for number, row in enumerate(matrix):
        if not (row >= 0).all() or not np.isclose(row.sum(), 1, atol=1e-4):
            raise ValueError(
                f"Row {number} of {path} is {row.round(4).tolist()}; expected probabilities "
                "that add up to 1."
            )
    return matrix


def corrected(matrix: np.ndarray | None = None) -> Method:
    """Train with -log sum_j p_j T_jy; without a matrix, with the one in memory."""

    def init(labels, num_classes):
        known = np.eye(num_classes) if matrix is None else matrix
        if len(known) != num_classes:
            raise ValueError(
                f"The matrix of method.matrix has {len(known)} rows; expected one for each of the "
                f"{num_classes} classes."
            )
        return {"matrix": jnp.asarray(known, jnp.float32)}

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        each = forward_corrected(output.logits, batch.labels, memory["matrix"])
        return weighted_mean(each, batch.weights), ((network,), {})

    return Method(init, (loss,))


def estimating(percentile: float) -> Method:
    """Plain training that leaves behind the matrix of the epoch with the least held-out loss.

    At the end of training a network is sure of its labels, and the matrix close to the identity.
    """

    def init(labels, num_classes):
        return {
            "weights": training_weights(labels, num_classes),
            "least": jnp.float32(jnp.inf),
            "matrix": jnp.eye(num_classes, dtype=jnp.float32),
        }

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        each = cross_entropy(output.logits, batch.labels)
        weights = batch.weights * memory["weights"][batch.index]
        return weighted_mean(each, weights), ((network,), {"logits": output.logits})

    def revise(memory, epoch, key):
        visited = np.asarray(epoch.visited)
        logits = epoch.record["logits"][visited]
        held_out = np.asarray(memory["weights"])[visited] == 0
        each = np.asarray(cross_entropy(logits, epoch.labels[visited]))
        found = np.float32(each[held_out].sum() / max(held_out.sum(), 1))
        if found > memory["least"]:
            return memory
        matrix = anchor_rows(np.asarray(jax.nn.softmax(logits)), percentile)
        return memory | {"least": found, "matrix": matrix.astype(np.float32)}

    return Method(init, (loss,), revise, record_from="scan")


def anchor_rows(probability: np.ndarray, percentile: float) -> np.ndarray:
    """Estimate T: row i is the prediction for the example that stands for class i."""
    limits = np.percentile(probability, percentile, axis=0, method="higher")
    below = (probability < limits) | (percentile == 100)
    anchors = np.where(below, probability, -1).argmax(axis=0)
    rows = probability[anchors]
    return rows / rows.sum(axis=1, keepdims=True)
