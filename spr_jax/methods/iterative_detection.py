"""IterNLD (Wang et al., 2018): find the outliers of each class, and push them away from it.

https://arxiv.org/abs/1804.00092. Rounds alternate between learning and detection. After a round
the local outlier factor (LOF) of each example among those of its label gives the score 1 / LOF,
about 1 within the crowd. With s its mean over the rounds so far, the part of a class with the
lowest s is noisy. Three kinds of pairs, equally many of each, have with D = ||h_a - h_b|| the loss

    CE_a + w_b CE_b + D^2                 two clean examples of one label
    CE_a + w_b CE_b + max(0, 1 - D)^2     two clean examples of two labels
    CE_a + w_b CE_b + max(0, 1 - D)^2     a clean one and a noisy one of the same label

where h are features and w = 1 for a clean example, min(s, 1) for a noisy one. Five of the six
members are clean, so, up to a factor, the mean of this is that of CE over clean examples and a
fifth of all other terms. Here all pairs of a batch stand for those that the paper draws.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax

from spr_jax.devices import AXIS
from spr_jax.losses import cross_entropy
from spr_jax.methods.batch_masks import mean_over
from spr_jax.methods.method import Method, expect, warn_of_few
from spr_jax.methods.whole_batch import whole

FEWEST = 5  # examples of a class: among fewer, none is an outlier


def iter_nld(
    warmup: int = 5,
    detect_every: int = 10,
    noisy_share: float = 0.5,
    neighbors: float = 0.4,
    contrast: float = 1.0,
) -> Method:
    """Iterative noisy label detection: give outliers of a class less weight, and contrast them.

    Args:
      warmup: epochs of the first round, in which all examples count as clean.
      detect_every: epochs of each further round; its optimizer continues, where the released code
        starts afresh.
      noisy_share: fraction of each class that counts as noisy, the released half.
      neighbors: of the LOF, by cosine distance, as a fraction of the class; at most 2000.
      contrast: weight of the terms on pairs.
    """
    expect(warmup >= 1, "warmup", warmup, "1 or more")
    expect(detect_every >= 1, "detect_every", detect_every, "1 or more")
    expect(0 <= noisy_share < 1, "noisy_share", noisy_share, "a fraction from 0 to below 1")
    expect(0 < neighbors <= 1, "neighbors", neighbors, "a fraction above 0, up to 1")
    expect(contrast >= 0, "contrast", contrast, "0 or more")

    def init(labels, num_classes):
        warn_of_few(labels, num_classes, FEWEST, "none of these counts as an outlier")
        return {
            "clean": jnp.ones(len(labels), bool),
            "suspicion": jnp.zeros(len(labels), jnp.float32),  # 1 - s
            "rounds": jnp.int32(0),
        }

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        clean, score = memory["clean"][batch.index], 1 - memory["suspicion"][batch.index]
        each = cross_entropy(output.logits, batch.labels)
        others = mean_over(~clean, jnp.minimum(score, 1) * each, batch.weights)
        others += contrast * contrastive(output.features, batch, clean)
        return mean_over(clean, each, batch.weights) + others / 5, ((network,), {})

    def revise(memory, epoch, key):
        rounds, since = int(memory["rounds"]), epoch.number + 1 - warmup
        if since < 0 or since % detect_every:
            return memory
        suspicion, clean = np.array(memory["suspicion"]), np.array(memory["clean"])
        features, labels = np.asarray(epoch.scan()["features"]), np.asarray(epoch.labels)
        for label in np.unique(labels):
            members = np.flatnonzero(epoch.visited & (labels == label))
            if len(members) < FEWEST:
                continue
            newest = 1 - 1 / outlier_factor(features[members], neighbors)
            mean = (rounds * suspicion[members] + newest) / (rounds + 1)
            suspicion[members] = mean
            clean[members] = mean <= np.quantile(mean, 1 - noisy_share)
        return {"clean": clean, "suspicion": suspicion, "rounds": np.int32(rounds + 1)}

    return Method(init, (loss,), revise)


def outlier_factor(features, neighbors):
    """LOF of each example, [n]: how much denser its neighbors lie than it does."""
    from sklearn.neighbors import LocalOutlierFactor  # a second to import

    count = max(1, min(int(neighbors * len(features)), len(features) - 1, 2000))
    found = LocalOutlierFactor(n_neighbors=count, metric="cosine").fit(features)
    return -found.negative_outlier_factor_


def contrastive(features, batch, clean):
    """Draw clean pairs of one label together and other pairs apart, over the whole batch."""
    real = batch.weights > 0
    mine = features, batch.labels, batch.index, clean, real
    theirs, labels, index, is_clean, is_real = whole(mine)
    inner = features @ theirs.T
    lengths = jnp.sum(features**2, axis=1)[:, None] + jnp.sum(theirs**2, axis=1)
    squared = jnp.maximum(lengths - 2 * inner, 1e-7)  # the root has a pole at 0
    apart = jnp.maximum(0, 1 - jnp.sqrt(squared)) ** 2
    pair = (clean & real)[:, None] & is_real & (batch.index[:, None] != index)
    alike = batch.labels[:, None] == labels

    def mean(values, chosen):
        count = lax.pmean(jnp.sum(chosen, dtype=values.dtype), AXIS)
        return jnp.sum(values, where=chosen) / jnp.maximum(count, 1)

    together = mean(squared, pair & alike & is_clean)
    across = mean(apart, pair & ~alike & is_clean)
    return together + across + mean(apart, pair & alike & ~is_clean)
