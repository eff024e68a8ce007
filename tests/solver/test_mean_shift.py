from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_piece
from jax import lax
from reference import penalties, projection, row_by_row
from sklearn.linear_model import enet_path

from spr_jax.solver.blocks import Blocks
from spr_jax.solver.mean_shift import (
    is_unfinished,
    look_at,
    mean_shift_path,
    one_round,
    start_walk,
)


def path_of(basis, targets, **options):
    """Path of one piece, Q [p, n] and Y [c, n], in one block."""
    path = mean_shift_path(basis[None], targets[None], **options)
    return path._replace(entry=path.entry[0], grid_entry=path.grid_entry[0])


def solve(scores, targets, tolerance=1e-12, **options):
    """Path of one piece given as in the paper, scores [n, p] and targets [n, c]."""
    basis, _ = np.linalg.qr(scores)
    walk = jax.jit(partial(path_of, tolerance=tolerance, **options))
    return jax.device_get(walk(basis.T, targets.T)), basis


@partial(jax.jit, static_argnames=("kind", "num_penalties", "penalty_ratio", "tolerance"))
def walk_along(basis, targets, kind="l21", num_penalties=100, penalty_ratio=1e-3, tolerance=1e-12):
    """The same rounds, noting every solution: betas [num_penalties, c, p]."""
    piece, ratio = (
        look_at(basis[None], targets[None], kind),
        penalty_ratio ** (1 / (num_penalties - 1)),
    )
    advance = partial(one_round, piece, ratio=ratio, tolerance=tolerance, max_rounds=1000)

    def note(carry):
        walk, betas = carry
        after = advance(walk)
        return after, betas.at[walk.step].set(after.solution)  # overwritten until it is solved

    betas = jnp.tile(piece.ols, (num_penalties, 1, 1))
    unfinished = partial(is_unfinished, piece, num_penalties=num_penalties)
    start = start_walk(piece, ratio), betas
    return lax.while_loop(lambda carry: unfinished(carry[0]), note, start)[1]


def solutions(scores, targets, **options):
    """betas of a piece given as in the paper."""
    basis, _ = np.linalg.qr(scores)
    return np.asarray(walk_along(basis.T, targets.T, **options))


def shifts(scores, targets, grid, **options):
    """gamma [num_penalties, n, c] from the betas: the residual, shortened by the penalty."""
    basis, _ = np.linalg.qr(scores)
    residual = targets - np.einsum("np,kcp->knc", basis, solutions(scores, targets, **options))
    norms = np.linalg.norm(residual, axis=2, keepdims=True)
    return residual * np.maximum(1 - grid[:, None, None] / np.maximum(norms, 1e-300), 0)


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
def test_path_matches_sklearn(seed):
    scores, targets = make_piece(100, 10, 10, seed)
    n, grid = len(scores), penalties(scores, targets)
    design = projection(scores)
    alphas, coefficients, _ = enet_path(
        design, design @ targets, l1_ratio=1.0, tol=1e-10, max_iter=100_000
    )
    np.testing.assert_allclose(n * alphas, grid, rtol=1e-9)

    path, _ = solve(scores, targets)
    theirs = coefficients.transpose(2, 1, 0)
    last = np.flatnonzero(grid >= path.entry.min())[-1]  # ours ends when all have entered
    ours = shifts(scores, targets, grid)[: last + 1]
    np.testing.assert_allclose(ours, theirs[: last + 1], atol=1e-4)
    entered = grid[:, None] <= path.grid_entry * (1 + 1e-9)
    assert (entered == theirs.any(axis=2)).mean() >= 0.999


@pytest.mark.slow
def test_path_matches_row_by_row_descent(piece):
    scores, targets = piece
    grid = penalties(scores, targets, num=20, ratio=0.05)
    reference = row_by_row(scores, targets, grid)
    coarse = {"num_penalties": 20, "penalty_ratio": 0.05}
    path, _ = solve(scores, targets, **coarse)
    last = np.flatnonzero(grid >= path.entry.min())[-1]
    ours = shifts(scores, targets, grid, **coarse)[: last + 1]
    np.testing.assert_allclose(ours, reference[: last + 1], atol=1e-6)
    entered = grid[:, None] <= path.grid_entry * (1 + 1e-9)
    np.testing.assert_array_equal(entered[1:], reference.any(axis=2)[1:])  # [0]: 0 or rounding


