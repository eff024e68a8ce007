"""INCV: the estimate of the noise, who is selected and discarded, and co-teaching on the rest."""

import numpy as np
import pytest
from fakes import draw_logits, revise, slow_cross_entropy, step_on_logits

from spr_jax.methods.noisy_cross_validation import (
    CANDIDATE,
    DISCARDED,
    SELECTED,
    estimate_noise,
    incv,
    wrong_among_selected,
)
from spr_jax.methods.peers import co_teaching

N, C = 40, 4
LABELS = np.arange(N) // (N // C)


@pytest.mark.parametrize("top", [1, 2])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.2, 0.5])
def test_the_noise_is_found_from_the_agreement_it_leads_to(rate, top):
    agreement = (1 - rate) ** 2 + rate**2 / (10 / top - 1)
    assert estimate_noise(agreement, 10, top) == pytest.approx(rate)


def test_less_agreement_than_by_chance_is_as_much_noise_as_can_be():
    assert estimate_noise(0.0, 10) == pytest.approx(0.9)


def test_wrong_labels_agree_by_chance():
    """Labels and predictions that are wrong alike, counted in a simulation."""
    generator, count, rate = np.random.default_rng(0), 400_000, 0.4
    given, predicted = (
        (generator.random(count) < rate) * generator.integers(1, 10, count) for _ in range(2)
    )
    agrees = given == predicted
    assert wrong_among_selected(rate, 10) == pytest.approx((given[agrees] > 0).mean(), rel=0.02)


def folds(**options):
    *stages, last = incv(**{"iterations": 2, "fold_epochs": 3} | options)
    assert [stage.restart for stage in (*stages, last)] == ["same"] * 4 + ["fresh"]
    assert {stage.epochs for stage in stages} == {3} and last.method.num_networks == 2
    return [stage.method for stage in stages]


def judge(method, memory, predicted, number=2, sure=4.0, skipped=()):
    """After an epoch in which the network predicts these classes, each as surely as said."""
    logits = np.float32(np.eye(C)[predicted]) * np.reshape(sure, (-1, 1)).astype(np.float32)
    scan = lambda: {"logits": logits}  # noqa: E731
    return revise(method, memory, {}, LABELS, number=number, scan=scan, skipped=skipped)


