"""Methods that are a loss: their options reach it; truncated GCE prunes on schedule."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fakes import draw_logits, revise, softmax, step_on_logits

from spr_jax import losses
from spr_jax.methods import METHODS
from spr_jax.registry import build

B, C = 6, 5
(LOGITS,), LABELS = draw_logits(1, B, C, scale=3.0)
OF_LABEL = softmax(LOGITS)[np.arange(B), LABELS]


@pytest.mark.parametrize(
    ("options", "loss"),
    [
        (
            {"name": "focal", "gamma": 2.0, "detach": False},
            partial(losses.focal, gamma=2.0, detach=False),
        ),
        ({"name": "gce", "q": 0.3}, partial(losses.generalized_cross_entropy, q=0.3)),
        (
            {"name": "sce", "alpha": 2.0, "beta": 3.0, "log_zero": -4.0},
            partial(losses.symmetric_cross_entropy, alpha=2.0, beta=3.0, log_zero=-4.0),
        ),
        (
            given := {"active": "nfl", "passive": "mae", "alpha": 2.0, "beta": 3.0, "gamma": 1.5},
            partial(losses.active_passive, **given),
        ),
        (
            {"name": "bootstrap", "kind": "soft", "beta": 0.6},
            partial(losses.bootstrap, kind="soft", beta=0.6),
        ),
    ],
)
def test_options_reach_the_loss(options, loss):
    method = build(METHODS, {"name": "apl"} | options)
    step = step_on_logits(method, LOGITS[None], LABELS)
    assert step.loss == pytest.approx(loss(LOGITS, LABELS).mean()) and step.record == {}
    slope = jax.grad(lambda logits: loss(logits, LABELS).mean())(LOGITS)
    np.testing.assert_allclose(step.slopes[0], slope, rtol=1e-6)


@pytest.fixture
def truncated():
    options = {"name": "gce", "truncate": 0.5, "prune_from": 2, "prune_every": 3}
    return build(METHODS, options)


def test_truncated_gce_begins_as_the_plain_one(truncated):
    found = step_on_logits(truncated, LOGITS[None], LABELS)
    plain = step_on_logits(build(METHODS, {"name": "gce"}), LOGITS[None], LABELS)
    np.testing.assert_allclose(found.loss, plain.loss, rtol=1e-12)
    np.testing.assert_allclose(found.slopes, plain.slopes, rtol=1e-12)


def test_truncated_gce_keeps_what_is_likelier_than_k_on_schedule(truncated):
    """After the second epoch and each third one from there."""
    assert truncated.record_from == "scan"
    labels = np.arange(3).repeat(2)
    sure = 10 * np.eye(C)[[0, 1, 1, 1, 0, 2]]  # right for the examples 0, 2, 3 and 5
    everything, chosen = [1] * B, [1, 1, 1, 1, 0, 1]
    memory, kept = truncated.init(labels, C), []
    for epoch in range(5):
        record = {"logits": sure if epoch == 1 else -sure}
        memory = revise(truncated, memory, record, labels, number=epoch, skipped=[1])
        kept.append(memory["clean"].astype(int).tolist())
    assert kept[:4] == [everything, chosen, chosen, chosen]  # the second was not visited
    assert kept[4] == [0, 1, 0, 0, 0, 0]  # at -sure no label is more probable than a quarter


def test_truncated_gce_counts_the_pruned_with_a_constant(truncated):
    memory = truncated.init(LABELS, C) | {"clean": jnp.array([1, 0, 1, 0, 0, 1], bool)}
    index = np.array([5, 4, 3, 2, 1, 0])  # positions in the data set, not in the batch
    step = step_on_logits(truncated, LOGITS[None], LABELS, memory, index=index)
    kept = np.asarray(memory["clean"])[index]
    each = np.where(kept, (1 - OF_LABEL**0.7) / 0.7, (1 - 0.5**0.7) / 0.7)
    assert step.loss == pytest.approx(each.mean())
    assert (abs(step.slopes[0]).max(axis=1) > 0).tolist() == kept.tolist()


def test_truncated_gce_at_k_near_zero_prunes_nothing():
    method = build(METHODS, {"name": "gce", "truncate": 1e-9, "prune_from": 1})
    memory = revise(method, method.init(LABELS, C), {"logits": LOGITS}, LABELS)
    assert memory["clean"].all()
