"""Features and labels in whatever a user holds them."""

from collections.abc import Sequence

import numpy as np
import pytest
from conftest import make_data

from spr_jax import find_label_errors, sample_weights
from spr_jax.io import inputs
from spr_jax.io.inputs import (
    check_features,
    check_labels,
    feature_array,
    label_array,
    principal_components,
)

FEATURES = np.array([[1.5, 2.0], [3.0, -4.0], [0.0, 0.25]])


class Column(Sequence):
    """A lazy column, as Hugging Face's: a list if it is sliced, slow if it is indexed."""

    def __init__(self, values):
        self.values = values

    def __getitem__(self, index):
        assert isinstance(index, slice), "one by one is slow"
        return self.values[index]

    def __len__(self):
        return len(self.values)


class Table:
    """A data set as Hugging Face's."""

    def __init__(self, **columns):
        self.columns, self.column_names = columns, list(columns)

    def __getitem__(self, name):
        return Column(self.columns[name])

    def with_format(self, name):
        raise NotImplementedError


def test_columns_of_a_data_set():
    np.testing.assert_array_equal(feature_array(Column(FEATURES.tolist())), FEATURES)
    assert label_array(Column(["a", "b"])).tolist() == ["a", "b"]
    whole = Table(u=FEATURES[:, 0].tolist(), v=FEATURES[:, 1].tolist())
    np.testing.assert_array_equal(feature_array(whole), FEATURES)
    np.testing.assert_array_equal(feature_array(Table(vector=FEATURES.tolist())), FEATURES)


def test_data_sets_of_hugging_face():
    datasets = pytest.importorskip("datasets")
    if not hasattr(datasets, "Dataset"):
        pytest.skip("this is our folder of tests")
    table = datasets.Dataset.from_dict({"vector": FEATURES.tolist(), "label": ["a", "b", "a"]})
    np.testing.assert_array_equal(feature_array(table["vector"]), FEATURES)
    np.testing.assert_array_equal(feature_array(table.select_columns("vector")), FEATURES)
    assert label_array(table["label"]).tolist() == ["a", "b", "a"]


def test_tensors():
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(FEATURES, requires_grad=True)
    np.testing.assert_array_equal(feature_array(tensor), FEATURES)
    np.testing.assert_array_equal(feature_array(list(tensor)), FEATURES)
    for kind in (torch.bfloat16, torch.float16):  # the values are exact in both
        half = feature_array(tensor.to(kind))
        assert half.dtype == np.float32
        np.testing.assert_array_equal(half, FEATURES)
    assert check_labels(torch.tensor([2, 0, 2]), 3)[1].tolist() == [1, 0, 1]
    assert check_labels(list(torch.tensor([2, 0, 2])), 3)[1].tolist() == [1, 0, 1]


def test_bfloat16_of_jax():
    import jax.numpy as jnp

    np.testing.assert_array_equal(feature_array(jnp.asarray(FEATURES, jnp.bfloat16)), FEATURES)


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["b", "a", "b"], ["a", "b"]),
        ([True, False, True], [False, True]),
        ([np.str_("b"), "a", "b"], ["a", "b"]),
        (np.array([1, np.int64(0), True], object), [0, 1]),
        (np.array(["b", "a", "b"], np.dtypes.StringDType()), ["a", "b"]),
        (np.array([b"b", b"a", b"b"]), ["a", "b"]),
        (("b", "a", "b"), ["a", "b"]),
    ],
)
def test_labels_of_each_type(values, classes):
    found, codes = check_labels(values, 3)
    assert found.tolist() == classes and codes.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("kind", "values", "classes"),
    [
        ("category", ["b", "a", "b"], ["a", "b"]),
        ("category", [7, 3, 7], [3, 7]),
        ("string", ["b", "a", "b"], ["a", "b"]),
        ("str", ["b", "a", "b"], ["a", "b"]),
        ("Int64", [7, 3, 7], [3, 7]),
        ("boolean", [True, False, True], [False, True]),
        ("Float64", [7.0, 3.0, 7.0], [3, 7]),
    ],
)
def test_labels_of_each_type_of_pandas(kind, values, classes):
    pandas = pytest.importorskip("pandas")
    labels = pandas.Series(values, dtype=kind, index=[5, 9, 7])
    found, codes = check_labels(labels, 3)
    assert found.tolist() == classes and codes.tolist() == [1, 0, 1]
    values[1] = None
    with pytest.raises(ValueError, match="1 labels are missing, .* index 1"):
        check_labels(pandas.Series(values, dtype=kind), 3)


