"""Less room to memorize noise: the head sees a random part of the features.

Dropout keeps each feature at random (Arpit et al., 2017, https://arxiv.org/abs/1706.05394; tables
call it "Forgetting" and CED). Nested dropout keeps the first k, so that features are learned in the
order of their importance (Chen et al., 2021, https://arxiv.org/abs/2104.13766).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random

from spr_jax.backbones.network import Network
from spr_jax.devices import AXIS
from spr_jax.losses import cross_entropy
from spr_jax.methods.method import (
    Method,
    expect,
    nothing_to_remember,
    training_weights,
    weighted_mean,
)


def dropout(rate: float = 0.5) -> Method:
    """Cross-entropy with dropout of features before the linear head.

    Args:
      rate: probability that a feature is dropped.
    """
    expect(0 <= rate < 1, "rate", rate, "a probability from 0 to below 1")

    def loss(networks, batch, memory, key):
        forward_key, mask_key = random.split(key)
        shape = (len(batch.labels), num_features(networks[0]))
        mask = random.bernoulli(mask_key, 1 - rate, shape) / jnp.float32(1 - rate)
        output, network = networks[0].forward(batch.images, forward_key, mask)
        each = cross_entropy(output.logits, batch.labels)
        return weighted_mean(each, batch.weights), ((network,), {})

    return Method(nothing_to_remember, (loss,))


def nested(sigma: float = 100.0) -> Method:
    """Nested dropout: train with the first k features, k random, and predict with the best few.

    How many features predictions use is chosen after every epoch by the labels of a tenth of the
    training data that is not trained on, where the released code takes the test set.

    Args:
      sigma: P(k) is proportional to exp(-(k / sigma)^2).
    """
    expect(sigma > 0, "sigma", sigma, "a number above 0")
    # Candidates: k rarely exceeds 3 sigma. Beyond the width they are all the same.
    lengths = np.unique(np.geomspace(1, np.clip(3 * sigma, 1, 1e5), 32).round().astype(np.int32))

    def init(labels, num_classes):
        weights = training_weights(labels, num_classes)
        return {"weights": weights, "length": jnp.int32(lengths[-1])}

    def loss(networks, batch, memory, key):
        forward_key, length_key = random.split(key)
        width = num_features(networks[0])
        length = random.categorical(length_key, -((jnp.arange(1, width + 1) / sigma) ** 2)) + 1
        length = lax.all_gather(length, AXIS)[0]  # the same on all devices
        mask = jnp.arange(width) < length
        output, network = networks[0].forward(batch.images, forward_key, mask)
        each = cross_entropy(output.logits, batch.labels)
        weights = batch.weights * memory["weights"][batch.index]
        tried = first_features(networks[0], output.features, lengths)
        is_right = tried.argmax(axis=-1) == batch.labels[:, None]
        return weighted_mean(each, weights), ((network,), {"is_right": is_right})

    def revise(memory, epoch, key):
        judges = (np.asarray(memory["weights"]) == 0) & np.asarray(epoch.visited)
        right = np.asarray(epoch.record["is_right"])[judges].sum(axis=0) / max(judges.sum(), 1)
        return memory | {"length": lengths[np.argmax(right - 1e-5 * lengths)]}

    def predict(networks, memory, images):
        features = networks[0].predict(images).features
        return jax.nn.softmax(first_features(networks[0], features, memory["length"][None])[:, 0])

    def describe(memory, epoch):
        return {"features_used": int(memory["length"])}

    return Method(init, (loss,), revise, predict, describe)


def num_features(network: Network) -> int:
    return network.params["head"]["kernel"].shape[0]


def first_features(network: Network, features: Array, lengths: Array) -> Array:
    """Logits [b, len(lengths), c] of a head that sees the first `lengths` features of [b, d]."""
    head = network.params["head"]
    masks = jnp.arange(features.shape[1]) < lengths[:, None]
    return jnp.einsum("bd,ld,dc->blc", features, masks, head["kernel"]) + head["bias"]
