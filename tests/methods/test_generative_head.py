"""RoG: steps to the minimum covariance determinant, and the classifier they lead to."""

import jax
import numpy as np
import pytest
from fakes import make_linear, revise
from sklearn.covariance import MinCovDet
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from spr_jax.methods.generative_head import concentrate, gaussians, linear_head, lowest, rog

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


def probability(head, features):
    return jax.nn.softmax((features - head["center"]) @ head["slopes"].T + head["offsets"])


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
    np.testing.assert_allclose(
        probability(head_of(features, labels), features), expected, rtol=1e-3
    )


def test_an_affine_map_of_the_features_changes_no_prediction():
    features, labels, _ = draw()
    generator = np.random.default_rng(1)
    moved = features @ (np.eye(D) + 0.3 * generator.standard_normal((D, D))) + 100
    np.testing.assert_allclose(
        probability(head_of(moved, labels), moved),
        probability(head_of(features, labels), features),
        atol=1e-3,
    )


def test_with_a_round_covariance_the_nearest_mean_wins():
    means = np.random.default_rng(0).standard_normal((C, D))
    points = np.random.default_rng(1).standard_normal((50, D))
    found = probability(linear_head(means, np.eye(D) / 4, np.ones(C, bool)), points)
    distance = np.linalg.norm(points[:, None] - means, axis=2)
    np.testing.assert_array_equal(np.argmax(found, axis=1), distance.argmin(axis=1))


def test_a_dead_feature_is_ignored():
    features, labels, _ = draw()
    dead = np.concatenate([features, np.zeros((len(labels), 1))], axis=1)
    np.testing.assert_allclose(
        probability(head_of(dead, labels), dead),
        probability(head_of(features, labels), features),
        atol=1e-5,
    )


def fit(features, labels, num_classes=C, skipped=(), **options):
    method = rog(**options)
    asked = []

    def scan(averaged=False):
        asked.append(averaged)
        return {"features": np.asarray(features, np.float32)}

    memory = method.init(labels, num_classes, features.shape[1])
    memory = revise(method, memory, {}, labels, skipped=skipped, scan=scan)
    assert asked == [True]  # the network that is evaluated
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
    with pytest.warns(UserWarning, match=r"classes \[3\] have no examples"):
        method, memory = fit(features, labels, C + 1)
    assert memory["clean"][0]
    found = probability(memory, features)
    assert np.isfinite(found).all() and not found[:, 3].any() and found[0].argmax() == 2
