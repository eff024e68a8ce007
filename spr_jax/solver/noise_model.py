"""Label-noise model: how a given label arises from the true class, and how it is fitted.

A label y comes from the true class t, which is not seen. The scores s_v(x) of one or more views v
predict the true class, up to calibration,

    P(t | x) = softmax(sum_v a_v s_v + D s + b),        s the mean of the s_v,

and a label is wrong for one of two reasons: by a matrix T of transitions between classes, wherever
the example lies; or near a border between classes, where it may get the label of the other side,

    P(y | t, x) = (1 - e(x)) T[t, y]  +  e(x) P(y | x, not t),      e(x) = B (p_2 / p_1)^k,

where p_1 and p_2 are the largest two of P(. | x): people err where it is hard. The parameters
maximize the likelihood of the given labels, sum_i log sum_t P(t | x_i) P(y_i | t, x_i), with weak
priors; it also decides how much each view counts. Bayes' rule then gives the probability that a
label is wrong. No label is more frequent in a true class than its own (T[t, t] >= T[t, y]): else
half of a large class could pass for the mislabeled rest of a rare one.

Features and labels alone cannot tell wrong labels near a border from classes that overlap there:
both make P(y | x) flat, and the likelihood is the same. Where features are weak, examples are near
a border everywhere, and T cannot be told from overlap either. So there are two readings. OVERLAP is
cautious: every contradiction may be overlap, and an error by T costs up to MATRIX_COST, the more
the classes overlap by their places, so that only errors which the labels speak for are left. In
ANSWER classes overlap about as much as the places of their examples say (`overlap.py`): the mean
entropy H of P(t | x) is free up to about that, costs OVERLAP_COST per nat from there to about MUCH,
and nothing more beyond, where features are weak.
`label_noise.py` gives the mean of both.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from spr_jax.solver.linear_scores import TINY
from spr_jax.solver.minimize import Minimum, minimize, no_memory

MOST_ROUNDS = 200
TOLERANCE = 1e-6  # gain of one more round, in nats per example,
ROUGH_TOLERANCE = 1e-4  # and with MANY_CLASSES, whose rounds take long
LITTLE = 0.12  # nats of entropy of P(t | x) that are free, unless `overlap.py` says otherwise;
MUCH = 0.6  # see above
OVERLAP_COST = 0.15  # nats of likelihood per nat of entropy between them
USUAL_EXPONENT = -0.5  # log k: errors near a border fall off about as the root of the odds
BORDER_COST = 0.05  # nats of likelihood per example that is wrong for being near a border
MATRIX_COST = 0.1  # and by T, in the reading which calls labels correct where it can; less where
# places say that classes hardly overlap: noise of 60 % in classes far apart passed for overlap
SURPLUS_COST = 0.1  # of log(T[t, y] / T[t, t])^2 where it is above 0; more makes fits stop early
JACKKNIFE_GROUPS = 8
SAME_WEIGHT = 1.0  # prior precision of the difference between the views, in units of examples
MOST_CLASSES = 30  # for models that mix scores; the cost grows with the square
MANY_CLASSES = 200  # beyond, T has one parameter per class: its errors go to all others alike


class Model(NamedTuple):
    """Parameters; T is the softmax of each row of `transition`, or has log-odds on its diagonal."""

    slope: Array  # [views], a
    bias: Array  # [c], b
    transition: Array  # [c, c], or [c] with MANY_CLASSES
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
        transition=_usual_transition(c, correct=0.3).astype(scores.dtype),
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
    p, error = jnp.exp(log_p), border_errors(model, log_p)
    if model.transition.ndim == 1:
        right, wrong = _log_right_and_wrong(model.transition)
        to_given = jnp.exp(jnp.where(given, right[:, None], wrong[:, None]))
    else:
        to_given = jax.nn.softmax(model.transition, axis=1)[:, labels]
    other_side = jnp.where(given, 0, jnp.sum(p * given, axis=0) / jnp.maximum(1 - p, 1e-6))
    return p * ((1 - error) * to_given + error * other_side)


def _usual_transition(c, correct):
    """Parameters of a T in which labels are correct with this probability in all classes."""
    if c > MANY_CLASSES:
        return jnp.full(c, math.log(correct / (1 - correct)))
    return jnp.log(jnp.where(jnp.eye(c) > 0, correct, (1 - correct) / (c - 1)))


def _log_right_and_wrong(log_odds):
    """Log of the diagonal of T, and of the other entries of each row, [c] both."""
    others = max(len(log_odds) - 1, 1)
    return jax.nn.log_sigmoid(log_odds), jax.nn.log_sigmoid(-log_odds) - math.log(others)


def log_transition(model: Model) -> Array:
    """log T, [c, c]."""
    if model.transition.ndim == 2:
        return jax.nn.log_softmax(model.transition, axis=1)
    right, wrong = _log_right_and_wrong(model.transition)
    return jnp.where(jnp.eye(len(right)) > 0, right[:, None], wrong[:, None])


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


def log_prior(model: Model) -> Array:
    """Log prior, in units of examples; it decides where the labels do not.

    It favors finite slopes, little mixing, rows of T that are alike, and symmetric T.
    """
    c = len(model.bias)
    log_t = log_transition(model)
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
        border = border_errors(used, log_p)
        cost += BORDER_COST * (weights @ border) / size
        log_t = log_transition(used)
        surplus = jnp.maximum(log_t - jnp.diagonal(log_t)[:, None], 0)
        cost += SURPLUS_COST * jnp.sum(surplus**2)
        correct = jnp.exp(jnp.diagonal(log_t))
        by_matrix = (1 - border) * (1 - correct @ jnp.exp(log_p))
        matrix_cost = MATRIX_COST * jnp.minimum(little / MUCH, 1)
        cost += (1 - stage.overlap_cost) * matrix_cost * (weights @ by_matrix) / size
        return cost - (weights @ likelihood + log_prior(used)) / size

    tolerance = ROUGH_TOLERANCE if len(start.bias) > MANY_CLASSES else TOLERANCE
    return minimize(loss, start, tolerance=tolerance, max_rounds=MOST_ROUNDS, memory=memory)
