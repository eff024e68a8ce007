"""Label-noise model: how many labels are wrong, in which classes, and which ones.

A label y comes from the true class t, which is not seen, by a matrix T of transitions; the scores
s(x) of a linear fit predict the true class, up to calibration:

    P(t | x) = softmax(a s + D s + b)
    P(y | t, x) = T[t, t]                                              if y = t
                = (1 - T[t, t]) R[t, y] e^(u s_y) / sum_k R[t, k] e^(u s_k)   else,

with R the rows of T off its diagonal, normalized. u > 0 means that wrong labels fall where the
features point, too (images that are hard for people; networks that begin to memorize); with u = 0
the noise depends on the class alone. The parameters maximize the likelihood of the given labels,
sum_i log sum_t P(t | x_i) P(y_i | t, x_i), with weak priors. Bayes' rule then gives the probability
that a label is wrong, and means of it are the noise rate of a class, or of any set.

The scores are those of SPR's own regression (residuals beyond CUT count as CUT: the mean shift at
that penalty), each example's from a fit without it. An example must not explain its own label.

The model assumes that the features identify some examples of each class with near certainty; these
reveal T. Labels alone cannot separate low noise on ambiguous classes from high noise on clear ones,
so the entropy of P(t | x) is penalized slightly (ENTROPY_PENALTY). This matters where a network has
begun to memorize its labels, or is too weak for much noise, and rarely anywhere else. A model
without the penalty disagrees there. Where models disagree, from simple to rich to unpenalized, the
intervals are wide.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from spr_jax.solver.basis import point_nearby, principal_basis
from spr_jax.solver.blocks import blocks_of, sum_and_stack

CUT = 0.5  # longest residual; a label that the fit is certain is wrong has one of about 1.4
MOST_ROWS = 10_000  # for fitting the parameters; the models differ by more than further rows change
MOST_ROUNDS = 100
TOLERANCE = 3e-6  # improvement of a round, in nats per example
ENTROPY_PENALTY = 0.005  # weight of the mean entropy of P(t | x) against the log-likelihood
JACKKNIFE_GROUPS = 8
JACKKNIFE_ROWS = 5_000  # fewer, as its variance is in proportion to them
MOST_CLASSES = 30  # for models that mix scores; the cost grows with the square

# Half-width of an interval: the sum of
DEVIATIONS = 1.64  # this many standard deviations (a 90 % interval of a normal variable),
DISAGREEMENT_WEIGHT = 1.5  # this many times the largest difference between models,
DOUBT_WEIGHT = 0.5  # and this many times the mean of min(p, 1 - p), p being the error probability


class Model(NamedTuple):
    """Parameters; T is the softmax of each row of `transition`. Simple models lack the last two."""

    slope: Array  # [], a
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


@partial(jax.jit, static_argnames=("num_classes", "pca_dim", "intervals"))
def label_noise(
    features: Array,  # [N, d]
    labels: Array,  # [N], as given
    *,
    num_classes: int,
    pca_dim: int,
    intervals: bool = True,
) -> LabelNoise:
    """Estimate how many labels are wrong, and which, in one XLA program.

    Models from simple to rich are fitted; the last one is the answer, the others widen intervals.

    Args:
        features: one row per example.
        labels: class numbers below `num_classes`.
        num_classes: number of classes; one without examples is allowed.
        pca_dim: principal components that the fit uses.
        intervals: also fit the jackknife and a model without the entropy penalty. Otherwise
            `low` and `high` lack the sampling error.

    Returns:
        Per example the probability that its label is wrong and the most probable class; noise
        rates with intervals; the confusion of given and true classes.
    """
    features = features.astype(jnp.promote_types(features.dtype, jnp.float32))
    with jax.default_matmul_precision("highest"):
        scores = scores_without_own_label(features, labels, num_classes, pca_dim)
        order = jax.random.permutation(jax.random.key(0), len(labels))  # input order may matter
        chosen = order[:MOST_ROWS]
        models = fit_models(scores[:, chosen], labels[chosen], with_unpenalized=intervals)
        posteriors = [posterior(model, scores, labels) for model in models]
        wrongs = jnp.stack([_wrong(each, labels) for each in posteriors])
        chosen = order[:JACKKNIFE_ROWS]
        deviation: Array | int = 0
        if intervals:
            sampling = _jackknife(scores[:, chosen], labels[chosen], models[-1])
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
    frequency = jnp.log(jnp.maximum(size, 1) / len(labels))[labels]
    likelihood = jnp.log(joint(models[-1], scores, labels).sum(axis=0) + TINY)
    return LabelNoise(
        wrong=wrong,
        least=wrongs.min(axis=0),
        most=wrongs.max(axis=0),
        suggested=jnp.argmax(posteriors[-1], axis=0),
        rate=rate,
        low=jnp.clip(rate - half, 0, 1),
        high=jnp.clip(rate + half, 0, 1),
        disagreement=disagreement,
        confusion=(posteriors[-1] @ given.T / jnp.maximum(size, 1)).T,
        gain=jnp.sum(likelihood - frequency),
    )


def scores_without_own_label(
    features: Array, labels: Array, num_classes: int, pca_dim: int
) -> Array:
    """Fit each example from all others, [c, N], of unit mean square.

    With U the residual cut to CUT, h_i = ||q_i||^2 and v the mean slope of the cut, leaving
    example i out changes its fit, to first order, by  -h_i / (v (1 - h_i)) U_i.
    For least squares (v = 1) this is exact.
    """
    n = len(labels)
    blocks, used = blocks_of(n), jnp.ones(n, bool)
    dim, origin = min(pca_dim, features.shape[1]), point_nearby(features, used)
    basis = principal_basis(features, None, used, dim, origin=origin)
    intercept = blocks.fresh.astype(basis.dtype) * n**-0.5
    basis = jnp.concatenate([basis, intercept[:, None]], axis=1)
    targets = blocks.cut(labels)[:, None] == jnp.arange(num_classes)[:, None]
    targets = (targets & blocks.fresh[:, None]).astype(basis.dtype)

    def cut(beta, basis, targets):
        residual = targets - beta @ basis
        norms = jnp.sqrt(jnp.sum(residual**2, axis=0))
        shrink = jnp.minimum(1, CUT / jnp.maximum(norms, TINY))
        return residual * shrink, shrink

    def over_blocks(f):
        return sum_and_stack(lambda *block: (f(*block), None), (basis, targets))[0]

    # As in `mean_shift.py`, over-relaxed: a few digits are enough.
    beta = lax.fori_loop(
        0,
        12,
        lambda _, beta: beta + 1.5 * over_blocks(lambda q, y: cut(beta, q, y)[0] @ q.T),
        over_blocks(lambda q, y: y @ q.T),
    )
    across = (num_classes - 2) / (num_classes - 1)  # along a cut residual the slope is zero

    def leave_out(basis, targets, fresh):
        within, shrink = cut(beta, basis, targets)
        slope = jnp.sum(jnp.where(shrink < 1, across * shrink, 1), where=fresh)
        leverage = jnp.sum(basis**2, axis=0)
        return slope, (beta @ basis, leverage / jnp.maximum(1 - leverage, 0.1) * within)

    slope, (fitted, own) = sum_and_stack(leave_out, (basis, targets, jnp.asarray(blocks.fresh)))
    scores = jax.vmap(blocks.join, in_axes=1)(fitted - own / jnp.maximum(slope / n, 0.2))
    scores -= scores.mean(axis=1, keepdims=True)
    size = jnp.sqrt(jnp.mean(scores**2))
    is_signal = size > 0.1 * n**-0.5  # more than leave-one-out alone makes of constant features
    return jnp.where(is_signal, scores / jnp.maximum(size, TINY), 0)


TINY = 1e-30


def fit_models(scores: Array, labels: Array, with_unpenalized: bool) -> list[Model]:
    """Fit models from simple to rich; only the simple one if mixing many classes costs too much.

    The first starts from much noise, so that labels are called right for a reason.
    `with_unpenalized` inserts, before the last model, the same one without the entropy penalty.
    """
    c, weights = len(scores), jnp.ones(len(labels), scores.dtype)
    transition = jnp.where(jnp.eye(c) > 0, 0.3, 0.7 / (c - 1))
    zeros = partial(jnp.zeros, dtype=scores.dtype)
    start = Model(zeros(()) + 2, zeros(c), jnp.log(transition).astype(scores.dtype))
    models = [fit(scores, labels, weights, start)]
    for more in ({"mix": zeros((c, c))}, {"tilt": zeros(())}) if c <= MOST_CLASSES else ():
        models.append(fit(scores, labels, weights, models[-1]._replace(**more)))
    if with_unpenalized:
        flatter = models[-1]._replace(slope=models[-1].slope / 2)
        models.insert(-1, fit(scores, labels, weights, flatter, entropy_penalty=0))
    return models


def joint(model: Model, scores: Array, labels: Array) -> Array:
    """P(t | x) P(y | t, x) for every true class t and the given y, [c, n]."""
    c = len(scores)
    given = labels == jnp.arange(c)[:, None]
    transition = jax.nn.softmax(model.transition, axis=1)
    right = jnp.diag(transition)[:, None]
    among_wrong = jnp.where(jnp.eye(c) > 0, 0, transition)
    among_wrong /= among_wrong.sum(axis=1, keepdims=True)
    error = (1 - right) * among_wrong[:, labels]
    if model.tilt is not None:
        pull = jnp.exp(model.tilt * (scores - scores.max(axis=0)))
        error *= jnp.sum(pull * given, axis=0) / (among_wrong @ pull + TINY)
    return jax.nn.softmax(logits_of(model, scores), axis=0) * jnp.where(given, right, error)


def logits_of(model: Model, scores: Array) -> Array:
    """log P(t | x), up to a constant."""
    mixed = 0 if model.mix is None else model.mix @ scores
    return model.slope * scores + mixed + model.bias[:, None]


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
    steep = c**2 / (c - 1) / 11 * model.slope**2
    steep += 0 if model.mix is None else 10 * jnp.sum(model.mix**2)
    steep += 0 if model.tilt is None else model.tilt**2
    return 5 * alike + log_t.sum() / c - steep / 2


def fit(
    scores: Array,  # [c, n]
    labels: Array,  # [n]
    weights: Array,  # [n]
    start: Model,
    entropy_penalty: float = ENTROPY_PENALTY,
) -> Model:
    """Maximize likelihood times prior by L-BFGS."""

    def loss(model):
        likelihood = jnp.log(joint(model, scores, labels).sum(axis=0) + TINY)
        logits = logits_of(model, scores)
        entropy = -jnp.sum(jax.nn.softmax(logits, axis=0) * jax.nn.log_softmax(logits, axis=0), 0)
        total = weights @ (likelihood - entropy_penalty * entropy) + log_prior(model)
        return -total / weights.sum()

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
