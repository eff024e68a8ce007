"""Split, solve and select as one XLA program: features and given labels in, clean set out."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from spr_jax.solver.basis import principal_basis
from spr_jax.solver.groups import class_prototypes, group_classes
from spr_jax.solver.mean_shift import mean_shift_path
from spr_jax.solver.pieces import Pieces, Plan, cut_pieces, plan_pieces
from spr_jax.solver.select import clean_by_class, clean_by_piece

__all__ = ["CleanSet", "Options", "Plan", "clean_set", "device_mesh", "plan_pieces"]


class Options(NamedTuple):
    """How a piece is solved and what is kept of it; hashable, static when jitted."""

    pca_dim: int = 10
    penalty: str = "l21"  # or "l1", element by element
    num_penalties: int = 100
    penalty_ratio: float = 1e-3  # last penalty over first
    tolerance: float = 1e-3  # on the relative duality gap of each penalty
    max_rounds: int = 1000  # for each penalty
    ties: str = "interpolated"  # or "released": grid penalty, then visiting order
    select: str = "piece"  # in each piece, then the union; or "class": over the whole data
    report: Callable | None = None  # called with the share of examples that have entered


class CleanSet(NamedTuple):
    clean: Array  # [N] bool, in the order of the data set
    entry: Array  # [N], penalty at which the example left zero: larger, more suspect
    suggested: Array  # [N], the class of its group that the robust fit gives
    gap: Array  # [], largest relative duality gap of any penalty of any piece
    rounds: Array  # [], largest number of passes that a piece took


def device_mesh(devices=None) -> Mesh:
    """All local devices in a row: pieces, or the rows of a whole data set, spread over them."""
    devices = devices or jax.local_devices()
    return jax.make_mesh(
        (len(devices),), ("shards",), (jax.sharding.AxisType.Auto,), devices=devices
    )


@partial(jax.jit, static_argnames=("plan", "options", "mesh"))
def clean_set(
    features: Array,  # [N, d]
    labels: Array,  # [N], as given, possibly wrong
    key: Array,
    clean: Array | None = None,  # [N] bool, the last clean set, for the prototypes
    keep: Array | float = 0.5,  # share of each class, or one share a class [num_classes]
    *,
    plan: Plan,  # from plan_pieces(labels, ...)
    options: Options = Options(),
    mesh: Mesh | None = None,
) -> CleanSet:
    """One pass of SPR: which examples have a label that their features explain."""
    with jax.default_matmul_precision("highest"):  # TPUs would round to bfloat16
        if plan.num_groups == 1:
            groups = jnp.arange(plan.num_classes)[None]
        else:
            clean = jnp.ones(len(labels), bool) if clean is None else clean
            prototypes = class_prototypes(features, labels, clean, plan.num_classes)
            groups = group_classes(prototypes, plan.classes_per_group)
        pieces = cut_pieces(labels, groups, key, plan)
        entry, grid_entry, best_slot, gap, rounds = _solve(features, pieces, plan, options, mesh)

    keep = jnp.broadcast_to(jnp.asarray(keep, entry.dtype), (plan.num_classes,))
    ranked = grid_entry if options.ties == "released" else entry
    if options.select == "piece":
        is_clean = clean_by_piece(ranked, pieces, groups[pieces.group], keep)
    else:
        is_clean = clean_by_class(_lowest(ranked, pieces), labels, keep)
    classes = jnp.broadcast_to(groups[pieces.group][:, None], (*entry.shape, groups.shape[1]))
    suggested = jnp.take_along_axis(classes, best_slot[..., None], axis=2).ravel()[pieces.first]
    return CleanSet(is_clean, _lowest(entry, pieces), suggested, gap.max(), rounds.max())


def _lowest(values, pieces):
    """The least suspicious of an example's examinations, [pieces, rows] -> [N]."""
    nowhere = len(pieces.first)
    index = jnp.where(pieces.index >= 0, pieces.index, nowhere)
    return jnp.full(nowhere, jnp.inf, values.dtype).at[index].min(values, mode="drop")


def _solve(features, pieces: Pieces, plan: Plan, options: Options, mesh: Mesh | None):
    """Every row's entry, grid entry and best slot [pieces, rows]; every piece's gap, rounds."""
    is_whole, n = plan.per_class is None, len(features)
    used, slot = pieces.index >= 0, pieces.slot
    solve = partial(_solve_pieces, plan=plan, options=options)
    if mesh is None:
        return solve(features, pieces.index, used, slot)

    table = P(None, "shards") if is_whole else P("shards")
    if plan.is_whole:  # the rows of the features themselves are spread
        short = -n % mesh.size
        features = jnp.pad(features, ((0, short), (0, 0))) if short else features
        index, used, slot = (jnp.pad(a, ((0, 0), (0, short))) for a in (pieces.index, used, slot))
    else:
        index = pieces.index
    results = jax.shard_map(
        partial(solve, axis="shards" if is_whole else None),
        mesh=mesh,
        in_specs=(P("shards") if plan.is_whole else P(), table, table, table),
        out_specs=(table, table, table, *(P() if is_whole else P("shards"),) * 2),
        check_vma=False,
    )(features, index, used, slot)
    return *(rows[:, : plan.rows] for rows in results[:3]), *results[3:]


def _solve_pieces(features, index, used, slot, *, plan, options, axis=None):
    dim = min(options.pca_dim, features.shape[1])

    def basis_of(index, used):
        index = None if plan.is_whole else index
        exact = plan.per_class is None
        return principal_basis(features, index, used, dim, exact=exact, axis=axis)

    def solve(basis, used, slot):
        targets = (slot == jnp.arange(plan.classes_per_group)[:, None]) & used
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
        best_slot = jnp.argmax(path.beta @ basis, axis=0)
        return path.entry, path.grid_entry, best_slot, path.gap, path.rounds

    return jax.vmap(solve)(_each(basis_of, index, used), used, slot)


def _each(f, *arrays):
    """f for every piece: at once on accelerators, one after the other on the CPU.

    XLA's CPU backend hands batched factorizations to its thread pool and waits for it, which
    is slower than a loop and never returns when several virtual devices do it at a time.
    """
    return lax.platform_dependent(
        *arrays, cpu=lambda *arrays: lax.map(lambda a: f(*a), arrays), default=jax.vmap(f)
    )
