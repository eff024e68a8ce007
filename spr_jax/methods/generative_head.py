"""RoG (Lee et al., 2019): replace the last layer of a trained network by robust Gaussians.

https://arxiv.org/abs/1901.11300. In feature space each class is a Gaussian, with a covariance that
all share. Means and covariance are those of the examples near the middle of their class, by steps
towards the minimum covariance determinant (MCD): beginning with a random subset of each class,

    keep the examples x of class j with the smallest (x - mu_j)' P (x - mu_j),

where mu_j are the means and P is the inverse covariance of the subset before; a class of a single
example has a mean, and adds nothing to the covariance. Then, by Bayes' rule,

    p(j | x)  ~  exp(w_j' x + b_j),    w_j = P mu_j,    b_j = -1/2 mu_j' P mu_j.

The released ensemble over inner layers is left out: backbones give their last features only.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from spr_jax.methods.method import Method, expect, nth_probability
from spr_jax.methods.robust_loss import ce


def rog(keep: float = 0.7, rounds: int = 1) -> Method:
    """Robust generative classifier: plain training, prediction by robust Gaussians of features.

    They are fitted after every epoch, to the features of the network that is evaluated. `clean` are
    the examples they are fitted to; the network learns from all. The accuracy of its own last layer
    is logged as test_top1_softmax.

    Args:
      keep: fraction of each class that the Gaussians are fitted to.
      rounds: steps towards the MCD, one in the released code, which by mistake begins with the
        covariance of the last class in place of that of all.
    """
    expect(0 < keep <= 1, "keep", keep, "a fraction above 0, up to 1")
    expect(rounds >= 0, "rounds", rounds, "0 or more")

    def init(labels, num_classes, num_features):
        return {
            "clean": jnp.ones(len(labels), bool),
            "slopes": jnp.zeros((num_classes, num_features), jnp.float32),
            "center": jnp.zeros(num_features, jnp.float32),
            "offsets": jnp.zeros(num_classes, jnp.float32),
        }

    def revise(memory, epoch, key):
        seen, num_classes = np.asarray(epoch.visited), len(memory["offsets"])
        features = np.asarray(epoch.scan(averaged=True)["features"], np.float64)[seen]
        labels, draws = np.asarray(epoch.labels)[seen], np.asarray(random.uniform(key, seen.shape))
        is_present = np.isin(np.arange(num_classes), labels)
        if not is_present.all():
            absent = np.flatnonzero(~is_present).tolist()
            warnings.warn(f"The classes {absent} have no examples: never predicted.", stacklevel=2)
        kept = lowest(draws[seen], labels, keep)
        for _ in range(rounds):
            kept = concentrate(features, labels, kept, num_classes, keep)
        clean = np.array(memory["clean"])
        clean[seen] = kept
        fitted = gaussians(features, labels, kept, num_classes)
        return {"clean": clean} | linear_head(*fitted, is_present)

    def predict(networks, memory, images):
        features = networks[0].predict(images).features - memory["center"]
        return jax.nn.softmax(features @ memory["slopes"].T + memory["offsets"])

    trained = ce()._replace(init=init, revise=revise, predict=predict, needs_features=True)
    return trained._replace(predict_beside={"softmax": nth_probability(0)})


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
