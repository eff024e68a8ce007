"""The detector in other people's loops and tables."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import make_data

import spr_jax
from spr_jax import find_label_errors, sample_weights


@pytest.fixture(scope="module")
def made():
    features, given, true = make_data(separation=2.0)
    return features, given, true, find_label_errors(features, given)


def test_weights_are_chances_to_be_right(made):
    features, given, true, found = made
    weights = sample_weights(features, given)
    assert isinstance(weights, np.ndarray) and weights.shape == given.shape
    assert weights.min() >= 0 and weights.max() <= 1
    np.testing.assert_array_equal(weights, 1 - found.wrong)
    right = given == true
    assert weights[right].mean() > 0.9 > 0.2 > weights[~right].mean()
    assert weights.mean() == pytest.approx(right.mean(), abs=0.05)
    assert "sample_weights" in spr_jax.__all__


def test_options_of_the_weights_are_those_of_the_detector(made):
    features, given, *_ = made
    with pytest.raises(ValueError, match="pca_dim is -3"):
        sample_weights(features, given, pca_dim=-3)


def test_rank_is_the_place_in_the_order(made):
    found = made[-1]
    assert found.rank[found.order[0]] == 1 and found.rank[found.order[-1]] == len(found.order)
    np.testing.assert_array_equal(np.argsort(found.rank), found.order)


def test_a_frame_has_a_row_for_each_example(made, monkeypatch):
    pandas = SimpleNamespace(DataFrame=dict)
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    given, found = made[1], made[-1]
    frame = found.to_frame()
    assert list(frame) == ["suspect", "wrong", "entry", "rank", "suggested"]
    assert {len(column) for column in frame.values()} == {len(given)}
    np.testing.assert_array_equal(frame["suspect"], ~found.clean)
    np.testing.assert_array_equal(frame["rank"], found.rank)


def test_a_frame_with_pandas_itself(made):
    pandas = pytest.importorskip("pandas")
    frame = made[-1].to_frame()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == len(made[1])


def test_without_pandas_there_is_one_sentence(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="^to_frame needs pandas.*pip install pandas.$"):
        made[-1].to_frame()
