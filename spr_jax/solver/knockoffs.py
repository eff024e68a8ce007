"""Knockoffs-SPR: a clean set with a bound on the fraction of wrong labels in it.

SPR ranks the examples of a class but cannot say how many of them are clean. Here every label has
a rival, its knockoff: another class for the same example. A regression that has seen neither says
how badly each fits. With Z the misfit of the given label and Z' that of its knockoff,

    W = min(Z, Z') sign(Z - Z'):   negative where the given label fits better.

Where the given label is wrong, a knockoff drawn at random fits better at least as often as worse.
So the examples that lose (W > 0) stand for the wrong ones among those that win (W < 0), and a
class keeps {-T <= W < 0} for the largest T at which the estimated fraction of wrong labels is

    (1 + #{0 < W <= T}) / max(#{-T <= W < 0}, 1)  <=  level.

So that the regression has not seen the labels that it judges, a piece is dealt into halves: SPR
finds the surest examples of each, and least squares on those of one half judges the other.

Wang, Fu and Sun, 2023, https://arxiv.org/abs/2301.00545.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import Mesh

from spr_jax.solver import DEFAULTS, Options, solve_pieces
from spr_jax.solver.basis import point_nearby, principal_basis
from spr_jax.solver.blocks import blocks_of, each
from spr_jax.solver.groups import choose_groups
from spr_jax.solver.pieces import Pieces, Plan, cut_pieces
from spr_jax.solver.top_share import keep_lowest, lowest_examination


class Trial(NamedTuple):
    """Options of the test that a label must pass; hashable, static when jitted."""

    knockoffs: str = "random"  # another class of the group; or "confident": the best scored one
    rule: str = "fixed"  # the level as it is set; or "released": chosen by the data up to it
    scale_level: bool = False  # (c - 2) / 2c of it for groups of c classes, as in the paper
    fallback: str = "none"  # where no T attains the level; or "share": the best fits
    share: float = 0.5  # of a class: the surest, to fit to; and the most that the fallback keeps


FIXED_LEVEL = Trial()


class KnockoffSet(NamedTuple):
    clean: Array  # [N] bool, in the order of the data set
    statistic: Array  # [N], W of the example's least suspicious examination
    attained: Array  # [num_classes] bool, whether the level kept any example of the class
    lowest_level: Array  # [num_classes], the lowest that would have; infinite if none


@partial(jax.jit, static_argnames=("plan", "options", "trial", "mesh"))
def knockoff_set(
    features: Array,  # [N, d]
    labels: Array,  # [N], as given, possibly wrong
    key: Array,
    clean: Array | None = None,  # [N] bool, the last clean set, for the prototypes
    scores: Array | None = None,  # [N, num_classes], for confident knockoffs; None: of the fit
    level: Array | float = 0.1,  # or one per class [num_classes]
    *,
    plan: Plan,  # from plan_pieces(labels, ...)
    options: Options = DEFAULTS,  # of the paths; `ties` and `select` are ignored
    trial: Trial = FIXED_LEVEL,
    mesh: Mesh | None = None,
) -> KnockoffSet:
    """One pass of Knockoffs-SPR: keep as many examples of each class as the level allows.

    Args:
        features: one row per example.
        labels: class numbers below `plan.num_classes`.
        key: draws the pieces, their halves and the knockoffs.
        clean: the last clean set; only with several class groups, which it helps to form.
        scores: class scores of another model, for confident knockoffs.
        level: bound on the expected fraction of wrong labels in the clean set.
        plan: shapes of the pieces; static, so that epochs share one compilation.
        options: how the paths are solved.
        trial: how a label is compared with its knockoff.
        mesh: devices to spread the pieces over, or else the rows of whole data.

    Returns:
        The clean mask, W, and for each class whether the level was attained.

    Raises:
        KeyError: an option of `options` or `trial` has a name that is unknown.
    """
    features = features.astype(jnp.promote_types(features.dtype, jnp.float32))
    cut_key, deal_key, knockoff_key = jax.random.split(key, 3)
    with jax.default_matmul_precision("highest"):  # TPUs would round to bfloat16
        groups = choose_groups(features, labels, clean, plan)
        pieces = _without_repeats(cut_pieces(labels, groups, cut_key, plan), groups, labels, plan)
        halves, row, half_plan = deal_halves(pieces, deal_key, plan, mesh.size if mesh else 1)
        used, slot = halves.index >= 0, halves.slot

        points = _principal_scores(features, pieces, plan, options)
        paths = solve_pieces(points, halves._replace(index=row), half_plan, options, mesh)
        share = jnp.full(plan.classes_per_group, trial.share, points.dtype)
        sure = jax.vmap(keep_lowest, (0, 0, 0, None))(paths.entry, slot, used, share)
        fitted, known = fit_other_half(points[row], slot, sure, plan.classes_per_group)

    if scores is not None:
        scores = scores[halves.index[:, :, None], groups[halves.group][:, None]]
    scores = {
        "random": jax.random.uniform(knockoff_key, fitted.shape),
        "confident": fitted if scores is None else scores,
    }[trial.knockoffs]
    rival = knockoff_slots(scores, slot, known)
    statistic = jnp.where(used, compare_labels(fitted, slot, rival), 0)

    level = jnp.broadcast_to(jnp.asarray(level, statistic.dtype), plan.num_classes)
    if trial.scale_level:
        classes = plan.num_classes // plan.num_groups  # of the smallest group
        level *= (classes - 2) / (2 * classes)
    kept, threshold, lowest = _select(statistic, labels[halves.index], used, level, trial)
    # Ascending in suspicion, by sign and then by misfit. The map is its own inverse.
    suspicion = jnp.where(statistic < 0, 1 / statistic, statistic)
    suspicion = lowest_examination(suspicion, halves, len(labels))
    return KnockoffSet(
        clean=jnp.zeros(len(labels), bool).at[halves.index].max(kept),  # never at -1
        statistic=jnp.where(suspicion < 0, 1 / suspicion, suspicion),
        attained=jnp.any(threshold > 0, axis=0),
        lowest_level=jnp.min(lowest, axis=0),
    )


def _without_repeats(pieces, groups, labels, plan):
    """Drop repeats of over-sampled classes: such a row would be judged by a fit to itself."""
    if plan.per_class is None:
        return pieces
    size = jnp.bincount(labels, length=plan.num_classes)[groups[pieces.group]]
    nth = jnp.arange(plan.rows) % plan.per_class
    is_new = nth < jnp.take_along_axis(size, pieces.slot, axis=1)
    return pieces._replace(index=jnp.where(is_new, pieces.index, -1))


def deal_halves(
    pieces: Pieces, key: Array, plan: Plan, multiple_of: int = 1
) -> tuple[Pieces, Array, Plan]:
    """Deal each piece into two of half the rows; also where in the flattened table each row was.

    Shuffled class by class and dealt out in turn like cards, so that both halves hold every
    class of two rows or more. Halves 2p and 2p + 1 are those of piece p.
    """
    length = -(-plan.rows // (2 * multiple_of)) * multiple_of
    pad = ((0, 0), (0, 2 * length - plan.rows))
    index, slot = jnp.pad(pieces.index, pad, constant_values=-1), jnp.pad(pieces.slot, pad)
    random = jax.random.bits(key, index.shape)
    order = jnp.lexsort((random, jnp.where(index >= 0, slot, plan.classes_per_group)))

    def deal(table):
        table = jnp.take_along_axis(table, order, axis=1)
        return table.reshape(-1, length, 2).swapaxes(1, 2).reshape(-1, length)

    row = plan.rows * jnp.arange(plan.num_pieces)[:, None] + jnp.arange(2 * length)
    halves = Pieces(deal(index), deal(slot), jnp.repeat(pieces.group, 2))
    # A class is another one in the other half: twice as many classes, twice as many groups.
    twice = {"num_classes": 2 * plan.num_classes, "num_pieces": 2 * plan.num_pieces}
    return halves, jnp.where(halves.index >= 0, deal(row), -1), plan._replace(rows=length, **twice)


def _principal_scores(features, pieces, plan, options):
    """Scores of every row of every piece, of unit variance, [pieces * rows, dim].

    Both halves of a piece share them; labels play no part.
    """
    dim = min(options.pca_dim, features.shape[1])
    origin = point_nearby(features, jnp.ones(len(features)))
    blocks, exact = blocks_of(plan.rows), plan.per_class is None

    def scores_of(index, used):
        index = None if plan.is_whole else index
        basis = principal_basis(features, index, used, dim, origin=origin, exact=exact)
        return jax.vmap(blocks.join, in_axes=1, out_axes=1)(basis) * plan.rows**0.5

    scores = each(scores_of, pieces.index, pieces.index >= 0)
    return scores.reshape(-1, scores.shape[-1])


def fit_other_half(points: Array, slot: Array, sure: Array, num_slots: int) -> tuple[Array, Array]:
    """Predict each half by least squares on the sure rows of the other, [halves, rows, slots].

    Also returns which classes that fit knows, [halves, slots]. The pseudo-inverse leaves out
    directions in which the sure rows do not vary, so that few rows or a missing class do no harm.
    """
    design = jnp.concatenate([points, jnp.ones_like(points[..., :1])], axis=-1)  # intercept
    targets = (slot[..., None] == jnp.arange(num_slots)) & sure[..., None]
    weighted = jnp.swapaxes(design * sure[..., None], 1, 2)
    moments = weighted @ targets.astype(design.dtype)
    inverse = each(partial(jnp.linalg.pinv, hermitian=True), weighted @ design)
    other = jnp.arange(len(slot)) ^ 1
    return design @ (inverse @ moments)[other], targets.any(axis=1)[other]


def knockoff_slots(scores: Array, slot: Array, known: Array) -> Array:
    """The best-scored class but for the given one, [halves, rows].

    A class that the fit does not know would lose to any label. Where there is no other class,
    the label is its own knockoff, W = 0, and it is not kept.
    """
    allowed = (slot[..., None] != jnp.arange(known.shape[-1])) & known[:, None]
    best = jnp.argmax(jnp.where(allowed, scores, -jnp.inf), axis=-1)
    return jnp.where(allowed.any(axis=-1), best, slot)


def compare_labels(fitted: Array, slot: Array, rival: Array) -> Array:
    """W = min(Z, Z') sign(Z - Z'), [halves, rows].

    The paper's Z is the penalty at which a label enters the path of the mean shifts with beta
    fixed, min_gamma 1/2 ||R - gamma||^2 + penalty sum_i ||gamma_i||. Its rows do not interact and
    row i enters at the penalty ||R_i||: no path is needed, and without the grid of one there are
    no ties, and no Z = 0 for what is still zero at its end.
    """
    # Where both labels are wrong, W must be as likely as -W. With the paper's magnitude Z it is
    # not: a label that wins counts with the smaller of the two misfits and one that loses with the
    # larger, so that too few losers lie below T to stand for the winners, and the level is exceeded
    # several times over. The price of min(Z, Z'): one in c - 1 wrong labels meets the truth as its
    # knockoff and loses with a small misfit, so that at noise rate r no level much below
    # r / (1 - r) / (c - 1) is attained.
    tiny = jnp.finfo(fitted.dtype).tiny

    def misfit(slot):
        residual = (slot[..., None] == jnp.arange(fitted.shape[-1])) - fitted
        return jnp.sqrt(jnp.maximum(jnp.sum(residual**2, axis=-1), tiny))  # zero has no sign

    given, knockoff = misfit(slot), misfit(rival)
    return jnp.minimum(given, knockoff) * jnp.sign(given - knockoff)


def _select(statistic, label, used, level, trial):
    """Select rows [halves, rows]; also T and the lowest level of each class.

    A class has one threshold over the first halves of all pieces and another over the second.
    Given the fits, the labels of all first halves are independent; together with those that the
    fits were made from, they are not.
    """
    num_halves, length = statistic.shape

    def join(table):
        return jnp.swapaxes(table.reshape(-1, 2, length), 0, 1).reshape(2, -1)

    def part(table):
        return jnp.swapaxes(table.reshape(2, -1, length), 0, 1).reshape(num_halves, length)

    statistic, label, used = join(statistic), join(label), join(used)
    find = partial(thresholds, rule=trial.rule)
    threshold, lowest = jax.vmap(find, (0, 0, 0, None))(statistic, label, used, level)
    limit = jnp.take_along_axis(threshold, label, axis=1)
    wins = statistic < 0
    kept = wins & (-statistic <= limit)
    if {"none": False, "share": True}[trial.fallback]:
        misfit, share = jnp.where(wins, -statistic, jnp.inf), jnp.full_like(level, trial.share)
        best = jax.vmap(keep_lowest, (0, 0, 0, None))(misfit, label, used, share)
        kept |= wins & best & (limit == 0)
    return part(kept), threshold, lowest


def _attains(rate, level):
    return rate <= level * (1 + 1e-6)  # 5 / 50 > 5 * 0.02 in single precision


def _first_of_grid(lowest, level):
    """The released rule: the first of 0.02, 0.04, ..., level that keeps any example.

    So the data choose the level, up to a cap: it is not a bound set in advance.
    """
    grid = jnp.minimum(0.02 * jnp.arange(1, 51), level[:, None])
    step = jnp.sum(~_attains(lowest[:, None], grid), axis=1, keepdims=True)
    return jnp.take_along_axis(grid, jnp.minimum(step, 49), axis=1)[:, 0]


LEVEL_RULES = {"fixed": lambda lowest, level: level, "released": _first_of_grid}


def thresholds(
    statistic: Array,  # [rows], W
    label: Array,  # [rows]
    used: Array,  # [rows]
    level: Array,  # [num_classes]
    *,
    rule: str = "fixed",
) -> tuple[Array, Array]:
    """T of each class, zero if none attains the level, and the lowest attainable level.

    Sorted by class and |W|, the counts up to each row are running sums. Both answers are found at
    rows with W < 0: anywhere else T could shrink and keep the same examples at a lower rate.
    """
    num_classes = len(level)
    label = jnp.where(used, label, num_classes)
    order = jnp.lexsort((jnp.abs(statistic), label))
    statistic, label = statistic[order], label[order]
    size = jnp.abs(statistic)
    start = jnp.searchsorted(label, jnp.arange(num_classes + 1))
    ends_tie = (label[1:] != label[:-1]) | (size[1:] != size[:-1])
    ends_tie = jnp.append(ends_tie, True)

    def count_within(which):
        """#{j in the class: which, |W_j| <= |W_i|} for every row i: ties count together."""
        running = jnp.cumsum(which)
        before = (running - which)[start]
        running = lax.cummin(jnp.where(ends_tie, running, len(which)), reverse=True)
        return running - before[label]

    rate = (1 + count_within(statistic > 0)) / jnp.maximum(count_within(statistic < 0), 1)
    rate = jnp.where(statistic < 0, rate.astype(level.dtype), jnp.inf)
    lowest = jnp.full(num_classes, jnp.inf, level.dtype).at[label].min(rate, mode="drop")
    level = jnp.append(LEVEL_RULES[rule](lowest, level), 0)  # nothing for rows that are not used
    passing = jnp.where(_attains(rate, level[label]), size, 0)
    return jnp.zeros(num_classes, size.dtype).at[label].max(passing, mode="drop"), lowest
