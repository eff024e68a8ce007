"""The scikit-learn estimator: its conventions, what it finds, what people get wrong."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import make_data
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from spr_jax import SPRClassifier

NAMES = np.array(["ant", "bee", "cat"])


@pytest.fixture(scope="module")
def data():
    """Vectors, given labels with 30 % errors, true labels; vectors and labels to test with."""
    features, given, true = make_data(300, 6, 3, 0.3, separation=3)
    return features[:200], NAMES[given[:200]], NAMES[true[:200]], features[200:], NAMES[true[200:]]


@pytest.fixture(scope="module")
def fitted(data):
    return SPRClassifier(random_state=1).fit(data[0], data[1])


@pytest.mark.slow
def test_it_learns_the_truth_from_wrong_labels(fitted, data):
    features, given, true, others, test = data
    assert fitted.score(others, test) > 0.95
    assert fitted.score(features, true) > 0.95 > fitted.score(features, given)
    assert fitted.classes_.tolist() == NAMES.tolist() and fitted.n_features_in_ == 6
    probability = fitted.predict_proba(others)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    np.testing.assert_array_equal(NAMES[probability.argmax(axis=1)], fitted.predict(others))


@pytest.mark.slow
def test_it_says_what_it_found_about_the_labels(fitted, data):
    wrong = data[1] != data[2]
    assert fitted.noise_.rate == pytest.approx(wrong.mean(), abs=0.06)
    assert np.mean(fitted.clean_ == ~wrong) > 0.9
    assert np.mean(wrong[fitted.detection_.order[:20]]) > 0.9
    assert set(fitted.detection_.suggested) <= set(NAMES)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_network_also_after_pickling(fitted, data):
    again = pickle.loads(pickle.dumps(clone(fitted).fit(data[0], data[1])))
    np.testing.assert_array_equal(again.predict_proba(data[3]), fitted.predict_proba(data[3]))


@pytest.mark.slow
def test_a_prediction_leaves_the_classifier_as_it_is(fitted, data):
    model = pickle.loads(pickle.dumps(fitted))  # which has predicted nothing yet
    before = dict(vars(model))
    model.predict_proba(data[0][:3])
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items())


def test_it_works_in_a_pipeline_and_a_search(data):
    model = make_pipeline(StandardScaler(), SPRClassifier(epochs=3))
    search = GridSearchCV(model, {"sprclassifier__hidden": [0, 16]}, cv=2)
    search.fit(data[0], data[1])
    assert search.best_params_["sprclassifier__hidden"] in (0, 16)
    assert search.score(data[3], data[4]) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("method", ["co_teaching", "forward", "pencil", "small_loss"])
def test_other_methods_can_be_asked_for(method, data):
    """Two networks, two stages, labels that are learned, SPR's training with another selection."""
    options = {
        "forward": {"estimate_epochs": 2},
        "pencil": {"warmup": 1, "label_epochs": 2},
    }
    model = SPRClassifier(method, epochs=4, options=options.get(method))
    assert np.isfinite(model.fit(data[0], data[1]).predict_proba(data[3])).all()


@pytest.mark.parametrize(
    "options, explained, told",
    [({}, True, 0.31), ({}, False, 0.2), ({"forget_rate": 0.1}, True, 0.1)],
)
def test_a_method_that_is_told_the_noise_rate_is_told_the_estimate(options, explained, told):
    """Unless the user says it, or nothing can be estimated."""
    model = SPRClassifier("co_teaching", options=options)
    model.noise_ = SimpleNamespace(rate=0.31, explained=explained)
    method = {"forget_rate": 0.2} | options
    model._tell_noise_rate(method)
    assert method == {"forget_rate": told}


@pytest.mark.slow
def test_weights_decide_how_much_an_example_counts(data):
    """Two labels for the same vectors: the heavier one is learned, one of no weight is not seen."""
    features, _, true, others, test = data
    both = np.concatenate([features, features])
    labels = np.concatenate([true, np.roll(NAMES, 1)[np.searchsorted(NAMES, true)]])
    weights = np.repeat([9.0, 1.0], len(features))
    model = SPRClassifier("ce", epochs=30, batch_size=64, learning_rate=0.1)
    assert model.fit(both, labels, sample_weight=weights).score(others, test) > 0.9
    assert model.fit(both, labels, sample_weight=weights[::-1]).score(others, test) < 0.1
    alone = clone(model).fit(features, true).predict_proba(others)
    zero = clone(model).fit(both, labels, sample_weight=np.repeat([1.0, 0.0], len(features)))
    np.testing.assert_allclose(zero.predict_proba(others), alone, atol=1e-6)


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"method": "sprr"}, "method is 'sprr'; did you mean 'spr'?"),
        ({"method": "oracle"}, "needs the true labels"),
        ({"options": {"penalty_wait": 1}}, "penalty_weight"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"hidden": -3}, "hidden is -3"),
    ],
)
def test_options_that_cannot_work_are_named(data, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        SPRClassifier(**change).fit(data[0], data[1])


@pytest.mark.slow
def test_data_that_cannot_be_used_is_named(fitted, data):
    with pytest.raises(ValueError, match="one class"):
        SPRClassifier().fit(data[0], np.full(200, "ant"))
    with pytest.raises(ValueError, match="NaN"):
        SPRClassifier().fit(np.full((9, 2), np.nan), np.arange(9) % 3)
    with pytest.raises(ValueError, match="has 4 features, but SPRClassifier is expecting 6"):
        fitted.predict(np.zeros((3, 4)))
    with pytest.raises(NotFittedError):
        SPRClassifier().predict(data[3])


@pytest.mark.slow
def test_few_examples_constant_columns_and_a_class_of_one():
    features = np.array([[0.0, 7], [0.2, 7], [5.0, 7], [5.1, 7], [9.0, 7]])
    model = SPRClassifier("ce", epochs=30, hidden=8).fit(features, ["a", "a", "b", "b", "c"])
    assert model.detection_ is None and model.noise_ is None and model.clean_.all()
    assert model.predict(features[:4]).tolist() == ["a", "a", "b", "b"]
