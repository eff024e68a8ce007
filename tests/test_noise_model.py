"""The model of the given labels: its parts against slow NumPy, the whole against known noise."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_data
from reference import pca_scores

from spr_jax.levels import flag_surest, is_explained, keep_cleanest
from spr_jax.solver import noise_model
from spr_jax.solver.noise_model import (
    CERTAINTY,
    MOST_CLASSES,
    MOST_ROWS,
    Model,
    fit,
    fit_models,
    joint,
    label_noise,
    log_prior,
    logits_of,
    posterior,
)

KINDS = ["simple", "mixed", "rich"]

# Compiled as a whole, not operation by operation.
joint_of, posterior_of = jax.jit(joint), jax.jit(posterior)
prior_of, fitted = jax.jit(log_prior), jax.jit(fit)


def scores_of(features, labels, num_classes, pca_dim):
    return np.asarray(_scores_of(features, labels, num_classes, pca_dim, noise_model.CUT))


@partial(jax.jit, static_argnums=(2, 3, 4))
def _scores_of(features, labels, num_classes, pca_dim, cut):
    """Compiled anew where a test has changed the constant."""
    return noise_model.scores_without_own_label(features, labels, num_classes, pca_dim)


def standardised(scores):
    scores = scores - scores.mean(axis=1, keepdims=True)
    return scores / np.sqrt(np.mean(scores**2))


def slow_fit(design, targets, cut, rounds=1000):
    """Least squares in which residuals beyond `cut` count as `cut`: [p, c]."""
    inverse = np.linalg.pinv(design)
    beta = inverse @ targets
    for _ in range(rounds):
        residual = targets - design @ beta
        norms = np.linalg.norm(residual, axis=1, keepdims=True)
        step = 1.5 * inverse @ (residual * np.minimum(1, cut / norms))
        beta = beta + step
        if np.abs(step).max() < 1e-9:
            break
    return beta


def slow_scores(features, labels, num_classes, pca_dim, cut, leave_out=True):
    """A fit for each example: [c, n]."""
    n = len(labels)
    design = np.column_stack([pca_scores(features, pca_dim), np.ones(n)])
    targets = np.eye(num_classes)[labels]
    whole = slow_fit(design, targets, cut)
    scores = np.empty((num_classes, n))
    for i in range(n):
        others = np.arange(n) != i
        beta = slow_fit(design[others], targets[others], cut) if leave_out else whole
        scores[:, i] = design[i] @ beta
    return standardised(scores)


@pytest.fixture(scope="module")
def few():
    """Few examples: each weighs much in the fit."""
    features, given, _ = make_data(60, 8, 4, 0.2, separation=1)
    return features, given


def test_scores_are_least_squares_fits_without_the_example(few, monkeypatch):
    monkeypatch.setattr(noise_model, "CUT", 1e6)
    expected = slow_scores(*few, 4, 6, cut=1e6)
    np.testing.assert_allclose(scores_of(*few, 4, 6), expected, atol=1e-8)
    in_sample = slow_scores(*few, 4, 6, cut=1e6, leave_out=False)
    assert np.abs(in_sample - expected).max() > 0.1


def test_scores_are_nearly_robust_fits_without_the_example(few):
    exact = slow_scores(*few, 4, 6, noise_model.CUT)
    in_sample = slow_scores(*few, 4, 6, noise_model.CUT, leave_out=False)
    error = np.linalg.norm(scores_of(*few, 4, 6) - exact)
    assert error < 0.3 * np.linalg.norm(in_sample - exact)


def test_a_label_hardly_moves_its_own_score(few):
    features, given = few
    before = scores_of(*few, 4, 6)
    in_sample = slow_scores(*few, 4, 6, noise_model.CUT, leave_out=False)
    own, through_the_fit = [], []
    for i in range(0, 60, 6):
        other = given.copy()
        other[i] = (given[i] + 1) % 4
        own.append(scores_of(features, other, 4, 6)[:, i] - before[:, i])
        moved = slow_scores(features, other, 4, 6, noise_model.CUT, leave_out=False)
        through_the_fit.append(moved[:, i] - in_sample[:, i])
    assert np.linalg.norm(own) < 0.35 * np.linalg.norm(through_the_fit)


def test_scores_have_zero_mean_and_unit_mean_square(few):
    scores = scores_of(*few, 4, 6)
    np.testing.assert_allclose(scores.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(np.mean(scores**2), 1)


def test_constant_features_have_no_scores(few):
    assert not scores_of(np.full((60, 8), 7.0), few[1], 4, 6).any()


@pytest.mark.parametrize("num_classes", [2, 4])
def test_scores_know_nothing_of_labels_at_random(num_classes):
    """Most residuals are cut then, those of two classes along the only direction there is."""
    own = []
    for seed in range(10):
        generator = np.random.default_rng(seed)
        features, labels = generator.random((500, 32)), generator.integers(0, num_classes, 500)
        own.append(scores_of(features, labels, num_classes, 32)[labels, np.arange(500)].mean())
    assert abs(np.mean(own)) < 0.06


def make_model(kind, c=4, seed=0):
    generator = np.random.default_rng(seed)
    model = Model(
        slope=np.float64(1.7),
        bias=generator.standard_normal(c),
        transition=generator.standard_normal((c, c)) + 2 * np.eye(c),
        mix=0.3 * generator.standard_normal((c, c)),
        tilt=np.float64(0.8),
    )
    without = {"simple": {"mix": None, "tilt": None}, "mixed": {"tilt": None}, "rich": {}}
    return model._replace(**without[kind])


def softmax(values):
    return np.exp(values) / np.exp(values).sum()


def slow_joint(model, scores, labels):
    c, n = scores.shape
    both = np.empty((c, n))
    transition = np.array([softmax(row) for row in model.transition])
    tilt = 0 if model.tilt is None else model.tilt
    for i in range(n):
        mixed = 0 if model.mix is None else model.mix @ scores[:, i]
        of_class = softmax(model.slope * scores[:, i] + mixed + model.bias)
        for t in range(c):
            pull = transition[t] * np.exp(tilt * scores[:, i])
            pull[t] = 0
            given = (1 - transition[t, t]) * pull / pull.sum()
            given[t] = transition[t, t]
            both[t, i] = of_class[t] * given[labels[i]]
    return both


@pytest.fixture(scope="module")
def scored():
    generator = np.random.default_rng(1)
    return generator.standard_normal((4, 50)), generator.integers(0, 4, 50)


@pytest.mark.parametrize("kind", KINDS)
def test_joint_and_posterior_are_those_of_slow_numpy(kind, scored):
    model = make_model(kind)
    expected = slow_joint(model, *scored)
    np.testing.assert_allclose(joint_of(model, *scored), expected, rtol=1e-10)
    expected = expected / expected.sum(axis=0)
    np.testing.assert_allclose(posterior_of(model, *scored), expected, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_some_label_is_given(kind, scored):
    """Summed over the given labels, what remains is the chance of the true class."""
    model, (scores, _) = make_model(kind), scored
    total = sum(joint_of(model, scores, np.full(50, label)) for label in range(4))
    expected = jax.nn.softmax(logits_of(model, scores), axis=0)
    np.testing.assert_allclose(total, expected, rtol=1e-10)


def test_simple_model_is_the_rich_one_without_mix_and_tilt(scored):
    simple, rich = make_model("simple"), make_model("rich")
    expected = joint_of(simple, *scored)
    flat = rich._replace(mix=np.zeros((4, 4)), tilt=np.float64(0))
    np.testing.assert_allclose(joint_of(flat, *scored), expected, rtol=1e-12)
    np.testing.assert_allclose(prior_of(flat), prior_of(simple), rtol=1e-12)
    assert np.abs(joint_of(rich, *scored) - expected).max() > 0.01


def test_steep_scores_give_no_nan(scored):
    scores, labels = scored
    model = make_model("rich")._replace(slope=np.float64(1e4), tilt=np.float64(500))
    assert np.isfinite(posterior_of(model, scores, labels)).all()


def log_matrix(right, c=4):
    return np.log(np.where(np.eye(c) > 0, right, (1 - right) / (c - 1)))


def test_prior_is_for_noise_that_is_the_same_for_all_classes():
    generator, model = np.random.default_rng(2), make_model("rich")
    alike = prior_of(model._replace(transition=log_matrix(0.7)))
    for _ in range(5):
        rows = 0.7 * np.eye(4) + 0.3 * generator.dirichlet(np.ones(4), 4) * (1 - np.eye(4))
        rows += np.diag(1 - rows.sum(axis=1))
        assert prior_of(model._replace(transition=np.log(rows))) < alike
    for steeper in ({"slope": 2 * model.slope}, {"mix": 2 * model.mix}, {"tilt": 2 * model.tilt}):
        assert prior_of(model._replace(**steeper)) < prior_of(model)


@pytest.mark.parametrize("with_doubt", [False, True])
def test_very_many_classes_have_the_simple_model_alone(with_doubt):
    arrays = jnp.zeros((MOST_CLASSES + 1, 8)), jnp.zeros(8, int)
    models = jax.eval_shape(partial(fit_models, with_doubt=with_doubt), *arrays)
    assert [(model.mix, model.tilt) for model in models] == [(None, None)] * (1 + with_doubt)


PAIRS = np.array([[0.9, 0.05, 0.05], [0.4, 0.55, 0.05], [0.05, 0.15, 0.8]])
START = Model(np.float64(2), np.zeros(3), log_matrix(0.3, 3), np.zeros((3, 3)), np.float64(0))


def drawn_from(transition, tilt, n=6000, slope=6.0):
    """Scores, given labels and the model that they come from."""
    generator = np.random.default_rng(3)
    bias = np.array([0.5, 0, -0.5])
    model = Model(np.float64(slope), bias, np.log(transition), np.zeros((3, 3)), np.float64(tilt))
    scores = generator.standard_normal((3, n))
    chances = sum(
        slow_joint(model, scores, np.full(n, label)).sum(axis=0)[None] * np.eye(3)[:, [label]]
        for label in range(3)
    )
    labels = np.sum(generator.random(n) > np.cumsum(chances, axis=0), axis=0)
    return scores, labels, model


@jax.jit
def objective(model, scores, labels):
    likelihood = jnp.log(joint(model, scores, labels).sum(axis=0))
    chances = jax.nn.softmax(logits_of(model, scores), axis=0)
    doubt = -jnp.sum(chances * jnp.log(chances + 1e-300))
    return likelihood.sum() - CERTAINTY * doubt + log_prior(model)


@pytest.mark.parametrize("tilt", [0, 1.5], ids=["class", "tilted"])
@pytest.mark.parametrize(
    "transition", [np.exp(log_matrix(0.7, 3)), PAIRS], ids=["symmetric", "asymmetric"]
)
def test_fit_finds_the_model_that_the_labels_come_from(transition, tilt):
    scores, labels, model = drawn_from(transition, tilt)
    found = fitted(scores, labels, np.ones(6000), START)
    at_found = objective(found, scores, labels)
    assert at_found > objective(START, scores, labels) + 100
    assert at_found > objective(model, scores, labels) - 1
    np.testing.assert_allclose(jax.nn.softmax(found.transition), transition, atol=0.06)
    np.testing.assert_allclose(found.slope, model.slope, rtol=0.2)
    np.testing.assert_allclose(found.tilt, tilt, atol=0.4)
    error = posterior_of(found, scores, labels) - slow_posterior(model, scores, labels)
    assert np.abs(error).mean() < 0.02


def slow_posterior(model, scores, labels):
    both = slow_joint(model, scores, labels)
    return both / both.sum(axis=0)


def test_fit_is_at_a_maximum():
    generator = np.random.default_rng(7)
    scores, labels, _ = drawn_from(PAIRS, 0)
    found = fitted(scores, labels, np.ones(6000), START)
    highest = objective(found, scores, labels)
    for _ in range(10):
        near = jax.tree.map(lambda part: part + 0.2 * generator.standard_normal(part.shape), found)
        assert objective(near, scores, labels) < highest


def test_examples_of_no_weight_do_not_count():
    scores, labels, _ = drawn_from(PAIRS, 0)
    weights = (np.arange(6000) % 4 > 0).astype(float)
    other = np.where(weights > 0, labels, 0)
    straight, changed = (fitted(scores, given, weights, START) for given in (labels, other))
    jax.tree.map(np.testing.assert_array_equal, straight, changed)
    assert not np.array_equal(fitted(scores, other, np.ones(6000), START).bias, straight.bias)


# One shape, compiled once.
N, C, D = 3000, 10, 12


def transitions(kind, rate):
    if kind == "symmetric":
        return np.where(np.eye(C) > 0, 1 - rate, rate / (C - 1))
    return (1 - rate) * np.eye(C) + rate * np.roll(np.eye(C), 1, axis=1)  # t becomes t + 1


def make_noise(transition, seed=0):
    """Gaussian clusters, given labels, true labels."""
    generator = np.random.default_rng(seed)
    true = generator.integers(0, C, N)
    centres = 2 * generator.standard_normal((C, D))
    features = (centres[true] + generator.standard_normal((N, D))).astype(np.float32)
    given = np.sum(generator.random(N)[:, None] > np.cumsum(transition[true], axis=1), axis=1)
    return features, np.minimum(given, C - 1).astype(np.int32), true


def study(features, given):
    return jax.device_get(label_noise(features, given, num_classes=C, pca_dim=D))


@cache
def case(kind, rate, seed):
    features, given, true = make_noise(transitions(kind, rate), seed)
    return study(features, given), given, true


def true_rates(given, true):
    wrong = given != true
    return np.append(wrong.mean(), [wrong[given == k].mean() for k in range(C)])


RATES = [0.05, 0.2, 0.4, 0.6, 0.8]


@pytest.mark.parametrize("rate", RATES)
def test_rate_of_symmetric_noise(rate):
    for seed in range(2):
        noise, given, true = case("symmetric", rate, seed)
        expected = true_rates(given, true)
        np.testing.assert_allclose(noise.rate[0], expected[0], atol=0.03)
        np.testing.assert_allclose(noise.rate, expected, atol=0.12)
        assert np.abs(noise.rate - expected).mean() < 0.04


def test_rate_of_noise_from_class_to_class():
    noise, given, true = case("pair", 0.3, 0)
    expected = true_rates(given, true)
    np.testing.assert_allclose(noise.rate[0], expected[0], atol=0.05)
    np.testing.assert_allclose(noise.rate, expected, atol=0.1)


def test_rate_of_one_noisy_class():
    transition = np.eye(C)
    transition[3] = transitions("symmetric", 0.5)[3]
    features, given, true = make_noise(transition)
    noise, expected = study(features, given), true_rates(given, true)
    np.testing.assert_allclose(noise.rate, expected, atol=0.03)
    assert noise.rate[1 + 3] < 0.01 < noise.rate[1:][np.arange(C) != 3].min()


def test_intervals_cover():
    """Of all labels, and of most classes."""
    cases = [case("symmetric", rate, seed) for rate in RATES for seed in range(2)]
    cases += [case("pair", 0.3, seed) for seed in range(3)]
    covered = []
    for noise, given, true in cases:
        expected = true_rates(given, true)
        covered.append((noise.low <= expected) & (expected <= noise.high))
        assert np.all(noise.low <= noise.rate) and np.all(noise.rate <= noise.high)
    assert np.mean([each[0] for each in covered]) >= 0.85
    assert np.mean(covered) >= 0.85


def test_intervals_are_not_idle():
    for rate in RATES[:4]:
        noise = case("symmetric", rate, 0)[0]
        assert noise.high[0] - noise.low[0] < 0.12


def test_more_noise_than_half_is_outside_the_interval_of_little():
    little, much = (case("symmetric", rate, 0)[0] for rate in (0.2, 0.6))
    assert little.high[0] < much.low[0]


def test_right_labels_are_found_right():
    noise, given, _ = case("symmetric", 0, 0)
    assert noise.rate[0] < 0.01
    assert np.mean(noise.wrong > 0.5) < 0.005
    assert np.mean(noise.suggested == given) > 0.995
    assert noise.low[0] == 0


def test_wrong_labels_are_told_and_mended():
    noise, given, true = case("symmetric", 0.4, 0)
    wrong = given != true
    assert noise.wrong[wrong].mean() > 0.9 and noise.wrong[~wrong].mean() < 0.1
    assert np.mean(noise.suggested == true) > 0.95
    assert np.mean((noise.wrong > 0.5) == wrong) > 0.95


def test_chances_are_right_as_often_as_they_say():
    """Nearly, where they are sure; more often wrong, where they are not."""
    runs = [case("symmetric", rate, seed) for rate in RATES for seed in range(2)]
    chance = np.concatenate([noise.wrong for noise, _, _ in runs])
    wrong = np.concatenate([given != true for _, given, true in runs])
    for within in (chance < 0.05, chance > 0.95):
        np.testing.assert_allclose(wrong[within].mean(), chance[within].mean(), atol=0.02)
    unsure = (chance > 0.2) & (chance < 0.8)
    assert 0.3 < wrong[unsure].mean() < 0.9


def test_models_enclose_the_chance():
    noise, _, _ = case("pair", 0.3, 0)
    assert np.all(noise.least <= noise.wrong) and np.all(noise.wrong <= noise.most)
    assert np.any(noise.least < noise.most)
    assert np.all(noise.disagreement >= 0) and np.any(noise.disagreement > 0)


def test_rates_are_means_of_chances():
    noise, given, _ = case("pair", 0.3, 0)
    expected = [noise.wrong.mean(), *(noise.wrong[given == k].mean() for k in range(C))]
    np.testing.assert_allclose(noise.rate, expected, rtol=1e-4)


@pytest.mark.parametrize("level", [0.05, 0.1])
def test_levels_are_kept(level):
    """By nine of ten sets that claim it."""
    kept, within = [], []
    for rate in RATES:
        for seed in range(2):
            noise, given, true = case("symmetric", rate, seed)
            for level_of, mistake in ((keep_cleanest, given != true), (flag_surest, given == true)):
                found = level_of(noise, given, level)
                if found.attained.any():
                    within.append(mistake[found.chosen].mean() <= level)
                    kept.append(found.chosen.sum() / (~mistake).sum())
    assert len(within) >= 12 and np.mean(within) >= 0.9
    assert np.median(kept) > 0.6


@pytest.mark.parametrize(("kind", "rate"), [("symmetric", 0.4), ("pair", 0.3)])
def test_confusion_shows_the_flips(kind, rate):
    noise, given, true = case(kind, rate, 0)
    np.testing.assert_allclose(noise.confusion.sum(axis=1), 1, rtol=1e-4)
    np.testing.assert_allclose(1 - np.diag(noise.confusion), noise.rate[1:], atol=1e-4)
    counts = np.zeros((C, C))
    np.add.at(counts, (given, true), 1)
    expected = counts / counts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(noise.confusion, expected, atol=0.08)


def test_labels_at_random_are_not_explained():
    assert is_explained(case("symmetric", 0.6, 0)[0])
    for seed in range(2):
        noise, given, _ = case("symmetric", 1 - 1 / C, seed)
        assert not is_explained(noise)
        for level_of in (keep_cleanest, flag_surest):
            assert not level_of(noise, given, 0.5).attained.any()


def test_order_of_the_examples_does_not_matter():
    features, given, _ = make_noise(transitions("symmetric", 0.4))
    order = np.random.default_rng(4).permutation(N)
    assert N <= MOST_ROWS  # and not too many for the jackknife; only its groups differ
    straight, permuted = case("symmetric", 0.4, 0)[0], study(features[order], given[order])
    np.testing.assert_allclose(permuted.wrong, straight.wrong[order], atol=0.02)
    assert np.mean(permuted.suggested == straight.suggested[order]) > 0.998
    np.testing.assert_allclose(permuted.rate, straight.rate, atol=5e-3)
    np.testing.assert_allclose(permuted.gain, straight.gain, rtol=5e-3)


def test_names_of_the_classes_do_not_matter():
    features, given, _ = make_noise(transitions("symmetric", 0.4))
    name = np.random.default_rng(5).permutation(C).astype(np.int32)
    straight, renamed = case("symmetric", 0.4, 0)[0], study(features, name[given])
    np.testing.assert_allclose(renamed.wrong, straight.wrong, atol=0.02)
    np.testing.assert_allclose(renamed.rate[1:][name], straight.rate[1:], atol=5e-3)
    assert np.mean(renamed.suggested == name[straight.suggested]) > 0.998


def test_any_affine_view_of_the_features_is_the_same():
    """All components are used, so the space that they span is all that counts."""
    features, given, _ = make_noise(transitions("symmetric", 0.4))
    generator = np.random.default_rng(6)
    view = generator.standard_normal((D, D)) + 3 * np.eye(D)
    seen = (5 * features @ view + 100 * generator.standard_normal(D)).astype(np.float32)
    straight, other = case("symmetric", 0.4, 0)[0], study(seen, given)
    np.testing.assert_allclose(other.wrong, straight.wrong, atol=0.02)
    np.testing.assert_allclose(other.rate, straight.rate, atol=5e-3)


def test_a_class_of_one_example():
    features, given, true = make_noise(transitions("symmetric", 0.2))
    rare = given == C - 1
    given = np.where(rare, true % (C - 1), given).astype(np.int32)
    given[0] = C - 1
    noise = study(features, given)
    assert all(np.isfinite(part).all() for part in noise)
    settled = (true != C - 1) & (np.arange(N) > 0)
    error = noise.wrong[settled].mean() - np.mean((given != true)[settled])
    assert abs(error) < 0.05


def test_a_class_without_examples():
    features, given, true = make_noise(transitions("symmetric", 0.2))
    kept = np.resize(np.flatnonzero((given != 0) & (true != 0)), N)
    noise = study(features[kept], given[kept])
    assert all(np.isfinite(part).all() for part in noise)
    assert noise.rate[1] == 0 and np.mean(noise.suggested == 0) < 0.01
    np.testing.assert_allclose(noise.rate[0], np.mean((given != true)[kept]), atol=0.03)


@pytest.mark.parametrize("columns", [0, 3])
def test_constant_features_do_no_harm(columns):
    features, given, _ = make_noise(transitions("symmetric", 0.2))
    features[:, columns:] = 7
    noise = study(features, given)
    assert all(np.isfinite(part).all() for part in noise)
    assert is_explained(noise) == (columns > 0)
    assert noise.high[0] > 0.15
