"""The noise model and its fit: against slow NumPy, and on labels drawn from a known model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spr_jax.solver.noise_model import (
    ANSWER,
    BORDER_COST,
    JACKKNIFE_GROUPS,
    LITTLE,
    MANY_CLASSES,
    MOST_CLASSES,
    MUCH,
    OVERLAP_COST,
    TOLERANCE,
    USUAL_EXPONENT,
    Model,
    border_errors,
    fit,
    fit_models,
    joint,
    log_prior,
    logits_of,
    only,
    overlap_cost,
    posterior,
)

KINDS = ["simple", "mixed", "rich"]

# Compiled as a whole, not operation by operation.
joint_of, posterior_of = jax.jit(joint), jax.jit(posterior)

prior_of, cost_of = jax.jit(log_prior), jax.jit(overlap_cost)


@jax.jit
def fitted(scores, labels, weights, start, stage=ANSWER):
    return fit(scores, labels, weights, start, stage).at


NO_BORDER = np.array([-np.inf, USUAL_EXPONENT])


def make_model(kind, c=4, views=2, seed=0):
    generator = np.random.default_rng(seed)
    model = Model(
        slope=np.array([1.2, 0.5])[:views],
        bias=generator.standard_normal(c),
        transition=generator.standard_normal((c, c)) + 2 * np.eye(c),
        border=np.array([1.0, -0.2]),
        mix=0.3 * generator.standard_normal((c, c)),
    )
    without = {
        "simple": {"mix": None, "border": NO_BORDER},
        "mixed": {"border": NO_BORDER},
        "rich": {},
    }
    return model._replace(**without[kind])


def softmax(values):
    return np.exp(values) / np.exp(values).sum()


def slow_joint(model, scores, labels):
    views, c, n = scores.shape
    both = np.empty((c, n))
    transition = np.array([softmax(row) for row in model.transition])
    highest, exponent = 0.5 / (1 + np.exp(-model.border[0])), np.exp(model.border[1])
    for i in range(n):
        logits = sum(model.slope[v] * scores[v, :, i] for v in range(views)) + model.bias
        if model.mix is not None:
            logits = logits + model.mix @ sum(scores[v, :, i] for v in range(views)) / views
        of_class = softmax(logits)
        second, first = np.sort(of_class)[-2:]
        error = highest * (second / first) ** exponent
        for t in range(c):
            other_side = np.where(np.arange(c) == t, 0, of_class)
            other_side = other_side / other_side.sum()
            given = (1 - error) * transition[t] + error * other_side
            both[t, i] = of_class[t] * given[labels[i]]
    return both


@pytest.fixture(scope="module")
def scored():
    generator = np.random.default_rng(1)
    return generator.standard_normal((2, 4, 50)), generator.integers(0, 4, 50)


@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:overflow")  # odds of zero
def test_joint_and_posterior_are_those_of_slow_numpy(kind, views, scored):
    model, data = make_model(kind, views=views), (scored[0][:views], scored[1])
    expected = slow_joint(model, *data)
    np.testing.assert_allclose(joint_of(model, *data), expected, rtol=1e-10)
    expected = expected / expected.sum(axis=0)
    np.testing.assert_allclose(posterior_of(model, *data), expected, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_some_label_is_given(kind, scored):
    """Summed over the given labels, what remains is the probability of the true class."""
    model, (scores, _) = make_model(kind), scored
    total = sum(joint_of(model, scores, np.full(50, label)) for label in range(4))
    expected = jax.nn.softmax(logits_of(model, scores), axis=0)
    np.testing.assert_allclose(total, expected, rtol=1e-10)


def test_simple_model_is_the_rich_one_without_mix_and_border(scored):
    """It is class-conditional: the label depends on the true class alone."""
    simple, rich, (scores, labels) = make_model("simple"), make_model("rich"), scored
    transition = np.array([softmax(row) for row in simple.transition])
    expected = jax.nn.softmax(logits_of(simple, scores), axis=0) * transition[:, labels]
    np.testing.assert_allclose(joint_of(simple, scores, labels), expected, rtol=1e-12)
    flat = rich._replace(mix=np.zeros((4, 4)), border=NO_BORDER)
    np.testing.assert_allclose(joint_of(flat, scores, labels), expected, rtol=1e-12)
    np.testing.assert_allclose(prior_of(flat), prior_of(simple), rtol=1e-12)
    assert np.abs(joint_of(rich, scores, labels) - expected).max() > 0.01


def test_errors_near_a_border_are_at_most_half():
    """Where the largest two classes are as probable, and nowhere near certainty."""
    model = make_model("rich")._replace(border=np.array([50.0, 0]))
    log_p = np.log([[0.45, 0.6, 1 - 2e-9], [0.45, 0.3, 1e-9], [0.1, 0.1, 1e-9]])
    np.testing.assert_allclose(border_errors(model, log_p), [0.5, 0.25, 0], atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_steep_scores_give_no_nan(dtype, scored):
    scores, labels = scored
    steep = {"slope": np.array([1e4, 1e4]), "border": np.array([50, 3.0])}
    model = make_model("rich")._replace(**steep)
    model = jax.tree.map(lambda part: part.astype(dtype), model)

    def likelihood(model):
        both = joint(model, scores.astype(dtype), labels)
        return jnp.log(both.sum(axis=0) + 1e-30).sum()

    assert np.isfinite(posterior_of(model, scores.astype(dtype), labels)).all()
    assert all(np.isfinite(part).all() for part in jax.jit(jax.grad(likelihood))(model))


def log_matrix(right, c=4):
    return np.log(np.where(np.eye(c) > 0, right, (1 - right) / (c - 1)))


def test_prior_is_for_noise_that_is_the_same_for_all_classes():
    generator, model = np.random.default_rng(2), make_model("rich")
    alike = prior_of(model._replace(transition=log_matrix(0.7)))
    for _ in range(5):
        rows = 0.7 * np.eye(4) + 0.3 * generator.dirichlet(np.ones(4), 4) * (1 - np.eye(4))
        rows += np.diag(1 - rows.sum(axis=1))
        assert prior_of(model._replace(transition=np.log(rows))) < alike
    unequal = model.slope + np.array([0.5, -0.5])  # of the same sum
    more, unusual = model.border + [1, 0], model.border + [0, 1]
    for part in (
        {"slope": 2 * model.slope},
        {"slope": unequal},
        {"mix": 2 * model.mix},
        {"border": more},
        {"border": unusual},
    ):
        assert prior_of(model._replace(**part)) < prior_of(model)


def test_overlap_is_free_if_little_and_then_costs_and_then_no_more():
    entropy = np.linspace(0, 2, 2001)
    cost = np.asarray(cost_of(entropy))
    slope = np.diff(cost) / np.diff(entropy)
    assert cost[0] == 0 and np.all(slope >= -1e-12)
    middle, half = entropy[1:] - 5e-4, OVERLAP_COST / 2
    assert slope[middle < LITTLE / 2].max() < 0.1 * OVERLAP_COST
    assert slope[middle > 1.5 * MUCH].max() < 0.1 * OVERLAP_COST
    assert slope[(middle > 1.2 * LITTLE) & (middle < 0.8 * MUCH)].min() > half
    assert slope.max() <= OVERLAP_COST


@pytest.mark.parametrize("c", [MOST_CLASSES, MOST_CLASSES + 1])
def test_very_many_classes_have_no_mix(c):
    models = jax.eval_shape(fit_models, jnp.zeros((2, c, 8)), jnp.zeros(8, int))
    for part, count in ((models.readings, 4), (models.resampled, JACKKNIFE_GROUPS)):
        assert (part.mix is None) == (c > MOST_CLASSES)
        assert part.slope.shape == (count, 2) and part.transition.shape == (count, c, c)


def test_one_parameter_per_class_is_a_matrix_whose_errors_go_to_all_alike():
    generator = np.random.default_rng(0)
    scores, labels = generator.standard_normal((2, 4, 30)), generator.integers(0, 4, 30)
    log_odds = np.array([2.0, 0.0, -1.0, 30.0])
    right = 1 / (1 + np.exp(-log_odds))
    matrix = np.where(np.eye(4) > 0, right[:, None], (1 - right[:, None]) / 3)
    rich = Model(np.array([1.0, 0.5]), np.zeros(4), np.log(matrix), np.array([0.3, -0.5]))
    few = rich._replace(transition=log_odds)
    np.testing.assert_allclose(
        joint_of(few, scores, labels), joint_of(rich, scores, labels), rtol=1e-4, atol=1e-9
    )
    np.testing.assert_allclose(prior_of(few), prior_of(rich), rtol=1e-4)


def test_with_very_many_classes_each_has_one_parameter():
    c = MANY_CLASSES + 1
    models = jax.eval_shape(fit_models, jnp.zeros((2, c, 8)), jnp.zeros(8, int))
    assert models.readings.transition.shape == (4, c)


PAIRS = np.array([[0.9, 0.05, 0.05], [0.4, 0.55, 0.05], [0.05, 0.15, 0.8]])

N = 6000
BORDER = np.array([0.8, USUAL_EXPONENT])  # e(x) up to 0.34

START = Model(
    np.ones(2), np.zeros(3), log_matrix(0.3, 3), np.array([-2, USUAL_EXPONENT]), np.zeros((3, 3))
)


def drawn_from(transition, border):
    """Scores, given labels and the model that they come from.

    Its classes overlap about as much as is free. With less overlap, errors near the border would
    be read as overlap; with more, overlap as errors.
    """
    generator = np.random.default_rng(3)
    slope, bias = np.array([4.0, 2.0]), np.array([0.5, 0, -0.5])
    model = Model(slope, bias, np.log(transition), border, np.zeros((3, 3)))
    scores = 2.5 * generator.standard_normal((2, 3, N))
    probabilities = sum(
        slow_joint(model, scores, np.full(N, label)).sum(axis=0)[None] * np.eye(3)[:, [label]]
        for label in range(3)
    )
    labels = np.sum(generator.random(N) > np.cumsum(probabilities, axis=0), axis=0)
    return scores, labels, model


@jax.jit
def objective(model, scores, labels):
    likelihood = jnp.log(joint(model, scores, labels).sum(axis=0))
    log_p = jax.nn.log_softmax(logits_of(model, scores), axis=0)
    entropy = -jnp.sum(jnp.exp(log_p) * log_p, axis=0)
    cost = N * overlap_cost(entropy.mean()) + BORDER_COST * border_errors(model, log_p).sum()
    return likelihood.sum() - cost + log_prior(model)


@pytest.mark.parametrize("border", [NO_BORDER, BORDER], ids=["class", "border"])
@pytest.mark.parametrize(
    "transition", [np.exp(log_matrix(0.7, 3)), PAIRS], ids=["symmetric", "asymmetric"]
)
@pytest.mark.filterwarnings("ignore:overflow")  # odds of zero
def test_fit_finds_the_model_that_the_labels_come_from(transition, border):
    scores, labels, model = drawn_from(transition, border)
    found = jax.device_get(fitted(scores, labels, np.ones(N), START))
    at_found = objective(found, scores, labels)
    error = posterior_of(found, scores, labels) - slow_posterior(model, scores, labels)
    assert at_found > objective(START, scores, labels) + 100
    assert at_found > objective(model, scores, labels) - 1
    np.testing.assert_allclose(jax.nn.softmax(found.transition), transition, atol=0.06)
    # Overlap has begun to cost, so the slopes found are steeper than the true ones.
    np.testing.assert_allclose(found.slope, 1.2 * model.slope, rtol=0.1)
    np.testing.assert_allclose(highest_of(found), highest_of(model), atol=0.1)
    assert np.abs(error).mean() < 0.02


def highest_of(model):
    """B."""
    return 0.5 / (1 + np.exp(-model.border[0]))


def slow_posterior(model, scores, labels):
    both = slow_joint(model, scores, labels)
    return both / both.sum(axis=0)


def test_fit_is_at_a_maximum():
    generator = np.random.default_rng(7)
    scores, labels, _ = drawn_from(PAIRS, BORDER)
    found = fitted(scores, labels, np.ones(N), START)
    highest = objective(found, scores, labels)
    for _ in range(10):
        near = jax.tree.map(lambda part: part + 0.2 * generator.standard_normal(part.shape), found)
        assert objective(near, scores, labels) < highest


def test_examples_of_no_weight_do_not_count():
    scores, labels, _ = drawn_from(PAIRS, BORDER)
    weights = (np.arange(N) % 4 > 0).astype(float)
    other = np.where(weights > 0, labels, 0)
    straight, changed = (fitted(scores, given, weights, START) for given in (labels, other))
    jax.tree.map(np.testing.assert_array_equal, straight, changed)
    assert not np.array_equal(fitted(scores, other, np.ones(N), START).bias, straight.bias)


def test_stages_remove_what_they_do_not_use():
    model = jax.tree.map(jnp.asarray, make_model("rich"))
    jax.tree.map(np.testing.assert_array_equal, only(model, ANSWER), model)
    assert not only(model, ANSWER._replace(mix=np.float32(0))).mix.any()
    unused = only(model, ANSWER._replace(border=np.float32(0)))
    assert np.all(border_errors(unused, np.log(np.full((4, 3), 0.25))) < 1e-12)
    np.testing.assert_array_equal(unused.mix, model.mix)
    assert only(model._replace(mix=None), ANSWER).mix is None


@pytest.mark.slow
def test_models_go_from_simple_to_rich_to_the_answer():
    scores, labels, _ = drawn_from(PAIRS, BORDER)
    models = jax.device_get(jax.jit(fit_models)(scores, labels))
    simple, mixed, free, answer = (
        jax.tree.map(lambda part, index=index: part[index], models.readings) for index in range(4)
    )
    assert 0 <= models.left < TOLERANCE
    assert not simple.mix.any() and all(model.mix.any() for model in (mixed, free, answer))
    assert all(highest_of(model) < 1e-12 for model in (simple, mixed, free))
    assert highest_of(answer) > 0.1
    highest = objective(answer, scores, labels)
    alone = fitted(scores, labels, np.ones(N), START, ANSWER)
    np.testing.assert_allclose(highest, objective(alone, scores, labels), atol=2)
    assert all(objective(model, scores, labels) < highest for model in (simple, mixed, free))
    # Overlap that costs nothing takes the place of errors near the border.
    doubts = [
        np.mean(1 - np.max(jax.nn.softmax(logits_of(model, scores), axis=0), axis=0))
        for model in (free, answer)
    ]
    assert doubts[0] > doubts[1]


@pytest.mark.slow
def test_resampled_models_are_fits_without_one_group():
    """As if each were fitted alone: the memory that they share decides only how fast."""
    scores, labels, _ = drawn_from(PAIRS, BORDER)
    models = jax.device_get(jax.jit(fit_models)(scores, labels))
    for index in (0, JACKKNIFE_GROUPS - 1):
        model = jax.tree.map(lambda part, index=index: part[index], models.resampled)
        weights = (np.arange(N) % JACKKNIFE_GROUPS != index).astype(float)
        alone = fitted(scores, labels, weights, START, ANSWER)
        difference = posterior_of(model, scores, labels) - posterior_of(alone, scores, labels)
        assert np.abs(difference).mean() < 2e-3


@pytest.mark.parametrize(("slope", "rate"), [(0.5, 0.0), (4.0, 0.2)], ids=["weak", "strong"])
def test_the_cautious_reading_finds_only_errors_that_the_labels_speak_for(slope, rate):
    """Weak features with correct labels look like strong ones with wrong labels."""
    generator = np.random.default_rng(0)
    scores = generator.standard_normal((1, 3, 2000))
    scores -= scores.mean(axis=1, keepdims=True)
    true = np.argmax(slope * scores[0] + generator.gumbel(size=(3, 2000)), axis=0)
    wrong = generator.random(2000) < rate
    labels = np.where(wrong, (true + generator.integers(1, 3, 2000)) % 3, true)
    models = jax.jit(fit_models)(scores, labels)
    overlap = jax.tree.map(lambda parameters: parameters[-2], models.readings)
    found = np.asarray(posterior_of(overlap, scores, labels))
    estimate = 1 - found[labels, np.arange(2000)].mean()
    assert abs(estimate - rate) < 0.05


def test_no_label_is_more_frequent_in_a_class_than_its_own():
    """Half of a large class could else pass for the mislabeled rest of a rare one."""
    generator = np.random.default_rng(0)
    scores = generator.standard_normal((1, 2, 2000))
    likely = 1 / (1 + np.exp(3 - 0.5 * (scores[0, 1] - scores[0, 0])))
    labels = (generator.random(2000) < likely).astype(int)
    start = Model(np.ones(1), np.zeros(2), np.log([[0.98, 0.02], [0.9, 0.1]]), BORDER, None)
    found = fitted(scores, labels, np.ones(2000), start)
    transition = np.asarray(jax.nn.softmax(found.transition, axis=1))
    assert np.all(np.diagonal(transition)[:, None] > 0.95 * transition)
