"""Input that the detector refuses, described in one sentence."""

import inspect

import numpy as np
import pytest

from spr_jax import find_label_errors
from spr_jax.detection.options import DetectorOptions

GOOD = np.random.default_rng(0).random((6, 4)), np.array([0, 0, 0, 1, 1, 1])


def with_value(value):
    features = GOOD[0].copy()
    features[[2, 4], 1] = value
    return features


@pytest.mark.parametrize(
    ("features", "labels", "says"),
    [
        (GOOD[0], GOOD[1][:5], "6 rows of features but 5 labels"),
        (with_value(np.nan), GOOD[1], "2 rows .* index 2"),
        (with_value(-np.inf), GOOD[1], "2 rows .* index 2"),
        (with_value(1e300), GOOD[1], "2 rows .* index 2"),
        (GOOD[0], GOOD[1] + 0.5, "6 labels .* 0.5 at index 0"),
        (GOOD[0], np.array([0, 1, 0, 1, np.nan, 0]), "1 labels are missing, .* index 4"),
        (GOOD[0], GOOD[1] - 1, "3 labels .* -1 at index 0"),
        (GOOD[0], GOOD[1] * 0, "[Ll]abels are 0"),
        (GOOD[0], np.array([None] * 6), "6 labels are missing, .* index 0"),
        (GOOD[0], np.array([0, "a", 0, "a", 0, "a"], object), "Labels .* object"),
        (GOOD[0][:0], GOOD[1][:0], "Features .*[(]0, 4[)]"),
        (GOOD[0][:, :0], GOOD[1], "Features .*[(]6, 0[)]"),
        (GOOD[0][0], GOOD[1], "Features .*[(]4,[)]"),
        (GOOD[0].astype(str), GOOD[1], "Features .*<U"),
        (GOOD[0], GOOD[1][:, None], "Labels .*[(]6, 1[)]"),
        (GOOD[0], GOOD[1] * 1e300, "3 labels .* index 3"),
        ([[1.0, 2.0], [3.0]], [0, 1], "Features .* rows"),
    ],
)
def test_bad_arrays_are_described(features, labels, says):
    with pytest.raises(ValueError, match=says):
        find_label_errors(features, labels)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"keep": 0}, "keep is 0"),
        ({"keep": 1.0}, "keep is 1.0"),
        ({"keep": float("nan")}, "keep is nan"),
        ({"per_class": 0}, "per_class is 0; expected 1"),
        ({"pca_dim": -3}, "pca_dim is -3; expected 1"),
        ({"classes_per_group": 1}, "classes_per_group is 1; expected 2"),
        ({"per_class": 2.5}, "per_class is 2.5; expected 1"),
        ({"keep": "0.5"}, "keep is '0.5'"),
        ({"keep": np.array([0.5, 0.5])}, "keep is array"),
        ({"max_noise_in_clean": 0.0}, "max_noise_in_clean is 0.0; .* 0 and 1"),
        ({"max_false_alarms": 1}, "max_false_alarms is 1; .* 0 and 1"),
        ({"keep": 0.5, "max_false_alarms": 0.1}, "max_false_alarms=0.1 and keep=0.5"),
        ({"seed": -1}, "seed is -1; .* 0 to 4294967295"),
        ({"seed": 10**30}, "seed is 10+"),
    ],
)
def test_bad_options_are_described(option, says):
    with pytest.raises(ValueError, match=says):
        find_label_errors(*GOOD, **option)


def test_options_are_the_keywords_of_the_detector():
    keywords = inspect.signature(find_label_errors).parameters.values()
    defaults = {each.name: each.default for each in keywords if each.kind is each.KEYWORD_ONLY}
    assert DetectorOptions()._asdict() == defaults