def test_a_perfect_network_selects_everything():
    first, second, *_ = folds()
    memory = first.init(LABELS, C)
    assert np.bincount(memory["half"]).tolist() == [N // 2] * 2
    assert judge(first, memory, LABELS, number=1).keys() == memory.keys()
    assert (judge(first, memory, LABELS, number=1)["next_role"] == CANDIDATE).all()  # too early
    once = judge(first, memory, LABELS)
    np.testing.assert_array_equal(once["next_role"] == SELECTED, memory["half"] == 1)
    np.testing.assert_array_equal(once["clean"], memory["half"] == 1)
    assert (once["role"] == CANDIDATE).all() and once["noise_rate"] == 0
    assert first.describe(memory, 0) == {} and first.describe(once, 3) == {"estimated_noise": 0}
    twice = judge(second, once, LABELS)
    assert (twice["role"] == SELECTED).all() and twice["clean"].all()


def test_the_largest_losses_are_discarded_and_the_rest_is_halved_anew():
    first, second, *_ = folds()
    memory = first.init(LABELS, C)
    generator = np.random.default_rng(0)
    predicted = np.where(generator.random(N) < 0.6, LABELS, (LABELS + 1) % C)
    sure = 1 + np.arange(N) / N
    once = judge(first, memory, predicted, sure=sure, skipped=[3])
    held_out = (np.asarray(memory["half"]) == 1) & (np.arange(N) != 3)
    agrees = held_out & (predicted == LABELS)
    rate = estimate_noise(agrees.sum() / held_out.sum(), C)
    others = np.flatnonzero(held_out & ~agrees)
    most = int(min(2, rate / (1 - rate)) * agrees.sum())
    assert 0 < most < len(others) and once["noise_rate"] == pytest.approx(rate)
    expected = np.where(agrees, SELECTED, CANDIDATE)
    expected[others[-most:]] = DISCARDED  # the surest mistakes
    np.testing.assert_array_equal(once["next_role"], expected)
    twice = judge(second, once, predicted, sure=sure)
    np.testing.assert_array_equal(twice["role"], twice["next_role"])
    assert twice["noise_rate"] == once["noise_rate"]  # the first estimate holds
    assert np.bincount(twice["half"]).tolist() == [N // 2] * 2
    assert (twice["half"] != memory["half"]).any()
    kept = judge(folds(symmetric=False)[0], memory, predicted, sure=sure)
    assert DISCARDED not in kept["next_role"]


def test_with_two_classes_the_second_choice_counts():
    (first, *_), memory = folds(top=2), folds()[0].init(LABELS, C)
    logits = np.eye(C)[(LABELS + 1) % C] * 2 + np.eye(C)[LABELS]
    scan = lambda: {"logits": np.float32(logits)}  # noqa: E731
    found = revise(first, memory, {}, LABELS, number=2, scan=scan)
    np.testing.assert_array_equal(found["next_role"] == SELECTED, memory["half"] == 1)
    with pytest.raises(ValueError, match="top is 4; expected less than the 4 classes"):
        folds(top=4)[0].init(LABELS, C)


def test_a_class_of_which_nothing_is_selected_is_kept_in_the_end_and_named():
    *_, last = folds()
    predicted = np.where(LABELS == 2, 1, LABELS)
    with pytest.warns(UserWarning, match=r"classes \[2\] agrees"):
        memory = judge(last, last.init(LABELS, C), predicted)
    assert memory["clean"][LABELS == 2].all()


ROLES = np.array([SELECTED] * 4 + [CANDIDATE] * 2 + [DISCARDED] * 2)


@pytest.mark.parametrize("half", [0, 1])
def test_a_fold_learns_from_its_half_and_the_selected(half):
    logits, labels = draw_logits()
    method = folds()[half]
    halves = np.arange(8) % 2
    memory = method.init(labels, C) | {"role": ROLES, "half": halves}
    step = step_on_logits(method, logits, labels, memory)
    chosen = (ROLES == SELECTED) | ((ROLES == CANDIDATE) & (halves == half))
    losses, slope = slow_cross_entropy(logits[0], labels)
    assert step.loss == pytest.approx(losses[chosen].mean())
    np.testing.assert_allclose(step.slopes[0], chosen[:, None] * slope / chosen.sum(), atol=1e-7)


def teach(roles, rate, epoch, **options):
    logits, labels = draw_logits(2)
    method = incv(**options)[-1].method
    memory = method.init(labels, C) | {"role": roles, "noise_rate": np.float32(rate)}
    return step_on_logits(method, logits, labels, memory, epoch=epoch)


def test_on_all_selected_it_is_co_teaching_at_the_rate_that_is_left():
    logits, labels = draw_logits(2)
    wrong = wrong_among_selected(0.6, C)  # of eight, three are left out
    peers = step_on_logits(co_teaching(wrong, 10), logits, labels, epoch=30)
    found = teach(np.full(8, SELECTED), 0.6, 30)
    assert 0.25 < wrong < 0.45 and found.loss == pytest.approx(peers.loss)
    for own, expected in zip(found.slopes, peers.slopes, strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-7)


@pytest.mark.parametrize(
    ("epoch", "rate", "symmetric", "offered"),
    [
        (19, 0.0, True, False),
        (20, 0.0, True, True),
        (39, 0.0, False, False),
        (40, 0.0, False, True),
    ],
)
def test_candidates_are_offered_late_in_place_of_harder_ones(epoch, rate, symmetric, offered):
    """Of the selected or candidates, the peer's four easiest: as many as are selected."""
    found = teach(ROLES, rate, epoch, add_from=20, symmetric=symmetric)
    logits, labels = draw_logits(2)
    among = np.flatnonzero((ROLES == SELECTED) | (offered & (ROLES == CANDIDATE)))
    by_peer, _ = slow_cross_entropy(logits[1], labels)
    easy = among[np.argsort(by_peer[among])[:4]]
    learned = np.flatnonzero(np.abs(found.slopes[0]).max(axis=1) > 0)
    np.testing.assert_array_equal(learned, np.sort(easy))
    assert (ROLES[easy] == CANDIDATE).any() == offered


def test_heavy_noise_offers_candidates_twice_as_late():
    losses = [teach(ROLES, 0.7, epoch, add_from=20).loss for epoch in (19, 20, 39, 40)]
    assert losses[0] == losses[1] == losses[2] != losses[3]


def test_of_many_candidates_half_as_many_as_selected_are_offered():
    """Two of eight are selected, so each of six candidates is offered with probability 1/6."""
    logits, labels = draw_logits(2)
    logits[1] = np.eye(C)[labels] * (np.arange(8) > 1)[:, None]  # the peer prefers candidates
    method = incv(add_from=0)[-1].method
    roles = np.array([SELECTED] * 2 + [CANDIDATE] * 6)
    memory = method.init(labels, C) | {"role": roles}
    learned = [
        step_on_logits(method, logits, labels, memory, key=key).slopes[0].any(axis=1)
        for key in range(100)
    ]
    assert {who.sum() for who in learned} <= {1, 2}  # two of those offered, rounded down
    assert np.mean([who[2:].any() for who in learned]) == pytest.approx(1 - (5 / 6) ** 6, abs=0.12)
