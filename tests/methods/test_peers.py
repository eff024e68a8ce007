"""Selection within a batch and two networks: masks, means and slopes against plain NumPy."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fakes import compiled, draw_logits, revise, slow_cross_entropy, softmax, step_on_logits

from spr_jax.devices import AXIS
from spr_jax.methods import batch_masks
from spr_jax.methods.batch_masks import forgetting, mean_over
from spr_jax.methods.peers import co_teaching, co_teaching_plus, decoupling, mentornet
from spr_jax.methods.robust_loss import ce
from spr_jax.types import Output

B, C = 12, 4
CE = ce()
TWO = [co_teaching(0.4, 0), decoupling(0), co_teaching_plus(0.4, 0, 0)]
EVERY = [mentornet(0.4, 0), *TWO]
PADDED = np.where(np.arange(B) < 3, 0, B / (B - 3))


def slow_easiest(losses, among, count):
    chosen = sorted(np.flatnonzero(among), key=lambda i: losses[i])[:count]
    return np.isin(np.arange(len(losses)), chosen)


# Selection


def easiest(losses, among, share, devices=1, **how):
    """Of a batch that devices share."""
    mark = jax.vmap(
        lambda losses, among: batch_masks.easiest(losses, among, share, **how), axis_name=AXIS
    )
    parts = (jnp.reshape(each, (devices, -1)) for each in (losses, among))
    return np.asarray(mark(*parts)).ravel()


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("share, count", [(1.0, 10), (0.7, 7), (0.25, 2), (0.01, 1), (0.0, 1)])
def test_easiest_are_those_of_least_loss(share, count, devices):
    """Of ten, rounded down, and at least one, however many devices have parts of them."""
    losses = np.random.default_rng(0).random(B)
    among = np.arange(B) >= 2
    found = easiest(jnp.float32(losses), among, jnp.float32(share), devices)
    np.testing.assert_array_equal(found, slow_easiest(losses, among, count))


def test_easiest_are_as_many_as_exact_numbers_make():
    """In single precision (1 - 0.8) * 10 is below 2, and (1 - 0.9) * 10 above 1."""
    losses, one = np.arange(10.0), jnp.float32(1)
    assert (one - jnp.float32(0.8)) * 10 < 2
    assert easiest(losses, losses >= 0, one - jnp.float32(0.8)).sum() == 2
    assert easiest(losses, losses >= 0, one - jnp.float32(0.9), round_up=True).sum() == 1


def test_easiest_can_be_rounded_up():
    losses = np.arange(10.0)
    assert easiest(losses, losses >= 0, 0.61, round_up=True).sum() == 7


def test_easiest_of_equal_losses_are_the_first():
    found = easiest(jnp.array([2.0, 1, 1, 1]), np.array([1, 0, 1, 1], bool), 0.34)
    np.testing.assert_array_equal(found, [0, 0, 1, 0])


def test_easiest_of_none_are_none():
    assert not easiest(jnp.zeros(4), np.zeros(4, bool), 1.0).any()


def test_easiest_follow_their_examples():
    losses, order = np.random.default_rng(1).random(B), np.random.default_rng(2).permutation(B)
    everyone = np.ones(B, bool)
    np.testing.assert_array_equal(
        easiest(losses[order], everyone, 0.5), easiest(losses, everyone, 0.5)[order]
    )


@pytest.mark.parametrize("floor", [1e-6, 0.5])
def test_mean_is_over_the_chosen_of_all_devices(floor):
    """Four of twelve, spread unevenly; no fewer than the floor's share of the batch."""
    losses, chosen = np.random.default_rng(0).random(B), np.isin(np.arange(B), [0, 1, 2, 9])

    def mean(chosen, losses):
        return mean_over(chosen, losses, jnp.ones(B // 2), floor=floor)

    means = jax.vmap(mean, axis_name=AXIS)(chosen.reshape(2, -1), losses.reshape(2, -1))
    assert means.mean() == pytest.approx(losses[chosen].sum() / max(4, floor * B))


def test_mean_over_none_is_zero():
    mean = jax.vmap(lambda losses: mean_over(losses < 0, losses, losses), axis_name=AXIS)
    assert mean(jnp.ones((1, 4))) == 0


@pytest.mark.parametrize("epoch, rate", [(0, 0), (3, 0.12), (10, 0.4), (50, 0.4)])
def test_forget_rate_grows_to_its_value(epoch, rate):
    assert forgetting(0.4, 10)(jnp.int32(epoch)) == pytest.approx(rate)
    assert forgetting(0.4, 0)(jnp.int32(epoch)) == 0.4


# Slopes


def slow_slopes(logits, labels, chosen):
    """Of the sum over networks of the mean over what each learns from."""
    slopes = []
    for own, mask in zip(logits, chosen, strict=True):
        _, slope = slow_cross_entropy(own, labels)
        slopes.append(mask[:, None] * slope / max(mask.sum(), 1))
    return slopes


def assert_slopes(step, expected):
    for found, slope in zip(step.slopes, expected, strict=True):
        np.testing.assert_allclose(found, slope, atol=1e-7)


def losses_of(logits, labels):
    return [slow_cross_entropy(own, labels)[0] for own in logits]


@pytest.mark.parametrize("devices", [1, 2])
def test_networks_learn_from_what_their_peer_finds_easy(devices):
    """Of 12, at rate 0.4, 7: also where two devices have six each."""
    logits, labels = draw_logits(2, B)
    step = step_on_logits(co_teaching(0.4, ramp=0), logits, labels, devices=devices)
    everyone = np.ones(B, bool)
    easy = np.array([slow_easiest(each, everyone, 7) for each in losses_of(logits, labels)])
    assert (easy[0] != easy[1]).any()
    assert_slopes(step, slow_slopes(logits, labels, easy[::-1]))
    np.testing.assert_array_equal(step.record["clean"], easy[0])


def test_mentornet_learns_from_what_it_finds_easy():
    logits, labels = draw_logits(1, B)
    step = step_on_logits(mentornet(0.5, ramp=4), logits, labels, epoch=2)
    (losses,) = losses_of(logits, labels)
    easy = slow_easiest(losses, losses >= 0, 9)
    assert step.loss == pytest.approx(losses[easy].mean(), rel=1e-6)
    assert_slopes(step, slow_slopes(logits, labels, [easy]))


ALL_IN = [
    (mentornet(0.0), 5),
    (mentornet(0.9, ramp=5), 0),
    (co_teaching(0.0), 5),
    (co_teaching_plus(0.0, warmup=3), 2),
    (decoupling(warmup=3), 2),
]


@pytest.mark.parametrize("method, epoch", ALL_IN)
@pytest.mark.parametrize("weights", [np.ones(B), PADDED])
def test_learning_from_all_is_cross_entropy(method, epoch, weights):
    """Of as many networks, each by itself."""
    logits, labels = draw_logits(method.num_networks, B)
    step = step_on_logits(method, logits, labels, epoch=epoch, weights=weights)
    alone = [step_on_logits(CE, own[None], labels, weights=weights) for own in logits]
    assert step.loss == pytest.approx(sum(each.loss for each in alone), rel=1e-6)
    assert_slopes(step, [each.slopes[0] for each in alone])


@pytest.mark.parametrize("method", TWO)
def test_swapping_networks_swaps_their_slopes(method):
    logits, labels = draw_logits(2, B)
    one, two = (step_on_logits(method, both, labels) for both in (logits, logits[::-1]))
    assert one.loss == pytest.approx(two.loss)
    assert_slopes(one, two.slopes[::-1])


@pytest.mark.parametrize("method", TWO)
def test_two_networks_are_scored_by_the_first_and_compared(method):
    logits, _ = draw_logits(2, B)
    networks = [SimpleNamespace(predict=lambda _, own=own: Output(own, None)) for own in logits]
    first, second = softmax(logits)
    np.testing.assert_allclose(method.predict(networks, {}, None), first, rtol=1e-6)
    beside = {who: each(networks, {}, None) for who, each in method.predict_beside.items()}
    assert set(beside) == {"second_network", "mean_of_networks"}
    np.testing.assert_allclose(beside["second_network"], second, rtol=1e-6)
    np.testing.assert_allclose(beside["mean_of_networks"], (first + second) / 2, rtol=1e-6)


def test_one_network_has_nothing_beside_it():
    assert not mentornet().predict_beside


def test_equal_networks_teach_each_other_as_mentornet_does():
    logits, labels = draw_logits(1, B)
    both = step_on_logits(co_teaching(0.3, 0), np.repeat(logits, 2, axis=0), labels)
    alone = step_on_logits(mentornet(0.3, 0), logits, labels)
    assert_slopes(both, alone.slopes * 2)


def disagreeing(rows, seed=0):
    """Logits of two networks that have the same first choice but in these rows."""
    logits, labels = draw_logits(2, B, seed=seed)
    first = logits[0].argmax(axis=1)
    other = np.where(np.isin(np.arange(B), rows), (first + 1) % C, first)
    logits[1, np.arange(B), other] = logits[1].max(axis=1) + 1
    return logits, labels


@pytest.mark.parametrize("method", [decoupling(0), co_teaching_plus(0.2, 0, 0)])
def test_networks_that_agree_learn_nothing(method):
    step = step_on_logits(method, *disagreeing([]))
    assert step.loss == 0
    assert_slopes(step, np.zeros((2, B, C)))


@pytest.mark.parametrize("rows", [[1, 4, 5, 8], [4], range(B)])
def test_decoupled_networks_learn_where_they_disagree(rows):
    """One of twelve is less than a tenth: the mean is over no fewer than that."""
    logits, labels = disagreeing(rows)
    chosen = np.isin(np.arange(B), rows)
    shrunk = min(len(rows) / (0.1 * B), 1)
    expected = slow_slopes(logits, labels, [chosen] * 2)
    assert_slopes(
        step_on_logits(decoupling(0), logits, labels), [shrunk * slope for slope in expected]
    )


def test_plus_exchanges_where_networks_disagree():
    """Of six, at rate 0.4, three; the clean ones are of all examples."""
    logits, labels = disagreeing(range(1, 12, 2))
    step = step_on_logits(co_teaching_plus(0.4, ramp=2, warmup=1), logits, labels, epoch=2)
    losses, among = losses_of(logits, labels), np.arange(B) % 2 == 1
    easy = [slow_easiest(each, among, 3) for each in losses]
    assert_slopes(step, slow_slopes(logits, labels, easy[::-1]))
    everyone = np.ones(B, bool)
    np.testing.assert_array_equal(step.record["clean"], slow_easiest(losses[0], everyone, 7))


def test_plus_without_forgetting_is_decoupling():
    logits, labels = disagreeing([0, 3, 4])
    plus = step_on_logits(co_teaching_plus(0.0, warmup=1), logits, labels, epoch=1)
    assert_slopes(plus, step_on_logits(decoupling(1), logits, labels, epoch=1).slopes)


@pytest.mark.parametrize("rows, epoch", [(range(B), 5), ([2, 3], 4)])
def test_plus_is_co_teaching_in_warmup_and_where_all_disagree(rows, epoch):
    logits, labels = disagreeing(rows)
    plus = step_on_logits(co_teaching_plus(0.4, ramp=5, warmup=5), logits, labels, epoch=epoch)
    assert_slopes(plus, step_on_logits(co_teaching(0.4, 5), logits, labels, epoch=epoch).slopes)


@pytest.mark.parametrize("method", EVERY)
def test_rows_that_fill_up_a_batch_are_never_chosen(method):
    """Though they are the easiest, and though the networks disagree on them."""
    rows = np.flatnonzero(PADDED == 0)
    logits, labels = disagreeing(range(B))
    sure = np.where(np.eye(C)[labels[rows]], 50.0, 0)
    logits[0, rows], logits[1, rows] = sure, np.roll(sure, 1, axis=1)
    logits = logits[: method.num_networks]
    step = step_on_logits(method, logits, labels, weights=PADDED)
    changed = logits.copy()
    changed[:, rows] = draw_logits(method.num_networks, B, seed=1)[0][:, rows]
    assert_slopes(step_on_logits(method, changed, labels, weights=PADDED), step.slopes)
    assert not any(abs(slope[rows]).max() for slope in step.slopes)
    if "clean" in step.record:
        assert not step.record["clean"][rows].any()
        assert step.record["clean"].sum() == 5  # of nine, at rate 0.4


@pytest.mark.parametrize("method", [mentornet(0.4, 3), co_teaching_plus(0.4, 3, 2)])
def test_epochs_share_a_program(method):
    """Selections change their size within fixed shapes."""
    logits, labels = draw_logits(method.num_networks, B)
    losses = [step_on_logits(method, logits, labels, epoch=epoch).loss for epoch in range(4)]
    assert compiled(method.steps[0])._cache_size() == 1
    assert len(set(losses)) > 2


@pytest.mark.parametrize("method", [mentornet(0.4), co_teaching(0.4)])
def test_memory_holds_what_was_easy(method):
    """The loop sums records over devices, so that a mask comes back as numbers."""
    easy = np.random.default_rng(0).random(B) < 0.5
    memory = revise(method, method.init(np.zeros(B, int), C), {"clean": easy.astype(np.int32)})
    assert memory["clean"].dtype == bool
    np.testing.assert_array_equal(memory["clean"], easy)


@pytest.mark.parametrize("method", [mentornet(0.4), co_teaching(0.4)])
def test_log_shows_the_forget_rate_of_the_epoch(method):
    memory = method.init(np.zeros(B, int), C)
    shown = [method.describe(memory, epoch) for epoch in (0, 1, 50)]
    assert shown == [{"forget_rate": pytest.approx(rate)} for rate in (0, 0.04, 0.4)]
