"""clean_set: split, solve and select as one program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_data
from reference import pca_scores, penalties, released_selection, row_by_row

from spr_jax.devices import device_mesh
from spr_jax.solver import Options, clean_set, plan_pieces
from spr_jax.solver.groups import choose_groups
from spr_jax.solver.pieces import cut_pieces


def run(features, labels, seed=0, keep=0.5, clean=None, mesh=None, options=None, **plan):
    options = options or Options(pca_dim=6)
    plan = plan_pieces(labels, multiple_of=mesh.size if mesh else 1, **plan)
    found = clean_set(
        jnp.asarray(features),
        jnp.asarray(labels),
        jax.random.key(seed),
        clean,
        keep,
        plan=plan,
        options=options,
        mesh=mesh,
    )
    return jax.device_get(found)


def pieces_of(labels, num_classes, plan):
    cut = jax.jit(cut_pieces, static_argnums=3)
    return jax.device_get(cut(labels, jnp.arange(num_classes)[None], jax.random.key(0), plan))


def precision(clean, given, true):
    return (given == true)[clean].mean()


SPLIT, WHOLE, SMALL_GROUPS = {"per_class": 10}, {}, {"classes_per_group": 3}
SHAPES = [
    pytest.param(SPLIT, id="split"),
    pytest.param(SPLIT | SMALL_GROUPS, id="split in groups"),
    pytest.param(WHOLE, id="whole"),
    pytest.param(WHOLE | SMALL_GROUPS, id="whole in groups"),
]


def fast_for(*fast):
    """All shapes, those that are not `fast` in the slow tier."""
    slow = [shape for shape in SHAPES if shape.id not in fast]
    slow = [pytest.param(*shape.values, id=shape.id, marks=pytest.mark.slow) for shape in slow]
    return [shape for shape in SHAPES if shape.id in fast] + slow


@pytest.mark.parametrize("plan", SHAPES)
def test_clean_labels_are_right(data, plan):
    features, given, true = data
    found = run(features, given, **plan)
    # Of 0.7; two small classes cannot tell an error that belongs to neither.
    least = 0.75 if "classes_per_group" in plan else 0.95
    assert precision(found.clean, given, true) > least
    assert found.duality_gap <= 1e-3
    assert 0.5 <= found.clean.mean() + 0.01 <= 0.65


@pytest.mark.parametrize("plan", fast_for("split in groups", "whole"))
def test_answer_is_one_program_without_host_round_trips(data, plan):
    features, given, _ = data
    plan = plan_pieces(given, **plan)
    options = Options(pca_dim=6)
    device = [jnp.asarray(features), jnp.asarray(given), jax.random.key(0)]
    clean, keep = jnp.ones(len(given), bool), jnp.asarray(0.5)
    program = clean_set.lower(*device, clean, keep, plan=plan, options=options).compile()
    assert "callback" not in program.as_text()
    with jax.transfer_guard("disallow"):
        found = program(*device, clean, keep)
        again = program(*device, found.clean, keep)  # next epoch: other clean set, same shapes
        jax.block_until_ready(again)
    assert found.clean.shape == again.clean.shape == (len(given),)


@pytest.mark.slow
def test_epochs_share_one_compilation(data):
    features, given, _ = data
    plan = {"per_class": 10, "classes_per_group": 3}
    options = Options(pca_dim=6, num_penalties=90)  # not used by another test
    before = clean_set._cache_size()
    clean = jnp.ones(len(given), bool)
    for epoch in range(3):
        found = run(features + epoch, given, epoch, clean=clean, options=options, **plan)
        clean = jnp.asarray(found.clean)
    assert clean_set._cache_size() == before + 1


@pytest.mark.parametrize("plan", fast_for("split", "whole"))
@pytest.mark.parametrize(  # rows that do and do not divide over the devices
    "n", [pytest.param(400, marks=pytest.mark.slow), 401]
)
def test_two_devices_equal_one(plan, n):
    features, given, _ = make_data(n)
    assert jax.local_device_count() == 2
    one = run(features, given, **plan)
    two = run(features, given, mesh=device_mesh(), **plan)
    np.testing.assert_array_equal(two.clean, one.clean)
    np.testing.assert_allclose(two.entry_penalty, one.entry_penalty, atol=1e-9)
    np.testing.assert_allclose(two.duality_gap, one.duality_gap, rtol=1e-6)


@pytest.mark.slow
def test_whole_data_equals_one_big_piece():
    """Classes of equal size, so that the balanced piece holds each example once."""
    features, _, _ = make_data(200)
    labels = (np.arange(200) % 4).astype(np.int32)
    whole = run(features, labels)
    piece = run(features, labels, per_class=50)
    np.testing.assert_allclose(piece.entry_penalty, whole.entry_penalty, atol=1e-9)
    np.testing.assert_array_equal(piece.clean, whole.clean)


def test_permuting_examples_permutes_the_answer(data):
    features, given, _ = data
    order = np.random.default_rng(1).permutation(len(given))
    straight = run(features, given)
    permuted = run(features[order], given[order])
    np.testing.assert_allclose(permuted.entry_penalty, straight.entry_penalty[order], atol=1e-9)
    np.testing.assert_array_equal(permuted.clean, straight.clean[order])


def test_clean_mask_is_in_dataset_order():
    """The released code marks positions of the visiting order as if they were examples."""
    features, given, true = make_data(2000, rate=0.4)
    found = run(features, given, per_class=10)
    plan = plan_pieces(given, per_class=10)
    pieces = pieces_of(given, 4, plan)
    visited = pieces.index.ravel()
    _, visited = np.unique(visited, return_index=True)
    order = np.argsort(visited)  # position in the visiting order -> example
    as_positions = found.clean[order]
    base_rate = (given == true).mean()
    assert precision(found.clean, given, true) > base_rate + 0.3
    assert abs(precision(as_positions, given, true) - base_rate) < 0.05


@pytest.mark.slow
def test_released_selection_in_slow_numpy():
    """Every piece: exact PCA, row-by-row path, the released walk; then the union."""
    features, given, _ = make_data(90, 8, 3, seed=3)
    options = Options(
        pca_dim=4, num_penalties=15, penalty_ratio=0.03, tolerance=1e-12, ties="released"
    )
    found = run(features, given, per_class=10, options=options)
    plan = plan_pieces(given, per_class=10)
    pieces = pieces_of(given, 3, plan)
    clean = np.zeros(90, bool)
    for index, slot in zip(pieces.index, pieces.slot, strict=True):
        scores, targets = pca_scores(features[index], 4), np.eye(3)[slot]
        grid = penalties(scores, targets, 15, 0.03)
        nonzero = row_by_row(scores, targets, grid, tolerance=1e-11).any(axis=2)
        clean[index[released_selection(nonzero, slot, quota=5)]] = True
    np.testing.assert_array_equal(found.clean, clean)


def test_share_kept_may_differ_by_class(data):
    features, given, _ = data
    shares = np.array([0.2, 0.4, 0.6, 0.8])
    found = run(features, given, keep=jnp.asarray(shares))
    kept = [found.clean[given == k].mean() for k in range(4)]
    np.testing.assert_allclose(kept, shares, atol=0.02)


def test_selection_over_the_whole_data_keeps_exact_shares(data):
    features, given, _ = data
    found = run(features, given, options=Options(pca_dim=6, select="class"), per_class=10, keep=0.3)
    for k in range(4):
        assert found.clean[given == k].sum() == int(0.3 * (given == k).sum() + 1e-9)


@pytest.mark.slow
def test_l1_penalty_finds_errors_too(data):
    features, given, true = data
    found = run(features, given, options=Options(pca_dim=6, penalty="l1"), per_class=10)
    assert precision(found.clean, given, true) > 0.9


def degenerate(name):
    features, given, _ = make_data(60, 12, 3)
    if name == "rank-deficient":
        features = np.repeat(features[:, :2], 6, axis=1)
    elif name == "constant features":
        features = np.ones_like(features)
    elif name == "duplicate rows":
        features = np.repeat(features[:20], 3, axis=0)
    elif name == "one example in a class":
        given = np.where(given == 2, 1, given).astype(np.int32)
        given[5] = 2
    elif name == "more features than rows":
        features = np.random.default_rng(0).standard_normal((60, 300))
    return features, given


@pytest.mark.parametrize("per_class", [10, None])
@pytest.mark.parametrize(
    "name",
    [
        "rank-deficient",
        "constant features",
        "duplicate rows",
        "one example in a class",
        "more features than rows",
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_degenerate_data_gives_a_finite_answer(name, per_class, dtype):
    features, given = degenerate(name)
    found = run(features.astype(dtype), given, per_class=per_class, options=Options(pca_dim=100))
    assert np.isfinite(found.entry_penalty).all()
    assert found.duality_gap <= 1e-3
    for k in range(3):
        assert found.clean[given == k].sum() >= max(1, (given == k).sum() // 2)


@pytest.mark.parametrize("per_class", [10, None])
@pytest.mark.parametrize(
    ("num_classes", "size"),
    [(7, 3), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((3, 2), (5, 2), (4, 1)))],
)
def test_small_groups_find_errors_and_leave_no_class_alone(num_classes, size, per_class):
    features, given, true = make_data(200, 12, num_classes, separation=3.0)
    cut = {"classes_per_group": size, "per_class": per_class}
    groups = choose_groups(
        jnp.asarray(features), jnp.asarray(given), None, plan_pieces(given, **cut)
    )
    sizes = np.sum(groups >= 0, axis=1)
    assert sizes.sum() == num_classes and 2 <= sizes.min() and sizes.max() <= max(size, 3)
    found = run(features, given, **cut)
    assert precision(found.clean, given, true) > precision(np.ones(200, bool), given, true)


@pytest.mark.slow
def test_intercept_bears_unequal_class_sizes():
    generator = np.random.default_rng(0)
    true = np.repeat([0, 1, 2, 3], [1500, 300, 100, 100])
    centres = 2 * generator.standard_normal((4, 16))
    features = centres[true] + generator.standard_normal((2000, 16))
    wrong = generator.random(2000) < 0.05
    given = np.where(wrong, (true + generator.integers(1, 4, 2000)) % 4, true).astype(np.int32)
    hits = []
    for intercept in (False, True):
        for mesh in (None, device_mesh()):
            found = run(
                features, given, options=Options(pca_dim=16, intercept=intercept), mesh=mesh
            )
            most_suspect = np.argsort(-found.entry_penalty)[: wrong.sum()]
            hits.append((given != true)[most_suspect].mean())
    assert max(hits[:2]) < 0.95
    assert min(hits[2:]) > 0.98


@pytest.mark.slow
def test_devices_agree_on_features_far_from_the_origin():
    """Also where rows are filled up to divide over the devices."""
    features, given, _ = make_data(401, dtype=np.float32)
    features += 1e4
    one, two = (run(features, given, mesh=mesh) for mesh in (None, device_mesh()))
    np.testing.assert_allclose(two.entry_penalty, one.entry_penalty, atol=2e-3)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("plan", fast_for("split"))
def test_program_lowers_for_accelerators(data, plan, platform):
    features, given, _ = data
    plan = plan_pieces(given, **plan)
    call = jax.jit(lambda *arrays: clean_set(*arrays, plan=plan, options=Options(pca_dim=6)))
    arrays = jnp.asarray(features, jnp.float32), jnp.asarray(given), jax.random.key(0)
    exported = jax.export.export(call, platforms=[platform])(*arrays)
    assert exported.platforms == (platform,)