def test_l1_matches_sklearn_column_by_column():
    scores, targets = make_piece(80, 8, 4)
    design = projection(scores)
    path, _ = solve(scores, targets, kind="l1", num_penalties=50)
    largest = np.abs(design @ targets).max()
    grid = largest * np.logspace(0, -3, 50)
    nonzero = np.zeros((50, 80), bool)
    for column in targets.T:
        _, coefficients, _ = enet_path(
            design, design @ column, l1_ratio=1.0, alphas=grid / 80, tol=1e-10, max_iter=100_000
        )
        nonzero |= coefficients.T != 0
    entered = grid[:, None] <= path.grid_entry * (1 + 1e-9)
    assert (entered == nonzero).mean() >= 0.999


def test_l21_with_one_class_is_l1():
    scores, targets = make_piece(50, 5, 3)
    one = targets[:, :1] - 0.3  # every row has something to explain
    rows, _ = solve(scores, one, kind="l21")
    elements, _ = solve(scores, one, kind="l1")
    np.testing.assert_allclose(rows.entry, elements.entry, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["l21", "l1"])
def test_gap_bounds_the_distance_to_the_minimum(piece, kind):
    """The certificate is honest: the primal value is within it of the best one."""
    scores, targets = piece
    loose, basis = solve(scores, targets, tolerance=1e-2, kind=kind)
    tight, _ = solve(scores, targets, tolerance=1e-13, kind=kind)
    energy = np.sum((projection(scores) @ targets) ** 2)
    residual = projection(scores) @ targets
    start = np.linalg.norm(residual, axis=1) if kind == "l21" else np.abs(residual)
    grid = start.max() * np.logspace(0, -3, 100)

    def primal(beta, penalty):
        residual = targets - basis @ beta.T
        size = np.linalg.norm(residual, axis=1) if kind == "l21" else np.abs(residual)
        huber = np.where(size <= penalty, size**2 / 2, penalty * size - penalty**2 / 2)
        return huber.sum()

    last = np.flatnonzero(grid >= max(loose.entry.min(), tight.entry.min()))[-1]
    betas = (solutions(scores, targets, tolerance=t, kind=kind) for t in (1e-2, 1e-13))
    excess = [
        primal(a, penalty) - primal(b, penalty)
        for a, b, penalty in zip(*betas, grid[:last], strict=False)
    ]
    assert 1e-13 < loose.duality_gap <= 1e-2
    assert tight.duality_gap <= 1e-13
    assert max(excess) > 1e-6 * energy  # the loose one really is loose
    assert max(excess) <= loose.duality_gap * energy


def test_entry_lies_between_grid_points_without_ties(piece):
    path, _ = solve(*piece)
    ratio = 1e-3 ** (1 / 99)
    assert (path.grid_entry > 0).all()
    assert (path.entry >= path.grid_entry * (1 - 1e-12)).all()
    assert (path.entry <= path.grid_entry / ratio * (1 + 1e-12)).all()
    assert len(np.unique(path.entry)) == len(path.entry)
    assert len(np.unique(path.grid_entry)) < len(path.grid_entry)


@pytest.mark.slow
def test_interpolated_entry_approaches_that_of_a_fine_grid(piece):
    coarse, _ = solve(*piece, num_penalties=100)
    fine, _ = solve(*piece, num_penalties=3000)
    np.testing.assert_allclose(coarse.entry, fine.entry, rtol=1e-2)
    off_the_grid = np.abs(coarse.entry / fine.entry - 1).mean()
    on_the_grid = np.abs(coarse.grid_entry / fine.entry - 1).mean()
    assert off_the_grid < on_the_grid / 10