def test_frames_of_features():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(FEATURES, columns=["u", "v"])
    np.testing.assert_array_equal(feature_array(frame), FEATURES)
    mixed = frame.assign(v=frame.v.astype("Float64"), w=[True, False, True])
    np.testing.assert_array_equal(feature_array(mixed)[:, :2], FEATURES)
    vectors = pandas.Series(list(FEATURES))  # a vector in every cell
    np.testing.assert_array_equal(feature_array(vectors), FEATURES)
    mixed.loc[1, "v"] = None
    with pytest.raises(ValueError, match="1 rows .* NaN .* index 1"):
        check_features(mixed)
    with pytest.raises(ValueError, match="column 'city', the first is 'Rome'"):
        feature_array(frame.assign(city=["Rome", "Oslo", "Bern"]))
    with pytest.raises(ValueError, match="rows differ in length"):
        feature_array(pandas.Series([[1.0, 2.0], [3.0], [4.0, 5.0]]))
    with pytest.raises(ValueError, match="type object"):
        feature_array(frame.assign(when=pandas.Timestamp("2020-01-01")))


def test_missing_labels_of_each_kind():
    for nothing in (None, float("nan"), np.datetime64("NaT")):
        with pytest.raises(ValueError, match="2 labels are missing, the first at index 1"):
            label_array(np.array(["a", nothing, "b", nothing], object))


def test_a_sparse_matrix_is_written_out_or_reduced(monkeypatch):
    sparse = pytest.importorskip("scipy.sparse")
    features, labels, _ = make_data(300, d=60)
    features[np.random.default_rng(0).random(features.shape) < 0.5] = 0
    for kind in (sparse.csr_matrix, sparse.coo_array, sparse.csc_matrix):
        np.testing.assert_array_equal(feature_array(kind(features)), features)
    monkeypatch.setattr(inputs, "MAX_DENSE", 0)
    reduced = feature_array(sparse.csr_array(features), components=20)
    left, values, _ = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
    exact = left * values
    assert reduced.shape == (300, 20)
    gram = exact[:, :5] @ exact[:, :5].T  # components are determined up to their signs
    np.testing.assert_allclose(reduced[:, :5] @ reduced[:, :5].T, gram, atol=1e-3 * gram.max())
    np.testing.assert_array_equal(reduced, feature_array(sparse.csr_array(features), components=20))


@pytest.mark.slow
def test_a_reduced_sparse_matrix_gives_the_same_answer(monkeypatch):
    sparse = pytest.importorskip("scipy.sparse")
    features, labels, _ = make_data(300, d=60)
    features[features < 1] = 0
    dense = find_label_errors(features, labels, pca_dim=8)
    monkeypatch.setattr(inputs, "MAX_DENSE", 0)
    found = find_label_errors(sparse.csr_matrix(features), labels, pca_dim=8)
    # Of 60 directions, all alike but a few, others are among the 32 in which neighbors are sought.
    np.testing.assert_allclose(found.error_probability, dense.error_probability, atol=0.05)
    np.testing.assert_allclose(found.noise.rate, dense.noise.rate, atol=2e-3)
    assert (found.clean == dense.clean).mean() > 0.99


def test_what_is_wrong_with_a_sparse_matrix_is_said(monkeypatch):
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.csr_matrix(np.eye(5))
    matrix.data[3] = np.inf
    for limit in (0, 100):
        monkeypatch.setattr(inputs, "MAX_DENSE", limit)
        with pytest.raises(ValueError, match="1 rows .* index 3"):
            check_features(matrix)


def test_as_many_components_as_a_small_matrix_has():
    sparse = pytest.importorskip("scipy.sparse")
    assert principal_components(sparse.csr_matrix(np.eye(4)), 20).shape[0] == 4


@pytest.mark.slow
def test_frames_give_what_arrays_give():
    pandas = pytest.importorskip("pandas")
    features, labels, _ = make_data(200)
    names = np.array(["ant", "bee", "cow", "dog"])[labels]
    frame = pandas.DataFrame(features).assign(label=pandas.Categorical(names))
    weights = sample_weights(frame.drop(columns="label"), frame["label"])
    np.testing.assert_array_equal(weights, sample_weights(features, names))
    found = find_label_errors(features, names)
    table = found.to_frame(frame["label"])
    assert table["given_label"].tolist() == names.tolist()
    np.testing.assert_array_equal(table["is_label_issue"], ~found.clean)
