"""Label-noise model: how many labels are wrong, in which classes, and which ones.

A label y comes from the true class t, which is not seen, by a matrix T of transitions; the scores
s_v(x) of one or two regressions v predict the true class, up to calibration:

    P(t | x) = softmax(sum_v a_v s_v + D s + b),       s the mean of the s_v,
    P(y | t, x) = T[t, t]                                              if y = t
                = (1 - T[t, t]) R[t, y] e^(u s_y) / sum_k R[t, k] e^(u s_k)   else,

with R the rows of T off its diagonal, normalized. u > 0 means that wrong labels fall where the
features point, too (images that are hard for people; networks that begin to memorize); with u = 0
the noise depends on the class alone. The parameters maximize the likelihood of the given labels,
sum_i log sum_t P(t | x_i) P(y_i | t, x_i), with weak priors. Bayes' rule then gives the probability
that a label is wrong, and means of it are the noise rate of a class, or of any set.

The scores are those of SPR's own regression (`linear_scores.py`) and of a kernel regression
(`kernel_scores.py`), each example's from fits without it: an example must not explain its own label.
The likelihood decides how much each of them counts.

Labels and features alone cannot separate wrong labels near the border of two classes from classes
that overlap there: both make P(y | x) flat. So an assumption decides. Classes usually overlap little:
the mean entropy H of P(t | x) costs

    AMBIGUITY integral_0^H exp(-(h / USUAL)^2) dh       nats per example.

Where the labels leave H well below USUAL, as with good features, contradictions near a border count
as errors; where H is large anyway, the features are weak, and the assumption says nothing. A model
without it reads every contradiction near a border as overlap. Where models disagree, from simple to
rich to this one, the intervals are wide; and no interval ends below the fraction of labels that the
features contradict.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.scipy.special import erf

from spr_jax.solver.kernel_scores import kernel_scores
from spr_jax.solver.linear_scores import TINY, linear_scores

MOST_ROWS = 10_000  # for fitting the parameters; the models differ by more than further rows change
MOST_ROUNDS = 100
TOLERANCE = 3e-6  # improvement of a round, in nats per example
AMBIGUITY = 0.15  # nats of likelihood that a nat of entropy of P(t | x) costs, where there is little
USUAL = 0.5  # nats of entropy; far beyond it more costs nothing
JACKKNIFE_GROUPS = 8
JACKKNIFE_ROWS = 5_000  # fewer, as its variance is in proportion to them
SAME_WEIGHT = 1.0  # prior precision of the difference between the views, in units of examples
MOST_CLASSES = 30  # for models that mix scores; the cost grows with the square

# Half-width of an interval: the sum of
DEVIATIONS = 1.64  # this many standard deviations (a 90 % interval of a normal variable),
DISAGREEMENT_WEIGHT = 1.5  # this many times the largest difference between models,
DOUBT_WEIGHT = 0.5  # and this many times the mean of min(p, 1 - p), p being the error probability


class Model(NamedTuple):
    """Parameters; T is the softmax of each row of `transition`. Simple models lack the last two."""

    slope: Array  # [views], a
    bias: Array  # [c], b
    transition: Array  # [c, c]
    mix: Array | None = None  # [c, c], D
    tilt: Array | None = None  # [], u


class LabelNoise(NamedTuple):
    wrong: Array  # [N], probability that the given label is wrong
    least: Array  # [N], the lowest that any of the models gives,
    most: Array  # [N], and the highest
    suggested: Array  # [N], the most probable class
    rate: Array  # [1 + c], fraction of wrong labels: of all, then of each given class
    low: Array  # [1 + c], its interval
    high: Array  # [1 + c]
    disagreement: Array  # [1 + c], largest difference of another model's rate
    confusion: Array  # [c, c], fraction of each true class (column) among a given label (row)
    gain: Array  # [], nats by which the features predict the labels better than class frequencies


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

    Models from simple to rich are fitted; the last one is the answer, the others widen intervals.

    Args:
        features: one row per example.
        labels: class numbers below `num_classes`.
        num_classes: number of classes; one without examples is allowed.
        pca_dim: principal components that the fit uses.
        intervals: also fit the jackknife and a model in which classes may overlap freely.
            Otherwise `low` and `high` lack the sampling error.
        lift: also use a kernel regression; False for features that a linear layer was trained on.

    Returns:
        Per example the probability that its label is wrong and the most probable class; noise
        rates with intervals; the confusion of given and true classes.
    """
    features = features.astype(jnp.promote_types(features.dtype, jnp.float32))
    with jax.default_matmul_precision("highest"):
        views = [linear_scores(features, labels, num_classes, pca_dim)]
        if lift:
            views.append(kernel_scores(features, labels, num_classes, pca_dim))
        scores = jnp.stack(views)
        order = jax.random.permutation(jax.random.key(0), len(labels))  # input order may matter
        chosen = order[:MOST_ROWS]
        models = fit_models(scores[..., chosen], labels[chosen], with_overlap=intervals)
        posteriors = [posterior(model, scores, labels) for model in models]
        wrongs = jnp.stack([_wrong(each, labels) for each in posteriors])
        chosen = order[:JACKKNIFE_ROWS]
        deviation: Array | int = 0
        if intervals:
            sampling = _jackknife(scores[..., chosen], labels[chosen], models[-1])
            deviation = jnp.sqrt(sampling * len(chosen) / len(labels))

    given = labels == jnp.arange(num_classes)[:, None]
    size = given.sum(axis=1)
    rates = jnp.stack([_shares(wrong, labels, num_classes) for wrong in wrongs])
    wrong, rate = wrongs[-1], rates[-1]
    disagreement = jnp.abs(rates - rate).max(axis=0)
    counts = jnp.append(len(labels), jnp.maximum(size, 1))
    variance = _shares(wrong * (1 - wrong), labels, num_classes) / counts
    doubt = _shares(jnp.minimum(wrong, 1 - wrong), labels, num_classes)
    half = DEVIATIONS * jnp.sqrt(deviation**2 + variance) + 0.5 / counts
    half += DISAGREEMENT_WEIGHT * disagreement + DOUBT_WEIGHT * doubt
    contradicted = jnp.argmax(logits_of(models[-1], scores), axis=0) != labels
    contradicted = _shares(contradicted.astype(wrong.dtype), labels, num_classes)
    frequency = jnp.log(jnp.maximum(size, 1) / len(labels))[labels]
    likelihood = jnp.log(joint(models[-1], scores, labels).sum(axis=0) + TINY)
    return LabelNoise(
        wrong=wrong,
        least=wrongs.min(axis=0),
        most=wrongs.max(axis=0),
        suggested=jnp.argmax(posteriors[-1], axis=0),
        rate=rate,
        low=jnp.clip(rate - half, 0, 1),
        high=jnp.clip(jnp.maximum(rate + half, contradicted), 0, 1),
        disagreement=disagreement,
        confusion=(posteriors[-1] @ given.T / jnp.maximum(size, 1)).T,
        gain=jnp.sum(likelihood - frequency),
    )


