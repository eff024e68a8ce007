"""The noise model and its fit: against slow NumPy, and on labels drawn from a known model."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spr_jax.solver.noise_model import (
    ENTROPY_PENALTY,
    MOST_CLASSES,
    Model,
    fit,
    fit_models,
    joint,
    log_prior,
    logits_of,
    posterior,
)

KINDS = ["simple", "mixed", "rich"]

# Compiled as a whole, not operation by operation.
joint_of, posterior_of = jax.jit(joint), jax.jit(posterior)

prior_of, fitted = jax.jit(log_prior), jax.jit(fit)


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
    """Summed over the given labels, what remains is the probability of the true class."""
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


@pytest.mark.parametrize("with_unpenalized", [False, True])
def test_very_many_classes_have_the_simple_model_alone(with_unpenalized):
    arrays = jnp.zeros((MOST_CLASSES + 1, 8)), jnp.zeros(8, int)
    models = jax.eval_shape(partial(fit_models, with_unpenalized=with_unpenalized), *arrays)
    assert [(model.mix, model.tilt) for model in models] == [(None, None)] * (1 + with_unpenalized)


PAIRS = np.array([[0.9, 0.05, 0.05], [0.4, 0.55, 0.05], [0.05, 0.15, 0.8]])

START = Model(np.float64(2), np.zeros(3), log_matrix(0.3, 3), np.zeros((3, 3)), np.float64(0))


def drawn_from(transition, tilt, n=6000, slope=6.0):
    """Scores, given labels and the model that they come from."""
    generator = np.random.default_rng(3)
    bias = np.array([0.5, 0, -0.5])
    model = Model(np.float64(slope), bias, np.log(transition), np.zeros((3, 3)), np.float64(tilt))
    scores = generator.standard_normal((3, n))
    probabilities = sum(
        slow_joint(model, scores, np.full(n, label)).sum(axis=0)[None] * np.eye(3)[:, [label]]
        for label in range(3)
    )
    labels = np.sum(generator.random(n) > np.cumsum(probabilities, axis=0), axis=0)
    return scores, labels, model


@jax.jit
def objective(model, scores, labels):
    likelihood = jnp.log(joint(model, scores, labels).sum(axis=0))
    probabilities = jax.nn.softmax(logits_of(model, scores), axis=0)
    doubt = -jnp.sum(probabilities * jnp.log(probabilities + 1e-300))
    return likelihood.sum() - ENTROPY_PENALTY * doubt + log_prior(model)


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
