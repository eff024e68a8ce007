"""How many labels are wrong, in which classes, and which ones: the noise model on a data set.

The scores are those of SPR's own regression (`linear_scores.py`), of a kernel regression
(`kernel_scores.py`) and of a vote of neighbors (`neighbor_scores.py`), each example's without its
own label, which it must not explain. `noise_model.py` is fitted to them. Its two readings of labels
near borders differ in what they assume and hardly in their likelihood, so the probability that a
label is wrong is the mean of both, by READING_WEIGHTS; its means are the noise rates of all labels
and of each class. Where models disagree, from simple to rich to these two, the intervals are wide,
and no interval ends below the fraction of labels that the features contradict.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from spr_jax.solver.basis import principal_components
from spr_jax.solver.kernel_scores import MOST_DIMS, kernel_scores
from spr_jax.solver.linear_scores import TINY, linear_scores
from spr_jax.solver.neighbor_scores import neighbor_scores
from spr_jax.solver.noise_model import (
    JACKKNIFE_GROUPS,
    LITTLE,
    Models,
    fit_models,
    logits_of,
    posterior,
)
from spr_jax.solver.overlap import usual_overlap

MOST_ROWS = 10_000  # for fitting the parameters; the models differ by more than further rows change
MOST_SCORES = 2_000_000  # of each view, for the same: the rows are fewer where classes are many
LEAST_LITTLE = 0.03  # nats of entropy that are free, however far apart the classes lie
READING_WEIGHTS = 0.7, 0.3  # of ANSWER and OVERLAP

# Half-width of an interval: the sum of
DEVIATIONS = 1.64  # this many standard deviations (a 90 % interval of a normal variable),
DISAGREEMENT_WEIGHT = 1.5  # this many times the largest difference between models,
DOUBT_WEIGHT = 0.5  # and this many times the mean of min(p, 1 - p), p being the error probability


class LabelNoise(NamedTuple):
    wrong: Array  # [N], probability that the given label is wrong: the mean of
    by_reading: Array  # [readings, N], those of ANSWER and OVERLAP, or of ANSWER alone
    least: Array  # [N], the lowest that any of the models gives,
    most: Array  # [N], and the highest
    suggested: Array  # [N], the most probable class
    other: Array  # [N], the most probable class but the given one
    rate: Array  # [1 + c], fraction of wrong labels: of all, then of each given class
    low: Array  # [1 + c], its interval
    high: Array  # [1 + c]
    disagreement: Array  # [1 + c], largest difference of another model's rate
    confusion: Array  # [c, c], fraction of each true class (column) among a given label (row)
    evidence: Array  # [], how surely the features predict the labels; see `evidence_of`
    left: Array  # [], nats per example that one more round of fitting would gain


@partial(jax.jit, static_argnames=("num_classes", "pca_dim", "intervals", "lift"))
def label_noise(
    features: Array,  # [N, d]
    labels: Array,  # [N], as given
    *,
    num_classes: int,
    pca_dim: int,
    intervals: bool = True,
    lift: bool = True,
) -> LabelNoise:
    """Estimate how many labels are wrong, and which, in one XLA program.

    Models from simple to rich are fitted; the last two are the readings, the others widen
    intervals.

    Args:
        features: one row per example.
        labels: class numbers below `num_classes`.
        num_classes: number of classes; one without examples is allowed.
        pca_dim: principal components that the linear fit uses; the kernel's is penalized instead.
        intervals: also fit the jackknife and the reading in which classes may overlap freely.
            Otherwise `low` and `high` lack the sampling error, and there is one reading.
        lift: also use a kernel regression and neighbors; False for features that a linear layer was
            trained on.

    Returns:
        Per example the probability that its label is wrong and the most probable class; noise
        rates with intervals; the confusion of given and true classes.
    """
    with jax.default_matmul_precision("highest"):
        scores = _views(features, labels, num_classes, pca_dim, lift)
        chosen = rows_to_fit(len(labels), num_classes)
        few = scores[..., chosen], labels[chosen]
        models, sampling = fit_some(*few, total=len(labels), intervals=intervals, lift=lift)
        judged = judge(models, scores, labels)

    given = labels == jnp.arange(num_classes)[:, None]
    size = given.sum(axis=1)
    shares = jax.tree.map(lambda values: _shares(values, labels, num_classes), judged.summed)
    confusion = (judged.true @ given.T / jnp.maximum(size, 1)).T
    return LabelNoise(
        **judged.found._asdict(),
        **estimate(shares, size, sampling),
        confusion=confusion,
        evidence=evidence_of(scores[:2].mean(axis=0), labels),
        left=models.left,
    )


def rows_to_fit(n: int, num_classes: int) -> Array:
    """The rows that the models are fitted to, in random order, as the input's may matter."""
    order = jax.random.permutation(jax.random.key(0), n)
    return order[: min(MOST_ROWS, MOST_SCORES // num_classes)]


def fit_some(
    scores: Array,  # [views, c, n], of these rows
    labels: Array,  # [n]
    *,
    total: int,  # number of all rows
    intervals: bool = True,
    lift: bool = True,
) -> tuple[Models, Array | int]:
    """Fit the models to some rows; return the sampling variance of the rates of all, too."""
    little: Array | float = LITTLE
    if lift:
        little = jnp.maximum(usual_overlap(scores[:2], labels), LEAST_LITTLE)
    models = fit_models(scores, labels, little, intervals=intervals)
    if not intervals:
        return models, 0
    return models, _jackknife(models.resampled, scores, labels) * len(labels) / total


class Found(NamedTuple):
    """Fields of `LabelNoise` that each row has."""

    wrong: Array  # [n]
    by_reading: Array  # [readings, n]
    least: Array  # [n]
    most: Array  # [n]
    suggested: Array  # [n]
    other: Array  # [n]


class Summed(NamedTuple):
    """Values of each row, or their means over all rows and over each class."""

    wrongs: Array  # [models, n], by each of the models
    wrong: Array  # [n]
    variance: Array  # [n]
    doubt: Array  # [n]
    contradicted: Array  # [n]


class Judged(NamedTuple):
    found: Found
    summed: Summed
    true: Array  # [c, n], P(t | x, y)


def judge(models: Models, scores: Array, labels: Array) -> Judged:
    """Apply the models to rows, each on its own."""
    wrongs = lax.map(
        lambda model: _wrong(posterior(model, scores, labels), labels), models.readings
    )
    answer = _reading(models, -1)
    true, by_reading = posterior(answer, scores, labels), wrongs[-1:]
    if models.resampled is not None:
        overlap = posterior(_reading(models, -2), scores, labels)
        true = READING_WEIGHTS[0] * true + READING_WEIGHTS[1] * overlap
        by_reading = wrongs[-1:-3:-1]
    least, most = wrongs.min(axis=0), wrongs.max(axis=0)
    wrong = jnp.clip(_wrong(true, labels), least, most)  # a mean, but for rounding
    given = labels == jnp.arange(scores.shape[1])[:, None]
    other = jnp.argmax(jnp.where(given, -1, true), axis=0)
    contradicted = jnp.argmax(logits_of(answer, scores), axis=0) != labels
    doubt = jnp.minimum(wrong, 1 - wrong)
    return Judged(
        Found(wrong, by_reading, least, most, jnp.argmax(true, axis=0), other),
        Summed(wrongs, wrong, wrong * (1 - wrong), doubt, contradicted.astype(wrong.dtype)),
        true,
    )


def estimate(shares: Summed, size: Array, sampling: Array | int) -> dict[str, Array]:
    """Noise rates, of all labels and of each class of this size [c], with their intervals."""
    rate = shares.wrong
    disagreement = jnp.abs(shares.wrongs - rate).max(axis=0)
    counts = jnp.append(size.sum(), jnp.maximum(size, 1))
    half = DEVIATIONS * jnp.sqrt(sampling + shares.variance / counts) + 0.5 / counts
    half = half + DISAGREEMENT_WEIGHT * disagreement + DOUBT_WEIGHT * shares.doubt
    return {
        "rate": rate,
        "low": jnp.clip(rate - half, 0, 1),
        "high": jnp.clip(jnp.maximum(rate + half, shares.contradicted), 0, 1),
        "disagreement": disagreement,
    }


def _views(features, labels, num_classes, pca_dim, lift):
    """Scores [views, c, N] by one view, or by three."""
    features = features.astype(jnp.promote_types(features.dtype, jnp.float32))
    components = principal_components(features, max(pca_dim, MOST_DIMS if lift else 0))
    views = [linear_scores(components.basis[:, -pca_dim:], labels, num_classes)]
    if lift:
        views.append(kernel_scores(components, labels, num_classes))
        views.append(neighbor_scores(components, labels, num_classes))
    return jnp.stack(views)


def _reading(models, number):
    return jax.tree.map(lambda parameters: parameters[number], models.readings)


def evidence_of(scores: Array, labels: Array) -> Array:
    """Deviations by which the scores [c, N] favor the given labels more than labels at random.

    With f the class frequencies, a label at random has the score m_i = sum_k f_k s_ki with variance
    v_i = sum_k f_k (s_ki - m_i)^2, so  sum_i (s_{y_i i} - m_i) / sqrt(sum_i v_i)  is about 0 +- 1
    where features say nothing; lower, since each example's scores come from fits without it.
    """
    c, n = scores.shape
    frequency = jnp.bincount(labels, length=c).astype(scores.dtype) / n
    expected = frequency @ scores
    variance = frequency @ (scores - expected) ** 2
    own = jnp.take_along_axis(scores, labels[None], axis=0)[0]
    return jnp.sum(own - expected) / jnp.sqrt(jnp.sum(variance) + TINY)


def _wrong(posterior, labels):
    """P(t != y | x, y), [n]; where division is approximate, a posterior may exceed 1 by a bit."""
    return jnp.clip(1 - jnp.take_along_axis(posterior, labels[None], axis=0)[0], 0, 1)


def _shares(values, labels, num_classes):
    """Mean over all examples, then over each given class, [1 + c]."""
    if values.ndim == 2:
        return jnp.stack([_shares(each, labels, num_classes) for each in values])
    sums = jnp.zeros(num_classes, values.dtype).at[labels].add(values)
    size = jnp.bincount(labels, length=num_classes)
    return jnp.append(values.mean(), sums / jnp.maximum(size, 1))


def _jackknife(models, scores, labels):
    """Variance of the rates, [1 + c], from fits that each leave one group out."""

    def rates_by(model):
        return _shares(_wrong(posterior(model, scores, labels), labels), labels, scores.shape[1])

    rates = lax.map(rates_by, models)
    spread = jnp.sum((rates - rates.mean(axis=0)) ** 2, axis=0)
    return (JACKKNIFE_GROUPS - 1) / JACKKNIFE_GROUPS * spread
