"""RoG: steps to the minimum covariance determinant, and the classifier they lead to."""

import jax
import numpy as np
import pytest
from fakes import (
    draw_logits,
    make_linear,
    remember,
    revise,
    slow_cross_entropy,
    step_on_logits,
)
from flax import linen as nn
from scipy.optimize import minimize
from sklearn.covariance import MinCovDet
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from spr_jax.backbones import Classifier
from spr_jax.backbones.layers import dense, offer
from spr_jax.backbones.network import make_network
from spr_jax.methods.generative_head import (
    best_shares,
    concentrate,
    gaussians,
    linear_head,
    lowest,
    posterior,
    rog,
)
from spr_jax.methods.robust_loss import ce

C, D = 3, 4


def draw(count=150, seed=0, outliers=0.0):
    """Features of three Gaussians of one covariance, labels, and a mask of gross outliers."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % C
    mixing = np.eye(D) + 0.3 * generator.standard_normal((D, D))
    features = generator.standard_normal((count, D)) @ mixing + 3 * np.eye(C, D)[labels]
    is_outlier = generator.random(count) < outliers
    features[is_outlier] += 25 + 5 * generator.standard_normal((is_outlier.sum(), D))
    return features, labels, is_outlier


def head_of(features, labels):
    everyone = np.ones(len(labels), bool)
    return linear_head(*gaussians(features, labels, everyone, C), np.ones(C, bool))


def test_the_lowest_of_each_class_are_kept():
    labels = np.array([0, 1, 0, 0, 1, 0, 2])
    values = np.array([3.0, 1.0, 2.0, 5.0, 0.0, 4.0, 9.0])
    kept = lowest(values, labels, 0.5)
    np.testing.assert_array_equal(kept, [True, False, True, False, True, False, True])
    assert lowest(np.arange(90.0), np.zeros(90, int), 0.7).sum() == 63


@pytest.mark.parametrize("seed", range(3))
def test_steps_lead_to_the_minimum_covariance_determinant(seed):
    """Of one class, to the subset that scikit-learn finds; no step raises the determinant."""
    features, _, is_outlier = draw(200, seed, outliers=0.2)
    labels = np.zeros(len(features), int)
    kept = lowest(np.random.default_rng(seed).random(len(features)), labels, 0.7)
    determinants = []
    for _ in range(30):
        determinants.append(-np.linalg.slogdet(gaussians(features, labels, kept, 1)[1])[1])
        kept = concentrate(features, labels, kept, 1, 0.7)
    assert (np.diff(determinants) <= 1e-9).all() and determinants[-1] < determinants[0] - 5
    witness = MinCovDet(support_fraction=0.7, random_state=0).fit(features)
    expected = np.log(np.linalg.det(np.cov(features[witness.raw_support_].T, bias=True)))
    assert determinants[-1] == pytest.approx(expected, abs=0.05)
    assert not (kept & is_outlier).any()


def test_one_step_brings_the_means_nearer():
    features, labels, _ = draw(600, outliers=0.3)
    truth = 3 * np.eye(C, D)
    everyone = np.ones(len(labels), bool)
    plain, _ = gaussians(features, labels, everyone, C)
    kept = concentrate(features, labels, everyone, C, 0.7)
    robust, _ = gaussians(features, labels, kept, C)
    assert np.linalg.norm(robust - truth) < 0.3 * np.linalg.norm(plain - truth)


def test_of_all_examples_it_is_linear_discriminant_analysis():
    features, labels, _ = draw()
    witness = LinearDiscriminantAnalysis(solver="lsqr", priors=np.full(C, 1 / C))
    expected = witness.fit(features, labels).predict_proba(features)
    np.testing.assert_allclose(posterior(head_of(features, labels), features), expected, rtol=1e-3)


def test_an_affine_map_of_the_features_changes_no_prediction():
    features, labels, _ = draw()
    generator = np.random.default_rng(1)
    moved = features @ (np.eye(D) + 0.3 * generator.standard_normal((D, D))) + 100
    np.testing.assert_allclose(
        posterior(head_of(moved, labels), moved),
        posterior(head_of(features, labels), features),
        atol=1e-3,
    )


def test_with_a_round_covariance_the_nearest_mean_wins():
    means = np.random.default_rng(0).standard_normal((C, D))
    points = np.random.default_rng(1).standard_normal((50, D))
    found = posterior(linear_head(means, np.eye(D) / 4, np.ones(C, bool)), points)
    distance = np.linalg.norm(points[:, None] - means, axis=2)
    np.testing.assert_array_equal(np.argmax(found, axis=1), distance.argmin(axis=1))


def test_a_dead_feature_is_ignored():
    features, labels, _ = draw()
    dead = np.concatenate([features, np.zeros((len(labels), 1))], axis=1)
    np.testing.assert_allclose(
        posterior(head_of(dead, labels), dead),
        posterior(head_of(features, labels), features),
        atol=1e-5,
    )


def fit(features, labels, num_classes=C, skipped=(), inner=(), **options):
    method = rog(**options)
    asked = []

    def scan(**how):
        asked.append(how)
        layers = {f"inner_{n}": np.float32(outputs) for n, outputs in enumerate(inner)}
        return layers | {"features": np.asarray(features, np.float32), "logits": None}

    widths = tuple(outputs.shape[1] for outputs in (*inner, features))
    memory = method.init(labels, num_classes, widths)
    memory = revise(method, memory, {}, labels, skipped=skipped, scan=scan)
    assert asked == [{"averaged": True, "inner": True}]  # the network that is evaluated
    return method, memory


def test_the_method_fits_and_predicts():
    features, labels, is_outlier = draw(600, outliers=0.2)
    images = features.reshape(-1, 2, 2, 1)
    method, memory = fit(2 * features, labels, rounds=5)  # as the network has them in eval mode
    assert memory["clean"].sum() == 3 * 140 and is_outlier[memory["clean"]].mean() < 0.01
    found = method.predict((make_linear(C, images),), memory, images)
    right = np.argmax(found, axis=1) == labels
    assert right[~is_outlier].mean() > 0.9
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


def test_examples_not_visited_do_not_count():
    features, labels, _ = draw()
    far = features.copy()
    far[:3] += 1e3
    heads = [
        fit(each, labels, skipped=[0, 1, 2], rounds=0, keep=1.0)[1] for each in (far, features)
    ]
    jax.tree.map(np.testing.assert_array_equal, *heads)


def test_a_class_of_one_example_has_a_mean_and_one_of_none_is_never_predicted():
    features, labels, _ = draw()
    labels[labels == 2] = 1
    labels[0] = 2
    with pytest.warns(UserWarning, match=r"classes \[2, 3\] have fewer than 2") as said:
        method, memory = fit(features, labels, C + 1)
        revise(method, memory, {}, labels, scan=lambda **_: {"features": features})
    assert len(said) == 1  # though it is fitted twice
    assert memory["clean"][0]
    found = posterior(memory["layer_0"], features)
    assert np.isfinite(found).all() and not found[:, 3].any() and found[0].argmax() == 2


def test_fewer_examples_than_features_are_fitted_and_predicted():
    generator = np.random.default_rng(0)
    labels = np.arange(12) % C
    features = np.eye(C, 40)[labels] * 9 + 0.1 * generator.standard_normal((12, 40))
    _, memory = fit(features, labels)
    found = np.asarray(posterior(memory["layer_0"], features))
    assert np.isfinite(found).all()
    kept = memory["clean"]
    np.testing.assert_array_equal(found[kept].argmax(axis=1), labels[kept])


LAYERS = 3


def draw_likely(count=400, seed=0):
    """How likely three layers find labels: the second is the best, all are wrong at times."""
    generator = np.random.default_rng(seed)
    return np.stack([generator.beta(a, 1, count) for a in (0.4, 3.0, 1.0)], axis=1)


@pytest.mark.parametrize("seed", range(3))
def test_shares_make_the_trusted_half_of_the_labels_most_likely(seed):
    likely = draw_likely(seed=seed)
    trusted = likely[np.argsort(-likely[:, -1])[: len(likely) // 2]]

    def loss(a):
        shares = np.exp(a) / np.exp(a).sum()
        return -np.log(trusted @ shares).mean()

    found = best_shares(likely)
    assert found.sum() == pytest.approx(1) and found.dtype == np.float32
    least = minimize(loss, np.zeros(LAYERS)).fun
    assert -np.log(trusted @ found).mean() == pytest.approx(least, abs=1e-4)
    assert loss(np.zeros(LAYERS)) > least + 1e-3


def test_without_held_out_examples_layers_have_equal_shares():
    np.testing.assert_array_equal(best_shares(np.zeros((0, 4))), np.full(4, 0.25, np.float32))
    np.testing.assert_array_equal(best_shares(np.ones((5, 1))), [1])


def test_the_best_layer_has_the_largest_share_and_held_out_examples_are_not_fitted():
    features, labels, _ = draw(600)
    generator = np.random.default_rng(0)
    inner = (generator.standard_normal((600, 2)), 3 * features, generator.standard_normal((600, 5)))
    method, memory = fit(generator.standard_normal((600, 3)), labels, inner=inner)
    assert memory["shares"].shape == (4,) and memory["shares"].argmax() == 1
    assert memory["shares"].sum() == pytest.approx(1)
    held = memory["weights"] == 0
    assert np.bincount(labels[held]).tolist() == [20] * C and not memory["clean"][held].any()
    np.testing.assert_allclose(memory["weights"][~held], 600 / 540)
    shares = method.describe(memory, 0)
    assert shares["share_of_layer_1"] == pytest.approx(memory["shares"][1])
    moved = [np.where(held[:, None], 1e3, outputs) for outputs in (*inner, features)]
    heads = [
        fit(layers[-1], labels, inner=layers[:-1], layers=2)[1]["layer_0"]
        for layers in ((*inner, features), moved)
    ]
    jax.tree.map(np.testing.assert_array_equal, *heads)


def test_of_a_large_class_fifty_are_held_out():
    labels = np.repeat([0, 1], [2000, 100])
    held = np.asarray(rog().init(labels, 2, (3, 4))["weights"]) == 0
    assert np.bincount(labels[held]).tolist() == [50, 10]
    assert (np.asarray(rog(layers=1).init(labels, 2, (3, 4))["weights"]) == 1).all()
    assert (np.asarray(rog().init(labels, 2, (4,))["weights"]) == 1).all()


class TwoLayers(nn.Module):
    """The images, offered as an inner layer, and twice as large as features."""

    head = staticmethod(dense)

    @nn.compact
    def __call__(self, images, train):
        offer(self, images)
        return 2 * images.reshape(len(images), -1)


def test_prediction_is_the_mean_of_the_layers_by_their_shares():
    """The inner layer is the mean over a map, so it tells less than the features."""
    features, labels, _ = draw(600)
    images = np.float32(features.reshape(-1, 2, 1, 2))
    network = make_network(Classifier(TwoLayers(), C), jax.random.key(0), images)
    layers = (images.mean(axis=(1, 2)), 2 * features)
    method, memory = fit(layers[1], labels, inner=layers[:1])
    found = method.predict((network,), memory, images)
    each = [np.asarray(posterior(memory[f"layer_{n}"], layers[n])) for n in (0, 1)]
    np.testing.assert_allclose(found, np.tensordot(memory["shares"], each, 1), rtol=1e-4)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    assert memory["shares"][1] > 0.8


def test_the_network_learns_from_all_but_those_held_out():
    logits, labels = draw_logits()[0], np.arange(8) % 4
    weights = np.array([0, 1, 1, 0, 1, 1, 1, 1]) * 8 / 6
    memory = remember(rog().init(labels, 4, (3, 4)), np.arange(8), weights=weights)
    step = step_on_logits(rog(), logits, labels, memory)
    losses, slope = slow_cross_entropy(logits[0], labels)
    assert step.loss == pytest.approx(losses[weights > 0].mean(), rel=1e-6)
    np.testing.assert_allclose(step.slopes[0], weights[:, None] * slope / 8, atol=1e-7)
    alone = step_on_logits(rog(), logits, labels, rog().init(labels, 4, (4,)))
    np.testing.assert_allclose(
        alone.slopes[0], step_on_logits(ce(), logits, labels).slopes[0], atol=1e-7
    )
