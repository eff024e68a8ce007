"""D2L (Ma et al., 2018): when features begin to expand, labels are being memorized.

https://arxiv.org/abs/1806.02612. The local intrinsic dimensionality (LID) of an example, with r_j
the distances to its k nearest neighbors, is estimated as

    LID = -k / sum_j log(r_j / r_k)

and falls as long as the network learns what classes have in common. Once its mean is two standard
deviations above that of the epochs before, the network turns to its own predictions p: from then
on, in epoch e of E, the target is

    alpha e_y + (1 - alpha) e_argmax(p),    alpha = exp(-e/E LID_e / min_j LID_j),

and the network begins with the weights that it had before the epoch in which features expanded.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from spr_jax.losses import bootstrap
from spr_jax.methods.method import Method, expect, weighted_mean

BATCHES, SIZE, NEIGHBORS = 10, 128, 20  # examples that are looked at, neighbors within a batch


def d2l(warmup: int = 40, window: int = 5, horizon: int = 120, returns: bool = True) -> Method:
    """Dimensionality-driven learning: once features expand, trust predictions more and more.

    Args:
      warmup: epochs of plain training; the authors' for CIFAR-10, 5 for MNIST.
      window: epochs after it whose LID the next is first compared with.
      horizon: E, after which alpha is at most 1/e: the authors' epochs for CIFAR-10, 50 for MNIST.
      returns: go back to the weights before the expansion, as in the paper; the released code
        restores a file that it has just overwritten, so that nothing changes.
    """
    for name, value in {"warmup": warmup, "horizon": horizon}.items():
        expect(value >= 1, name, value, "1 or more")
    expect(window >= 2, "window", window, "2 or more")

    def init(labels, num_classes):
        if len(labels) <= NEIGHBORS:
            warnings.warn(
                f"Dimension is measured by {NEIGHBORS} neighbors, and there are {len(labels)} "
                "examples: it is measured by all others of a batch.",
                stacklevel=2,
            )
        return {
            "dimensions": jnp.zeros(window, jnp.float32),  # LID of the last epochs
            "lowest": jnp.float32(jnp.inf),
            "alpha": jnp.float32(1),
            "has_turned": jnp.bool_(False),
            "goes_back": jnp.bool_(False),
        }

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        each = bootstrap(output.logits, batch.labels, beta=memory["alpha"])
        return weighted_mean(each, batch.weights), ((network,), {})

    def revise(memory, epoch, key):
        past, following = np.asarray(memory["dimensions"]), epoch.number + 1
        newest = mean_dimension(np.asarray(epoch.record["features"])[epoch.visited], key)
        newest = newest if 0 < newest < np.inf else past[-1]  # 0 if there is none yet
        lowest = min(newest or np.inf, memory["lowest"])
        expands = past.all() and newest - past.mean() > 2 * past.std()
        has_turned = memory["has_turned"] | (following >= warmup + window and expands)
        alpha = np.exp(-following / horizon * newest / lowest) if has_turned else 1
        return {
            "dimensions": np.append(past[1:], np.float32(newest)),
            "lowest": np.float32(lowest),
            "alpha": np.float32(alpha),
            "has_turned": np.bool_(has_turned),
            "goes_back": np.bool_(returns and has_turned and not memory["has_turned"]),
        }

    def describe(memory, epoch):
        return {
            "intrinsic_dimension": float(memory["dimensions"][-1]),
            "alpha": float(memory["alpha"]),
        }

    method = Method(init, (loss,), revise, describe=describe, record_from="scan")
    return method._replace(goes_back=lambda memory: bool(memory["goes_back"]))


def mean_dimension(features, key):
    """Average LID over random batches of examples, each within its batch."""
    size = min(SIZE, len(features))
    count = min(BATCHES, len(features) // size)
    order = np.asarray(random.permutation(key, len(features)))
    chosen = order[: count * size].reshape(count, size)
    return float(jnp.nanmean(jnp.stack([dimension(features[batch]) for batch in chosen])))


@jax.jit
def dimension(points):
    """LID of each point by its nearest among the others, [n]."""
    distance = jnp.linalg.norm(points[:, None] - points, axis=2)
    distance = jnp.fill_diagonal(distance, jnp.inf, inplace=False)
    nearest = jnp.sort(distance, axis=1)[:, : min(NEIGHBORS, len(points) - 1)]
    return from_distances(nearest)


def from_distances(nearest):
    """-k / sum_j log(r_j / r_k) of ascending distances [n, k]; [n], NaN where all are zero."""
    return -nearest.shape[1] / jnp.sum(jnp.log(nearest / nearest[:, -1:] + 1e-8), axis=1)