def fit_models(scores: Array, labels: Array, with_overlap: bool) -> list[Model]:
    """Fit models from simple to rich; only the simple one if mixing many classes costs too much.

    The first starts from much noise, so that labels are called right for a reason. `with_overlap`
    inserts, before the last model, the same one in which classes may overlap freely.
    """
    (num_views, c, _), weights = scores.shape, jnp.ones(len(labels), scores.dtype)
    transition = jnp.where(jnp.eye(c) > 0, 0.3, 0.7 / (c - 1))
    zeros = partial(jnp.zeros, dtype=scores.dtype)
    slope = zeros(num_views) + 2 / num_views
    start = Model(slope, zeros(c), jnp.log(transition).astype(scores.dtype))
    models = [fit(scores, labels, weights, start)]
    for more in ({"mix": zeros((c, c))}, {"tilt": zeros(())}) if c <= MOST_CLASSES else ():
        models.append(fit(scores, labels, weights, models[-1]._replace(**more)))
    if with_overlap:
        flatter = models[-1]._replace(slope=models[-1].slope / 2)
        models.insert(-1, fit(scores, labels, weights, flatter, ambiguity=0))
    return models


def joint(model: Model, scores: Array, labels: Array) -> Array:
    """P(t | x) P(y | t, x) for every true class t and the given y, [c, n]."""
    c = scores.shape[1]
    given = labels == jnp.arange(c)[:, None]
    transition = jax.nn.softmax(model.transition, axis=1)
    right = jnp.diag(transition)[:, None]
    among_wrong = jnp.where(jnp.eye(c) > 0, 0, transition)
    among_wrong /= among_wrong.sum(axis=1, keepdims=True)
    error = (1 - right) * among_wrong[:, labels]
    if model.tilt is not None:
        mean = scores.mean(axis=0)
        pull = jnp.exp(model.tilt * (mean - mean.max(axis=0)))
        error *= jnp.sum(pull * given, axis=0) / (among_wrong @ pull + TINY)
    return jax.nn.softmax(logits_of(model, scores), axis=0) * jnp.where(given, right, error)


