"""Split, solve and select as one XLA program: features and given labels in, clean set out."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from spr_jax.devices import AXIS
from spr_jax.solver.basis import point_nearby, principal_basis
from spr_jax.solver.blocks import blocks_of, each
from spr_jax.solver.groups import choose_groups
from spr_jax.solver.mean_shift import mean_shift_path
from spr_jax.solver.pieces import Pieces, Plan, cut_pieces, plan_pieces
from spr_jax.solver.top_share import SELECTORS, lowest_examination

__all__ = ["CleanSet", "Options", "Plan", "Rows", "clean_set", "plan_pieces", "solve_pieces"]


class Options(NamedTuple):
    """Options of the solver and of the selection; hashable, static when jitted."""

    pca_dim: int = 10
    intercept: bool = False  # needed where classes differ in size; balanced pieces do without
    penalty: str = "l21"  # or "l1", element by element
    num_penalties: int = 100
    penalty_ratio: float = 1e-3  # last penalty over first
    tolerance: float = 1e-3  # on the relative duality gap of each penalty
    max_rounds: int = 1000  # for each penalty
    ties: str = "interpolated"  # or "released": grid penalty, then visiting order
    select: str = "piece"  # in each piece, then the union; or "class": over the whole data
    report: Callable | None = None  # called with the fraction of examples that have entered


DEFAULTS = Options()


class Rows(NamedTuple):
    """Results of the paths for the rows of all pieces; see `mean_shift.Path`."""

    entry: Array  # [pieces, rows]
    grid_entry: Array  # [pieces, rows]
    duality_gap: Array  # [pieces]
    rounds: Array  # [pieces]


class CleanSet(NamedTuple):
    clean: Array  # [N] bool, in the order of the data set
    entry_penalty: Array  # [N], penalty at which the example enters the path: larger, more suspect
    duality_gap: Array  # [], largest relative duality gap of any penalty of any piece
    rounds: Array  # [], largest number of passes that a piece took


@partial(jax.jit, static_argnames=("plan", "options", "mesh"))
def clean_set(
    features: Array,  # [N, d]
    labels: Array,  # [N], as given, possibly wrong
    key: Array,
    clean: Array | None = None,  # [N] bool, the last clean set, for the prototypes
    keep: Array | float = 0.5,  # share of each class, or one share per class [num_classes]
    *,
    plan: Plan,  # from plan_pieces(labels, ...)
    options: Options = DEFAULTS,
    mesh: Mesh | None = None,
) -> CleanSet:
    """One pass of SPR: find the examples whose label their features explain.

    Args:
        features: one row per example; float32 at least.
        labels: class numbers below `plan.num_classes`.
        key: draws the order in which examples are dealt to pieces.
        clean: the last clean set; only with several class groups, which it helps to form.
        keep: share of each class to call clean.
        plan: shapes of the pieces; static, so that epochs share one compilation.
        options: how pieces are solved and the share is taken.
        mesh: devices to spread the pieces over, or else the rows of whole data.

    Returns:
        The clean mask and the ranking behind it, with a certificate of the solution.

    Raises:
        KeyError: an option of `options` has a name that is unknown.
    """
    features = features.astype(jnp.promote_types(features.dtype, jnp.float32))
    with jax.default_matmul_precision("highest"):  # TPUs would round to bfloat16
        groups = choose_groups(features, labels, clean, plan)
        pieces = cut_pieces(labels, groups, key, plan)
        rows = solve_pieces(features, pieces, plan, options, mesh)

    keep = jnp.broadcast_to(jnp.asarray(keep, rows.entry.dtype), (plan.num_classes,))
    ranked = {"interpolated": rows.entry, "released": rows.grid_entry}[options.ties]
    return CleanSet(
        clean=SELECTORS[options.select](ranked, pieces, groups, labels, keep),
        entry_penalty=lowest_examination(rows.entry, pieces, len(labels)),
        duality_gap=rows.duality_gap.max(),
        rounds=rows.rounds.max(),
    )


def solve_pieces(
    features: Array, pieces: Pieces, plan: Plan, options: Options, mesh: Mesh | None = None
) -> Rows:
    """Solve all pieces; with a mesh, spread them, or else the rows of whole data, over it."""
    index, used, slot = pieces.index, pieces.index >= 0, pieces.slot
    solve = partial(_solve_pieces, plan=plan, options=options)
    if mesh is None:
        return solve(features, index, used, slot)
    by_rows = plan.per_class is None
    if plan.is_whole:  # the features themselves are spread
        short = -len(features) % mesh.size
        features = jnp.pad(features, ((0, short), (0, 0))) if short else features
        index, used, slot = (jnp.pad(table, ((0, 0), (0, short))) for table in (index, used, slot))
    table, piece = (P(None, AXIS), P()) if by_rows else (P(AXIS), P(AXIS))
    entry, grid_entry, *rest = jax.shard_map(
        partial(solve, axis=AXIS if by_rows else None),
        mesh=mesh,
        in_specs=(P(AXIS) if plan.is_whole else P(), table, table, table),
        out_specs=Rows(table, table, piece, piece),  # type: ignore[arg-type]
        check_vma=False,
    )(features, index, used, slot)
    return Rows(entry[:, : plan.rows], grid_entry[:, : plan.rows], *rest)


def _solve_pieces(features, index, used, slot, *, plan, options, axis=None) -> Rows:
    dim = min(options.pca_dim, features.shape[1])
    if plan.is_whole:
        origin = point_nearby(features, used[0], axis)
    else:
        origin = point_nearby(features, jnp.ones(len(features)))

    def basis_of(index, used):
        index = None if plan.is_whole else index
        exact = plan.per_class is None
        return principal_basis(features, index, used, dim, origin=origin, exact=exact, axis=axis)

    blocks = blocks_of(slot.shape[1])

    def solve(basis, used, slot):
        slot, used = blocks.cut(slot), blocks.cut(used) & blocks.fresh
        targets = slot[:, None] == jnp.arange(plan.classes_per_group)[:, None]
        targets &= used[:, None]
        if options.intercept:  # orthogonal to the scores, which have zero mean
            count = used.sum() if axis is None else lax.psum(used.sum(), axis)
            constant = used / jnp.sqrt(jnp.maximum(count, 1)).astype(basis.dtype)
            basis = jnp.concatenate([basis, constant[:, None]], axis=1)
        path = mean_shift_path(
            basis,
            targets.astype(basis.dtype),
            kind=options.penalty,
            num_penalties=options.num_penalties,
            penalty_ratio=options.penalty_ratio,
            tolerance=options.tolerance,
            max_rounds=options.max_rounds,
            report=options.report if plan.per_class is None else None,
            axis=axis,
        )
        rows = map(blocks.join, (path.entry, path.grid_entry))
        return Rows(*rows, path.duality_gap, path.rounds)

    if plan.per_class is None:  # a few large pieces, one after the other
        return lax.map(lambda a: solve(basis_of(*a[:2]), *a[1:]), (index, used, slot))
    return jax.vmap(solve)(each(basis_of, index, used), used, slot)