def test_wrong_labels_enter_first():
    generator = np.random.default_rng(0)
    true = np.repeat([0, 1, 2], 30)
    scores = np.eye(3)[true] + 0.1 * generator.standard_normal((90, 3))
    given = true.copy()
    wrong = [3, 40, 77]
    given[wrong] = (true[wrong] + 1) % 3
    path, _ = solve(scores - scores.mean(axis=0), np.eye(3)[given], tolerance=1e-4)
    assert set(np.argsort(-path.entry)[:3]) == set(wrong)


def test_permuting_examples_permutes_the_answer(piece):
    scores, targets = piece
    order = np.random.default_rng(0).permutation(len(scores))
    straight, _ = solve(scores, targets)
    permuted, _ = solve(scores[order], targets[order])
    np.testing.assert_allclose(permuted.entry, straight.entry[order], atol=1e-9)


def test_pieces_do_not_see_each_other():
    """A piece gives the same answer alone and next to others, however hard they are."""
    pieces = [make_piece(60, 6, 5, seed) for seed in range(3)]
    basis = jnp.stack([jnp.asarray(np.linalg.qr(scores)[0].T) for scores, _ in pieces])
    targets = jnp.stack([jnp.asarray(targets.T) for _, targets in pieces])
    together = jax.jit(jax.vmap(path_of))(basis, targets)
    for k in range(3):
        alone = jax.jit(path_of)(basis[k], targets[k])
        np.testing.assert_allclose(together.entry[k], alone.entry, rtol=1e-9)
        assert together.rounds[k] == alone.rounds


@pytest.mark.parametrize("length", [pytest.param(60, marks=pytest.mark.slow), 25, 7])
def test_blocks_of_examples_add_up(piece, length):
    scores, targets = piece
    whole, basis = solve(scores, targets)
    blocks = Blocks(60, -(-60 // length), length)
    in_blocks = jax.vmap(blocks.cut, out_axes=1)
    fresh = blocks.fresh[:, None]
    path = jax.jit(partial(mean_shift_path, tolerance=1e-12))(
        in_blocks(basis.T) * fresh, in_blocks(targets.T) * fresh
    )
    np.testing.assert_allclose(blocks.join(path.entry), whole.entry, atol=1e-9)


def test_path_ends_when_every_row_has_entered(piece):
    path, _ = solve(*piece, tolerance=1e-4)
    betas = solutions(*piece, tolerance=1e-4)
    grid = penalties(*piece)
    ended = np.flatnonzero(grid <= path.entry.min())[0]
    start = betas[0]
    assert (betas[ended + 1 :] == start).all()  # never reached
    assert (betas[1:ended] != start).any(axis=(1, 2)).all()


def test_rows_that_never_enter_rank_below_the_path(piece):
    path, _ = solve(*piece, penalty_ratio=0.5)
    stays = path.grid_entry == 0
    assert 0 < stays.sum() < len(stays)
    assert path.entry[stays].max() < path.entry[~stays].min()


def test_rounds_are_bounded(piece):
    path, _ = solve(*piece, tolerance=0.0, max_rounds=3, num_penalties=10)
    assert path.rounds <= 3 * 10
    assert path.duality_gap > 0


@pytest.mark.parametrize(
    "targets",
    [np.zeros((5, 40)), np.eye(5)[np.arange(40) % 5].T],
    ids=["no row is used", "the features explain every label"],
)
def test_nothing_to_explain_gives_no_entries(targets):
    basis = np.linalg.qr(np.eye(5)[np.arange(40) % 5])[0].T
    path = jax.jit(path_of)(basis, targets)
    assert path.rounds == 0
    np.testing.assert_allclose(path.entry, 0, atol=1e-12)


def test_duplicate_rows_enter_together(piece):
    scores, targets = piece
    path, _ = solve(np.repeat(scores, 2, axis=0), np.repeat(targets, 2, axis=0))
    np.testing.assert_allclose(path.entry[::2], path.entry[1::2], atol=1e-9)
