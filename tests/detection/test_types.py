"""The result of the detector: its fields, their earlier names, and its table."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from detections import pets, promised


@pytest.fixture
def found():
    return pets()[2]


@pytest.mark.parametrize(
    ("old", "new"),
    [("wrong", "error_probability"), ("entry", "entry_penalty"), ("gap", "duality_gap")],
)
def test_earlier_names_are_read_with_a_warning(found, old, new):
    with pytest.warns(DeprecationWarning, match=f"{old} .*{new}") as warned:
        value = getattr(found, old)
    assert value is getattr(found, new)
    assert warned[0].filename == __file__  # the line to change, not that of the property


def test_the_earlier_name_of_the_kind_of_a_promise(found):
    promise = promised(found, 0.1, "suspects").promise
    with pytest.warns(DeprecationWarning, match="of .*kind"):
        assert promise.of == promise.kind == "suspects"


def test_rank_is_the_position_in_the_order(found):
    assert found.rank[found.order[0]] == 1 and found.rank[found.order[-1]] == len(found.order)
    np.testing.assert_array_equal(np.argsort(found.rank), found.order)


def test_a_frame_has_a_row_for_each_example(found, monkeypatch):
    pandas = SimpleNamespace(DataFrame=dict)
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    frame = found.to_frame()
    assert list(frame) == [
        "suspect",
        "error_probability",
        "entry_penalty",
        "rank",
        "suggested",
    ]
    assert {len(column) for column in frame.values()} == {60}
    np.testing.assert_array_equal(frame["suspect"], ~found.clean)
    np.testing.assert_array_equal(frame["rank"], found.rank)


def test_a_frame_with_the_labels_has_columns_of_cleanlab(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    frame = found.to_frame(list("abc" * 20))
    np.testing.assert_array_equal(frame["is_label_issue"], frame["suspect"])
    np.testing.assert_allclose(frame["label_quality"], 1 - found.error_probability)
    assert frame["given_label"].tolist() == frame["label"].tolist() == list("abc" * 20)
    assert frame["predicted_label"] is frame["suggested"]


def test_a_frame_with_pandas_itself(found):
    pandas = pytest.importorskip("pandas")
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 60


def test_without_pandas_there_is_one_sentence(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="^to_frame needs pandas.*pip install pandas.$"):
        found.to_frame()
