"""The training that SSR+ and SPR+ share: what is relabeled, what counts how much, what is mixed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fakes import draw_logits, make_batch, make_linear, slow_cross_entropy, softmax, take_step

from spr_jax.devices import AXIS
from spr_jax.methods.method import Epoch
from spr_jax.methods.relabeling import Heads, relabel, relabeled_training, with_selection

N, B, C = 20, 8, 4
INDEX = np.random.default_rng(1).permutation(N)[:B]  # of the batch in the data set
EMPTY = {"selection": {}}
GIVEN = np.random.default_rng(2).integers(0, C, N)


def finished(labels=GIVEN, skipped=()):
    count = len(labels)
    return Epoch(0, labels, {}, ~np.isin(np.arange(count), skipped), np.arange(count))


def step_of(memory=None, *, weights=None, width=0, key=0, **options):
    """A step on a linear network, with the two views that are learned from."""
    method = relabeled_training(**{"consistency": 0.0} | options)
    views = np.random.default_rng(3).standard_normal((method.num_views, B, 3, 3, 1))
    network = make_linear(C, views[0], width=width)
    if method.extra is not None:
        extra = Heads().init(jax.random.key(0), jnp.zeros((2, width or 9)))["params"]
        network = network.replace(params=network.params | {"extra": extra})
    memory = method.init(GIVEN, C) | (memory or {})
    batch = make_batch(views[0], GIVEN[INDEX], *views[1:], index=INDEX, weights=weights)
    return take_step(method, (network,), batch, memory, key=key), network, views, memory


def test_sure_predictions_replace_given_labels():
    logits = np.log([[0.95, 0.03, 0.02], [0.85, 0.1, 0.05], [0.01, 0.01, 0.98]])
    given = np.array([1, 1, 2])
    np.testing.assert_array_equal(relabel(logits, given, 0.9), [0, 1, 2])
    np.testing.assert_array_equal(relabel(logits, given, 0.8), [0, 0, 2])
    np.testing.assert_array_equal(relabel(logits, given, 1.0), given)


def test_classes_of_the_clean_set_weigh_the_same():
    labels = jnp.array([0, 0, 0, 1, 1, 3, 3, 3])
    selected = np.array([1, 1, 1, 1, 0, 1, 1, 1], bool)
    given = np.array([0, 0, 1, 1, 1, 3, 2, 3])
    epoch = finished(given, skipped=[7])
    memory = with_selection({"selection": {"kept": 1}}, epoch, labels, selected, balance=True)
    np.testing.assert_allclose(memory["weights"], [2 / 3, 2 / 3, 2 / 3, 2, 0, 1, 1, 0])
    np.testing.assert_array_equal(memory["clean"], [1, 1, 0, 1, 0, 1, 0, 0])
    assert memory["selection"]["relabeled"] == 0.25 and memory["selection"]["kept"] == 1
    plain = with_selection(EMPTY, epoch, labels, selected, balance=False)
    np.testing.assert_array_equal(plain["weights"], [1, 1, 1, 1, 0, 1, 1, 0])


def test_nothing_selected_is_no_trouble():
    memory = with_selection(EMPTY, finished(), jnp.asarray(GIVEN), np.zeros(N, bool), balance=True)
    assert not memory["weights"].any()
    step, *_ = step_of(memory)
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
    assert relabeled_training().on_top == ("none", "rand_augment", "rand_augment")
    plain = relabeled_training(consistency=0.0, strong="none")
    assert plain.num_views == 2 and plain.on_top == ("none", "none") and plain.extra is None


def test_uniform_logits_are_relabeled_at_no_threshold():
    logits, _ = draw_logits(1, N, C, scale=0.0)
    assert softmax(logits).max() == 0.25
    np.testing.assert_array_equal(relabel(logits[0], GIVEN, 0.9), GIVEN)
