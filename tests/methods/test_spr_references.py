"""Small loss and oracle: SPR's steps on another clean set."""

import jax
import numpy as np
import pytest
from fakes import make_batch, make_linear, revise, slow_cross_entropy, take_step

from spr_jax.methods.selection_rules import RULES
from spr_jax.methods.spr import spr
from spr_jax.methods.spr_references import oracle, small_loss
from spr_jax.registry import options_of

N, B, C = 20, 8, 3
each_kind = pytest.mark.parametrize("kind", [0, 1], ids=["supervised", "cutmix"])


def make_case(epoch=0, seed=0):
    generator = np.random.default_rng(seed)
    first, second = generator.standard_normal((2, B, 3, 3, 1))
    index, labels = generator.permutation(N)[:B], generator.integers(0, C, B)
    batch = make_batch(first, labels, second, index=index, epoch=epoch)
    return (make_linear(C, first),), batch, generator.random(N) < 0.5


def assert_same(one, two):
    assert one.loss == pytest.approx(two.loss, rel=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), one.slopes, two.slopes)


@each_kind
def test_small_loss_takes_the_steps_of_spr_and_records_the_loss(kind):
    networks, batch, clean = make_case(epoch=2)
    method, base = small_loss(penalty_growth=1.5), spr(penalty_growth=1.5)
    memory = method.init(np.zeros(N, int), C) | {"clean": clean}
    found = take_step(method, networks, batch, memory, kind=kind)
    assert_same(found, take_step(base, networks, batch, memory, kind=kind))
    head = networks[0].params["head"]
    logits = np.asarray(batch.images).reshape(B, -1) @ np.asarray(head["kernel"]) + head["bias"]
    expected, _ = slow_cross_entropy(logits, batch.labels)
    np.testing.assert_allclose(found.record["loss"], expected, rtol=1e-5)


@each_kind
def test_oracle_takes_the_steps_of_spr_on_correct_labels(kind):
    """In the first epoch too, when SPR still calls all clean."""
    networks, batch, is_correct = make_case()
    method, base = oracle(), spr()
    memory = base.init(np.zeros(N, int), C)
    knowing = method.init(np.zeros(N, int), C, is_correct)
    found = take_step(method, networks, batch, knowing, kind=kind)
    assert_same(found, take_step(base, networks, batch, memory | {"clean": is_correct}, kind=kind))
    other = take_step(base, networks, batch, memory, kind=kind)
    assert abs(other.loss - found.loss) > 1e-3


def test_oracle_needs_the_truth_and_calls_clean_what_is_correct():
    _, _, is_correct = make_case()
    method = oracle()
    assert method.needs_truth
    assert not spr().needs_truth and not small_loss().needs_truth
    with pytest.raises(TypeError, match="is_correct"):
        method.init(np.zeros(N, int), C)
    memory = method.init(np.zeros(N, int), C, is_correct)
    np.testing.assert_array_equal(memory["clean"], is_correct)
    after = revise(method, memory, {"features": np.zeros((N, 9), np.float32)}, np.zeros(N, int))
    np.testing.assert_array_equal(after["clean"], is_correct)


@pytest.mark.parametrize("keep", [0.3, 0.5, 1.0])
def test_clean_are_the_least_losses_of_each_class(keep):
    """In the order of the data; a share of those that were visited, rounded down."""
    generator = np.random.default_rng(0)
    labels, losses = generator.integers(0, C, 50), generator.exponential(size=50)
    visited = generator.random(50) < 0.9
    method, record = small_loss(keep=keep), {"loss": losses.astype(np.float32)}
    memory = revise(
        method, method.init(labels, C), record, labels, skipped=np.flatnonzero(~visited)
    )
    for label in range(C):
        members = np.flatnonzero((labels == label) & visited)
        kept = members[np.argsort(losses[members])][: int(keep * len(members))]
        np.testing.assert_array_equal(
            np.flatnonzero(memory["clean"] & (labels == label)), sorted(kept)
        )
    np.testing.assert_allclose(memory["suspicion"], losses, rtol=1e-6)


def test_a_loss_of_minus_zero_is_the_least():
    """Such is the loss where the prediction is certain."""
    losses, labels = np.array([0.5, -0.0, 0.1, 2.0], np.float32), np.zeros(4, int)
    method = small_loss(keep=0.5)
    memory = revise(method, method.init(labels, 1), {"loss": losses}, labels)
    np.testing.assert_array_equal(memory["clean"], [False, True, True, False])


@pytest.mark.parametrize("make", [small_loss, oracle])
def test_options_of_training_are_those_of_spr(make):
    of_spr = options_of(spr)
    shared = {name: value for name, value in options_of(make).items() if name != "keep"}
    assert shared == {name: of_spr[name] for name in shared}
    own = {"select", "weights", "record_from", "refine_after", "visit_order_defect"}
    assert set(of_spr) - set(shared) == own
    own = set(options_of(make)) - set(shared)
    share = options_of(RULES["share"])
    assert all(options_of(make)[name] == share[name] for name in own)
    method, base = make(cutmix=0.0), spr(cutmix=0.0)
    assert len(method.steps) == len(base.steps) == 1
    assert (method.num_views, make().num_views) == (base.num_views, 2)
    assert [make().choose_step(epoch, 0.4) for epoch in (0, 1)] == [0, 1]
