"""RoG (Lee et al., 2019): replace the last layer of a trained network by robust Gaussians.

https://arxiv.org/abs/1901.11300. In feature space each class is a Gaussian, with a covariance that
all share. Means and covariance are those of the examples near the middle of their class, by steps
towards the minimum covariance determinant (MCD): beginning with a random subset of each class,

    keep the examples x of class j with the smallest (x - mu_j)' P (x - mu_j),

where mu_j are the means and P is the inverse covariance of the subset before; a class of a single
example has a mean, and adds nothing to the covariance. Then, by Bayes' rule,

    p(j | x)  ~  exp(w_j' x + b_j),    w_j = P mu_j,    b_j = -1/2 mu_j' P mu_j.

Each of the last layers has such a p; they are averaged with the shares that make labels most likely
that neither the network nor the Gaussians have seen.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from spr_jax.losses import cross_entropy
from spr_jax.methods.method import (
    Method,
    expect,
    nth_probability,
    training_weights,
    warn_of_few,
    weighted_mean,
)

HELD_OUT = 50  # examples of a class, as released; a tenth of it, if that is less
ROUNDS = 200  # of the search for shares


def rog(keep: float = 0.7, rounds: int = 1, layers: int = 4) -> Method:
    """Robust generative classifier: plain training, prediction by robust Gaussians of features.

    They are fitted after every epoch, to the layers of the network that is evaluated. `clean` are
    the examples that those of the features are fitted to. The accuracy of the network's own last
    layer is logged as test_top1_softmax. The released code holds out examples of the test set.

    Args:
      keep: fraction of each class that the Gaussians are fitted to.
      rounds: steps towards the MCD, one in the released code, which by mistake begins with the
        covariance of the last class in place of that of all.
      layers: how many of the last layers that the backbone offers; 1: its features alone, and
        nothing is held out.
    """
    expect(0 < keep <= 1, "keep", keep, "a fraction above 0, up to 1")
    expect(rounds >= 0, "rounds", rounds, "0 or more")
    expect(layers >= 1, "layers", layers, "1 or more")

    def init(labels, num_classes, widths):
        few = "a single one is a mean without a spread, and a class of none is never predicted"
        warn_of_few(labels, num_classes, 2, few)
        used = widths[-layers:]
        weights = jnp.ones(len(labels), jnp.float32)
        if len(used) > 1:
            size = np.bincount(labels, minlength=num_classes)
            weights = training_weights(
                labels, num_classes, np.maximum(10, size // HELD_OUT)[labels]
            )
        heads = {f"layer_{n}": empty_head(num_classes, width) for n, width in enumerate(used)}
        shares = jnp.full(len(used), 1 / len(used), jnp.float32)
        everyone = jnp.ones(len(labels), bool)
        return heads | {"clean": everyone, "weights": weights, "shares": shares}

    def loss(networks, batch, memory, key):
        output, network = networks[0].forward(batch.images, key)
        each = memory["weights"][batch.index] * cross_entropy(output.logits, batch.labels)
        return weighted_mean(each, batch.weights), ((network,), {})

    def revise(memory, epoch, key):
        labels, seen = np.asarray(epoch.labels), np.asarray(epoch.visited)
        is_learned = np.asarray(memory["weights"]) > 0
        learned, held = seen & is_learned, seen & ~is_learned
        draws, likely = np.asarray(random.uniform(key, seen.shape)), []
        found = epoch.scan(averaged=True, inner=True)
        inner = [found[f"inner_{n}"] for n in range(len(found)) if f"inner_{n}" in found]
        for number, outputs in enumerate([*inner, found["features"]][-layers:]):
            outputs, name = np.asarray(outputs, np.float64), f"layer_{number}"
            num_classes = len(memory[name]["offsets"])
            examples = outputs[learned], labels[learned], draws[learned]
            kept, head = fit(*examples, num_classes, keep, rounds)
            memory = memory | {name: head}
            p = np.asarray(posterior(head, outputs[held]))
            likely.append(p[np.arange(len(p)), labels[held]])
        clean = np.asarray(memory["clean"]) & ~seen
        clean[learned] = kept
        return memory | {"clean": clean, "shares": best_shares(np.stack(likely, axis=1))}

    def predict(networks, memory, images):
        output, inner = networks[0].inspect(images)
        found = [*inner, output.features][-layers:]
        each = [posterior(memory[f"layer_{n}"], outputs) for n, outputs in enumerate(found)]
        return jnp.tensordot(memory["shares"], jnp.stack(each), axes=1)

    def describe(memory, epoch):
        return {f"share_of_layer_{n}": float(share) for n, share in enumerate(memory["shares"])}

    beside = {"softmax": nth_probability(0)}
    method = Method(init, (loss,), revise, predict, describe, predict_beside=beside)
    return method._replace(needs_widths=True)


def fit(outputs, labels, draws, num_classes, keep, rounds):
    """Which examples Gaussians are fitted to, and the head that they lead to."""
    kept = lowest(draws, labels, keep)
    for _ in range(rounds):
        kept = concentrate(outputs, labels, kept, num_classes, keep)
    fitted = gaussians(outputs, labels, kept, num_classes)
    return kept, linear_head(*fitted, np.isin(np.arange(num_classes), labels))


def posterior(head, outputs):
    """Probability of each class by the Gaussians of a layer, [n, c]."""
    return jax.nn.softmax((outputs - head["center"]) @ head["slopes"].T + head["offsets"])


def best_shares(likely):
    """Shares [L] of layers that find labels likely, [n, L], by expectation maximization.

    They maximize sum_i log(sum_l share_l p_il) over the half of the labels that the last layer
    finds most likely; the released code takes 200 steps in that direction.
    """
    shares = np.full(likely.shape[1], 1 / likely.shape[1])
    order = np.argsort(-likely[:, -1], kind="stable")
    trusted = likely[order[: (len(likely) + 1) // 2]] + 1e-10
    for _ in range(ROUNDS if len(trusted) else 0):
        joint = shares * trusted
        shares = np.mean(joint / joint.sum(axis=1, keepdims=True), axis=0)
    return shares.astype(np.float32)


def empty_head(num_classes, width):
    """A head that finds all classes equally likely, until one is fitted."""
    shapes = {"slopes": (num_classes, width), "center": width, "offsets": num_classes}
    return {name: jnp.zeros(shape, jnp.float32) for name, shape in shapes.items()}


def lowest(values, labels, keep):
    """Mark the fraction of each class with the lowest values, [n]; at least one example."""
    kept = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = max(1, int(keep * len(members) + 1e-9))  # 0.7 * 90 < 63 in floating point
        kept[members[np.argsort(values[members], kind="stable")[:count]]] = True
    return kept


def gaussians(features, labels, kept, num_classes):
    """Means [c, d] of the kept examples, and the inverse of their covariance about them [d, d]."""
    own = np.eye(num_classes)[labels[kept]]
    means = own.T @ features[kept] / np.maximum(own.sum(axis=0), 1)[:, None]
    residuals = features[kept] - means[labels[kept]]
    covariance = residuals.T @ residuals / len(residuals)
    return means, np.linalg.pinv(covariance, rcond=1e-6, hermitian=True)  # units may be dead


def concentrate(features, labels, kept, num_classes, keep):
    """Keep the examples that are nearest to the means of those kept so far, [n]."""
    means, precision = gaussians(features, labels, kept, num_classes)
    residuals = features - means[labels]
    return lowest(np.sum(residuals @ precision * residuals, axis=1), labels, keep)


def linear_head(means, precision, is_present):
    """Slopes w and offsets b about the center of the means; absent classes are never predicted."""
    center = means[is_present].mean(axis=0)  # so that single precision suffices
    slopes = (means - center) @ precision
    offsets = np.where(is_present, -np.sum(slopes * (means - center), axis=1) / 2, -np.inf)
    head = {"slopes": slopes, "center": center, "offsets": offsets}
    return {name: values.astype(np.float32) for name, values in head.items()}
