"""The training that SSR+ and SPR+ share: what is relabeled, what counts how much, what is mixed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fakes import make_batch, make_linear, revise, slow_cross_entropy, take_step

from spr_jax.backbones.heads import Heads
from spr_jax.devices import AXIS
from spr_jax.methods.ssr import balanced, relabeled_training

N, B, C = 20, 8, 4
INDEX = np.random.default_rng(1).permutation(N)[:B]  # of the batch in the data set
GIVEN = np.random.default_rng(2).integers(0, C, N)


def trusting(trust):
    """A judge who always says this."""
    return lambda memory, epoch, labels, sure, key: (memory, trust)


def relabeled(p, given, trust=None, *, skipped=(), **options):
    """The memory after an epoch with these predictions."""
    trust = np.ones(len(given)) if trust is None else trust
    method = relabeled_training(trusting(trust), **options)
    record, memory = {"logits": np.log(p)}, method.init(given, p.shape[1])
    return revise(method, memory, record, given, skipped=skipped)


def step_of(memory=None, *, weights=None, width=0, key=0, **options):
    """A step on a linear network, with the two views that are learned from."""
    method = relabeled_training(trusting(1.0), **{"consistency": 0.0} | options)
    views = np.random.default_rng(3).standard_normal((method.num_views, B, 3, 3, 1))
    network = make_linear(C, views[0], width=width)
    if method.extra is not None:
        extra = Heads().init(jax.random.key(0), jnp.zeros((2, width or 9)))["params"]
        network = network.replace(params=network.params | {"extra": extra})
    memory = method.init(GIVEN, C) | (memory or {})
    batch = make_batch(views[0], GIVEN[INDEX], *views[1:], index=INDEX, weights=weights)
    return take_step(method, (network,), batch, memory, key=key), network, views, memory


@pytest.mark.parametrize("above, expected", [(0.9, [0, 1, 2]), (0.8, [0, 0, 2]), (1.0, [1, 1, 2])])
def test_sure_predictions_replace_given_labels(above, expected):
    p = np.array([[0.95, 0.03, 0.02], [0.85, 0.1, 0.05], [0.01, 0.01, 0.98]])
    memory = relabeled(p, np.array([1, 1, 2]), relabel_above=above)
    np.testing.assert_array_equal(memory["labels"], expected)
    assert memory["selection"]["relabeled"] == np.float32(np.mean(expected != np.array([1, 1, 2])))


def test_labels_start_from_the_given_ones_in_every_epoch():
    given, sure, unsure = np.zeros(2, int), np.array([[0.01, 0.99]] * 2), np.full((2, 2), 0.5)
    method = relabeled_training(trusting(np.ones(2)))
    memory = method.init(given, 2)
    for p, expected in ((sure, 1), (unsure, 0)):
        memory = revise(method, memory, {"logits": np.log(p)}, given)
        np.testing.assert_array_equal(memory["labels"], expected)


def test_classes_of_the_clean_set_weigh_the_same():
    labels = np.array([0, 0, 0, 1, 1, 3, 3, 3])
    trust = jnp.array([1, 1, 1, 1, 0, 1, 1, 0.0])
    expected = [2 / 3, 2 / 3, 2 / 3, 2, 0, 1, 1, 0]
    np.testing.assert_allclose(balanced(trust, labels, 5), expected, rtol=1e-6)
    assert not balanced(jnp.zeros(8), labels, 5).any()


def test_trust_says_what_counts_and_what_is_clean():
    p, given = np.full((4, 2), 0.5), np.array([0, 0, 1, 1])
    p[1] = 0.01, 0.99
    memory = relabeled(p, given, np.array([1, 0.9, 0.4, 1]), skipped=[3], balance=False)
    np.testing.assert_allclose(memory["weights"], [1, 0.9, 0.4, 0])
    np.testing.assert_array_equal(memory["clean"], [1, 0, 0, 0])  # of given labels
    assert memory["weights"].dtype == np.float32


def test_nothing_trusted_is_no_trouble():
    step, *_ = step_of({"weights": np.zeros(N)})
    assert step.loss == 0 and all(not leaf.any() for leaf in jax.tree.leaves(step.slopes))


def test_without_mixing_the_loss_is_weighted_cross_entropy_of_both_views():
    trust, labels = np.linspace(0, 2, N), (GIVEN + 1) % C
    memory = {"weights": trust, "labels": labels}
    rows = np.where(np.arange(B) < 2, 0, B / (B - 2))  # two rows fill up the batch
    step, network, views, _ = step_of(memory, mixup=0.0, weights=rows)
    losses = [
        slow_cross_entropy(network.forward(view)[0].logits, labels[INDEX])[0] for view in views
    ]
    weights = rows * trust[INDEX]
    assert step.loss == pytest.approx(sum(weights @ each for each in losses) / 2 / weights.sum())
    assert step.networks[0].batch_stats["passes"] == 1 and step.record == {}


def test_mixed_examples_have_both_labels_and_partners_that_count():
    """With one example that counts, every partner is one of its two views: its own label."""
    only = np.isin(np.arange(N), INDEX[3]).astype(float)
    step, network, views, _ = step_of({"weights": only})
    first, second = views[:, 3].reshape(2, -1)
    label = GIVEN[INDEX[3]]

    def loss_at(share, partners):
        mixed = [
            share * own + (1 - share) * other
            for own, other in zip(views[:, 3], partners, strict=True)
        ]
        logits = network.forward(np.stack(mixed))[0].logits
        return slow_cross_entropy(logits, [label] * 2)[0].mean()

    reachable = [
        loss_at(share, [views[a, 3], views[b, 3]])
        for share in np.linspace(0.5, 1, 60)
        for a in (0, 1)
        for b in (0, 1)
    ]
    assert np.abs(np.array(reachable) - step.loss).min() < 2e-3
    assert not np.allclose(first, second)


def test_consistency_is_the_mean_negative_cosine_of_guess_and_target():
    """The strong view's prediction, by the heads, of the weak view's projection."""
    (step, network, views, _), (plain, *_) = (
        step_of(consistency=weight, width=5, mixup=0.0, strong="none") for weight in (1.0, 2.0)
    )
    assert len(views) == 3 and step.networks[0].batch_stats["passes"] == 3
    heads = {"params": network.params["extra"]}

    def parts(features):
        return Heads().apply(heads, features, mutable=["batch_stats"])[0]

    both = jnp.stack([network.forward(view)[0].features for view in views[:2]])
    projections, guesses = jax.vmap(lambda x: jax.vmap(parts, axis_name=AXIS)(x[None]))(both)
    target, guess = np.asarray(projections)[0, 0], np.asarray(guesses)[1, 0]
    lengths = np.linalg.norm(target, axis=1) * np.linalg.norm(guess, axis=1)
    cosine = (target * guess).sum(axis=1) / lengths
    assert plain.loss - step.loss == pytest.approx(-cosine.mean(), rel=1e-4)
    assert abs(step.slopes[0]["extra"]["Dense_3"]["kernel"]).max() > 0


def test_parts_that_are_off_cost_no_view():
    assert relabeled_training(None).on_top == ("none", "rand_augment", "rand_augment")
    plain = relabeled_training(None, consistency=0.0, strong="none")
    assert plain.num_views == 2 and plain.on_top == ("none", "none") and plain.extra is None
