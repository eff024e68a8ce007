"""Label-noise model: how many labels are wrong, in which classes, and which ones.

A label y comes from the true class t, which is not seen. The scores s_v(x) of one or more views v
predict the true class, up to calibration,

    P(t | x) = softmax(sum_v a_v s_v + D s + b),        s the mean of the s_v,

and a label is wrong for one of two reasons: by a matrix T of transitions between classes, wherever
the example lies; or near a border between classes, where it may get the label of the other side,

    P(y | t, x) = (1 - e(x)) T[t, y]  +  e(x) P(y | x, not t),      e(x) = B (p_2 / p_1)^k,

where p_1 and p_2 are the largest two of P(. | x): people err where it is hard. The parameters
maximize the likelihood of the given labels, sum_i log sum_t P(t | x_i) P(y_i | t, x_i), with weak
priors. Bayes' rule then gives the probability that a label is wrong, and means of it are the noise
rate of a class, or of any set.

The scores are those of SPR's own regression (`linear_scores.py`), of a kernel regression
(`kernel_scores.py`) and of a vote of neighbors (`neighbor_scores.py`), each example's without its
own label, which it must not explain. The likelihood decides how much each of them counts.

Features and labels alone cannot tell wrong labels near a border from classes that overlap there:
both make P(y | x) flat, and the likelihood is the same. So there are two readings. In OVERLAP every
contradiction near a border may be overlap. In ANSWER classes overlap about as much as the places
of their examples say (`overlap.py`): the mean entropy H of P(t | x) is free up to about that, costs
OVERLAP_COST per nat from there to about MUCH, and nothing more beyond, where features are weak. The
error probability is the mean of both by READING_WEIGHTS. Where models disagree, from simple to rich
to these two, the intervals are wide; and no interval ends below the fraction of labels that the
features contradict.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from spr_jax.solver.basis import principal_components
from spr_jax.solver.kernel_scores import MOST_DIMS, kernel_scores
from spr_jax.solver.linear_scores import TINY, linear_scores
from spr_jax.solver.minimize import Minimum, minimize, no_memory
from spr_jax.solver.neighbor_scores import neighbor_scores
from spr_jax.solver.overlap import usual_overlap

MOST_ROWS = 10_000  # for fitting the parameters; the models differ by more than further rows change
MOST_ROUNDS = 200
TOLERANCE = 1e-6  # gain of one more round, in nats per example
LITTLE = 0.12  # nats of entropy of P(t | x) that are free, for features of a network's last layer;
LEAST_LITTLE = 0.03  # for others it is what `overlap.py` says, and at least this
MUCH = 0.6
OVERLAP_COST = 0.15  # nats of likelihood per nat of entropy between them
READING_WEIGHTS = 0.7, 0.3  # of ANSWER and OVERLAP
USUAL_EXPONENT = -0.5  # log k: errors near a border fall off about as the root of the odds
BORDER_COST = 0.05  # nats of likelihood per example that is wrong for being near a border
JACKKNIFE_GROUPS = 8
SAME_WEIGHT = 1.0  # prior precision of the difference between the views, in units of examples
MOST_CLASSES = 30  # for models that mix scores; the cost grows with the square

# Half-width of an interval: the sum of
DEVIATIONS = 1.64  # this many standard deviations (a 90 % interval of a normal variable),
DISAGREEMENT_WEIGHT = 1.5  # this many times the largest difference between models,
DOUBT_WEIGHT = 0.5  # and this many times the mean of min(p, 1 - p), p being the error probability


class Model(NamedTuple):
    """Parameters; T is the softmax of each row of `transition`."""

    slope: Array  # [views], a
    bias: Array  # [c], b
    transition: Array  # [c, c]
    border: Array  # [2]: log-odds of 2 B, log k
    mix: Array | None = None  # [c, c], D; None where many classes would make it too expensive


class Stage(NamedTuple):
    """What a model may use, as numbers from 0 to 1, so that one program fits all models."""

    mix: Array
    border: Array
    overlap_cost: Array


SIMPLE, MIXED, ANSWER, OVERLAP = (
    Stage(*np.array(flags, np.float32)) for flags in ((0, 0, 1), (1, 0, 1), (1, 1, 1), (1, 0, 0))
)


class Models(NamedTuple):
    """Models of the same labels, stacked along a first axis."""

    readings: Model  # from simple to rich; the last one is the answer
    resampled: Model | None  # the answer, without one group of examples after the other
    left: Array  # [], nats per example that one more round of the answer's fit would gain


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
    features = features.astype(jnp.promote_types(features.dtype, jnp.float32))
    with jax.default_matmul_precision("highest"):
        components = principal_components(features, max(pca_dim, MOST_DIMS if lift else 0))
        views = [linear_scores(components.basis[:, -pca_dim:], labels, num_classes)]
        if lift:
            views.append(kernel_scores(components, labels, num_classes))
            views.append(neighbor_scores(components, labels, num_classes))
        scores = jnp.stack(views)
        order = jax.random.permutation(jax.random.key(0), len(labels))  # input order may matter
        chosen = order[:MOST_ROWS]
        few = scores[..., chosen], labels[chosen]
        little: Array | float = LITTLE
        if lift:
            little = jnp.maximum(usual_overlap(few[0][:2], few[1]), LEAST_LITTLE)
        models = fit_models(*few, little, intervals=intervals)
        wrongs = lax.map(
            lambda model: _wrong(posterior(model, scores, labels), labels), models.readings
        )
        sampling: Array | int = 0
        if intervals:
            sampling = _jackknife(models.resampled, *few) * len(chosen) / len(labels)
        answer = _reading(models, -1)
        true, by_reading = posterior(answer, scores, labels), wrongs[-1:]
        if intervals:
            overlap = posterior(_reading(models, -2), scores, labels)
            true = READING_WEIGHTS[0] * true + READING_WEIGHTS[1] * overlap
            by_reading = wrongs[-1:-3:-1]

    given = labels == jnp.arange(num_classes)[:, None]
    size = given.sum(axis=1)
    least, most = wrongs.min(axis=0), wrongs.max(axis=0)
    wrong = jnp.clip(_wrong(true, labels), least, most)  # a mean, but for rounding
    rates = jnp.stack([_shares(each, labels, num_classes) for each in wrongs])
    rate = _shares(wrong, labels, num_classes)
    disagreement = jnp.abs(rates - rate).max(axis=0)
    counts = jnp.append(len(labels), jnp.maximum(size, 1))
    variance = _shares(wrong * (1 - wrong), labels, num_classes) / counts
    doubt = _shares(jnp.minimum(wrong, 1 - wrong), labels, num_classes)
    half = DEVIATIONS * jnp.sqrt(sampling + variance) + 0.5 / counts
    half += DISAGREEMENT_WEIGHT * disagreement + DOUBT_WEIGHT * doubt
    contradicted = jnp.argmax(logits_of(answer, scores), axis=0) != labels
    contradicted = _shares(contradicted.astype(wrong.dtype), labels, num_classes)
    return LabelNoise(
        wrong=wrong,
        by_reading=by_reading,
        least=least,
        most=most,
        suggested=jnp.argmax(true, axis=0),
        other=jnp.argmax(jnp.where(given, -1, true), axis=0),
        rate=rate,
        low=jnp.clip(rate - half, 0, 1),
        high=jnp.clip(jnp.maximum(rate + half, contradicted), 0, 1),
        disagreement=disagreement,
        confusion=(true @ given.T / jnp.maximum(size, 1)).T,
        evidence=evidence_of(scores[:2].mean(axis=0), labels),
        left=models.left,
    )


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


def fit_models(
    scores: Array, labels: Array, little: Array | float = LITTLE, *, intervals: bool = True
) -> Models:
    """Fit models from simple to rich, and what intervals need, one after the other in one loop.

    Each starts where the one before it ended; the first from much noise, so that labels are called
    right for a reason. `intervals` adds, from the answer, a model which may read border noise as
    overlap, freely, and the fits that each leave one group of examples out.
    """
    num_views, c, n = scores.shape
    zeros = partial(jnp.zeros, dtype=scores.dtype)
    start = Model(
        slope=zeros(num_views) + 2 / num_views,
        bias=zeros(c),
        transition=jnp.log(jnp.where(jnp.eye(c) > 0, 0.3, 0.7 / (c - 1))).astype(scores.dtype),
        border=jnp.array([-2.0, USUAL_EXPONENT], scores.dtype),
        mix=zeros((c, c)) if c <= MOST_CLASSES else None,
    )
    extra = [OVERLAP] + [ANSWER] * JACKKNIFE_GROUPS if intervals else []
    stages = jax.tree.map(lambda *flags: jnp.stack(flags), SIMPLE, MIXED, ANSWER, *extra)
    left_out = jnp.array([-1] * 4 + [*range(JACKKNIFE_GROUPS)])[: len(stages.mix)]
    group = jnp.arange(n) % JACKKNIFE_GROUPS

    def next_model(carry, task):
        start, memory = carry
        stage, left_out, is_step = task
        flatter = start._replace(slope=start.slope * (1 + stage.overlap_cost) / 2)
        weights = (group != left_out).astype(scores.dtype)
        found = fit(scores, labels, weights, flatter, stage, memory, little)
        ahead = found.at, found.memory
        carry = jax.tree.map(lambda new, old: jnp.where(is_step, new, old), ahead, carry)
        return carry, (only(found.at, stage), found.left)

    tasks = stages, left_out, jnp.arange(len(left_out)) < 3
    models, left = lax.scan(next_model, (start, no_memory(start)), tasks)[1]
    readings = jnp.array([0, 1, 3, 2] if intervals else [0, 1, 2])
    return Models(
        readings=jax.tree.map(lambda parameters: parameters[readings], models),
        resampled=jax.tree.map(lambda parameters: parameters[4:], models) if intervals else None,
        left=left[2],
    )


def only(model: Model, stage: Stage) -> Model:
    """The model without what the stage does not use."""
    none = -30.0  # log-odds
    share = jnp.where(stage.border > 0, model.border[0], none)
    mix = None if model.mix is None else model.mix * stage.mix
    return model._replace(mix=mix, border=model.border.at[0].set(share))


def joint(model: Model, scores: Array, labels: Array) -> Array:
    """P(t | x) P(y | t, x) for every true class t and the given y, [c, n]."""
    given = labels == jnp.arange(scores.shape[1])[:, None]
    log_p = jax.nn.log_softmax(logits_of(model, scores), axis=0)
    p, transition = jnp.exp(log_p), jax.nn.softmax(model.transition, axis=1)
    error = border_errors(model, log_p)
    other_side = jnp.where(given, 0, jnp.sum(p * given, axis=0) / jnp.maximum(1 - p, 1e-6))
    return p * ((1 - error) * transition[:, labels] + error * other_side)


def border_errors(model: Model, log_p: Array) -> Array:
    """e(x), [n]."""
    is_first = jnp.argmax(log_p, axis=0) == jnp.arange(len(log_p))[:, None]
    gap = log_p.max(axis=0) - jnp.where(is_first, -1e9, log_p).max(axis=0)
    return jax.nn.sigmoid(model.border[0]) / 2 * jnp.exp(-jnp.exp(model.border[1]) * gap)


def logits_of(model: Model, scores: Array) -> Array:
    """log P(t | x), up to a constant, [c, n]."""
    num_views, c, n = scores.shape
    bias = model.bias[:, None]
    if model.mix is None:
        return sum(a * s for a, s in zip(model.slope, scores, strict=True)) + bias
    # One product with the scores of all views, in place of a mean over them.
    identity = jnp.eye(c, dtype=scores.dtype)
    maps = [slope * identity + model.mix / num_views for slope in model.slope]
    return jnp.hstack(maps) @ scores.reshape(num_views * c, n) + bias


def posterior(model: Model, scores: Array, labels: Array) -> Array:
    """P(t | x, y), [c, n]."""
    both = joint(model, scores, labels)
    return both / (both.sum(axis=0) + TINY)


def _wrong(posterior, labels):
    """P(t != y | x, y), [n]; where division is approximate, a posterior may exceed 1 by a bit."""
    return jnp.clip(1 - jnp.take_along_axis(posterior, labels[None], axis=0)[0], 0, 1)


def _shares(values, labels, num_classes):
    """Mean over all examples, then over each given class, [1 + c]."""
    sums = jnp.zeros(num_classes, values.dtype).at[labels].add(values)
    size = jnp.bincount(labels, length=num_classes)
    return jnp.append(values.mean(), sums / jnp.maximum(size, 1))


def log_prior(model: Model) -> Array:
    """Log prior, in units of examples; it decides where the labels do not.

    It favors finite slopes, little mixing, rows of T that are alike, and symmetric T.
    """
    c = len(model.bias)
    log_t = jax.nn.log_softmax(model.transition, axis=1)
    right = jnp.clip(jnp.trace(jnp.exp(log_t)) / c, 1e-6, 1 - 1e-6)
    symmetric = jnp.where(jnp.eye(c) > 0, right, (1 - right) / (c - 1))
    alike = jnp.sum(symmetric * (log_t - jnp.log(symmetric)))
    steep = c**2 / (c - 1) / 11 * model.slope.sum() ** 2 + SAME_WEIGHT * jnp.var(model.slope)
    steep += 0 if model.mix is None else 10 * jnp.sum(model.mix**2)
    # A view that counts against itself has found only that an example left out is missed.
    steep += 1e4 * jnp.sum(jnp.minimum(model.slope, 0) ** 2)
    usual = 20 * (model.border[1] - USUAL_EXPONENT) ** 2
    return 5 * alike + log_t.sum() / c - (steep + usual) / 2 - jax.nn.softplus(model.border[0])


def overlap_cost(entropy: Array, little: Array | float = LITTLE) -> Array:
    """Cost of the mean entropy of P(t | x), in nats per example: free up to about `little`."""
    grid = jnp.linspace(0, 2, 401, dtype=entropy.dtype)
    slope = OVERLAP_COST * (1 - jnp.exp(-((grid / little) ** 4))) * jnp.exp(-((grid / MUCH) ** 4))
    between = (slope[1:] + slope[:-1]) / 2 * jnp.diff(grid)
    total = jnp.concatenate([jnp.zeros(1, entropy.dtype), jnp.cumsum(between)])
    return jnp.interp(entropy, grid, total)


def fit(
    scores: Array,  # [views, c, n]
    labels: Array,  # [n]
    weights: Array,  # [n]
    start: Model,
    stage: Stage = ANSWER,
    memory: optax.OptState | None = None,
    little: Array | float = LITTLE,  # nats of entropy that are free
) -> Minimum:
    """Maximize likelihood times prior."""
    size = weights.sum()

    def loss(model):
        used = only(model, stage)
        log_p = jax.nn.log_softmax(logits_of(used, scores), axis=0)
        likelihood = jnp.log(joint(used, scores, labels).sum(axis=0) + TINY)
        entropy = -jnp.sum(jnp.exp(log_p) * log_p, axis=0)
        cost = stage.overlap_cost * overlap_cost(weights @ entropy / size, little)
        cost += BORDER_COST * (weights @ border_errors(used, log_p)) / size
        return cost - (weights @ likelihood + log_prior(used)) / size

    return minimize(loss, start, tolerance=TOLERANCE, max_rounds=MOST_ROUNDS, memory=memory)


def _jackknife(models, scores, labels):
    """Variance of the rates, [1 + c], from fits that each leave one group out."""

    def rates_by(model):
        return _shares(_wrong(posterior(model, scores, labels), labels), labels, scores.shape[1])

    rates = lax.map(rates_by, models)
    spread = jnp.sum((rates - rates.mean(axis=0)) ** 2, axis=0)
    return (JACKKNIFE_GROUPS - 1) / JACKKNIFE_GROUPS * spread