def logits_of(model: Model, scores: Array) -> Array:
    """log P(t | x), up to a constant, [c, n]."""
    mixed = 0 if model.mix is None else model.mix @ scores.mean(axis=0)
    return jnp.tensordot(model.slope, scores, axes=1) + mixed + model.bias[:, None]


def posterior(model: Model, scores: Array, labels: Array) -> Array:
    """P(t | x, y), [c, n]."""
    both = joint(model, scores, labels)
    return both / (both.sum(axis=0) + TINY)


def _wrong(posterior, labels):
    return 1 - jnp.take_along_axis(posterior, labels[None], axis=0)[0]


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
    steep += 0 if model.tilt is None else model.tilt**2
    return 5 * alike + log_t.sum() / c - steep / 2


def fit(
    scores: Array,  # [views, c, n]
    labels: Array,  # [n]
    weights: Array,  # [n]
    start: Model,
    ambiguity: float = AMBIGUITY,
) -> Model:
    """Maximize likelihood times prior by L-BFGS."""

    def loss(model):
        likelihood = jnp.log(joint(model, scores, labels).sum(axis=0) + TINY)
        logits = logits_of(model, scores)
        entropy = -jnp.sum(jax.nn.softmax(logits, axis=0) * jax.nn.log_softmax(logits, axis=0), 0)
        size = weights.sum()
        cost = ambiguity * USUAL * jnp.sqrt(jnp.pi) / 2 * erf(weights @ entropy / size / USUAL)
        return cost - (weights @ likelihood + log_prior(model)) / size

    search = optax.scale_by_zoom_linesearch(max_linesearch_steps=10, initial_guess_strategy="one")
    solver = optax.lbfgs(memory_size=20, linesearch=search)
    value_and_grad = optax.value_and_grad_from_state(loss)

    def improves(carry):
        _, _, rounds, last, value = carry
        return (rounds < MOST_ROUNDS) & ~(last - value < TOLERANCE)

    def one_round(carry):
        model, state, rounds, _, last = carry
        value, grad = value_and_grad(model, state=state)
        updates, state = solver.update(grad, state, model, value=value, grad=grad, value_fn=loss)
        return optax.apply_updates(model, updates), state, rounds + 1, last, value

    far = jnp.asarray(jnp.inf, scores.dtype)
    carry = (start, solver.init(start), 0, far, far)
    return lax.while_loop(improves, one_round, carry)[0]


def _jackknife(scores, labels, model):
    """Variance of the rates, [1 + c], from fits that each leave one group out."""
    group = jnp.arange(len(labels)) % JACKKNIFE_GROUPS

    def without(out):
        weights = (group != out).astype(scores.dtype)
        refitted = fit(scores, labels, weights, model)
        wrong = _wrong(posterior(refitted, scores, labels), labels)
        return _shares(wrong, labels, len(model.bias))

    rates = lax.map(without, jnp.arange(JACKKNIFE_GROUPS))
    spread = jnp.sum((rates - rates.mean(axis=0)) ** 2, axis=0)
    return (JACKKNIFE_GROUPS - 1) / JACKKNIFE_GROUPS * spread
