"""One's own vectors: the files they come in, and what people get wrong."""

import numpy as np
import pytest

from spr_jax.datasets import DATASETS
from spr_jax.datasets.features import Given, dataset_of

load = DATASETS["features"]


def vectors(n=40, k=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, k)).astype(np.float32)


@pytest.fixture
def arrays():
    labels = np.arange(40) % 4
    return {
        "features": 5 + 2 * vectors(),
        "labels": labels,
        "true_labels": np.roll(labels, 1),
        "test_features": 5 + 2 * vectors(8, seed=1),
        "test_labels": np.arange(8) % 4,
    }


@pytest.fixture
def stored(tmp_path, arrays):
    def store(**changed):
        path = tmp_path / "embeddings.npz"
        chosen = {name: value for name, value in (arrays | changed).items() if value is not None}
        np.savez(path, **chosen)
        return str(path)

    return store


def test_a_file_with_everything(stored, arrays):
    found = load(path=stored())
    assert found.class_names == ("0", "1", "2", "3") and found.name == "features"
    assert found.train.images.shape == (40, 3) and found.train.images.dtype == np.float32
    np.testing.assert_array_equal(found.train.labels, arrays["labels"])
    np.testing.assert_array_equal(found.train.true_labels, arrays["true_labels"])
    np.testing.assert_array_equal(found.tests["test"].labels, arrays["test_labels"])
    # Both splits are seen in the scale of the training data.
    center = np.median(arrays["features"], axis=0)
    np.testing.assert_allclose(np.median(found.train.images, axis=0), 0, atol=1e-6)
    quotient = (arrays["test_features"] - center) / found.tests["test"].images
    np.testing.assert_allclose(quotient, np.broadcast_to(quotient[0], (8, 3)), rtol=1e-3)


def test_some_of_each_class_are_held_out_where_there_is_no_test_set(stored):
    found = load(path=stored(test_features=None, test_labels=None), test_share=0.25)
    assert np.bincount(found.tests["test"].labels, minlength=4).sum() == 8
    assert len(found.train.labels) == 32
    # Judged by the truth, where it is known.
    unknown = load(path=stored(test_features=None, test_labels=None, true_labels=None))
    assert unknown.train.true_labels is None and len(unknown.tests["test"].labels) == 8


def test_names_as_labels_and_a_class_without_examples(stored, arrays):
    names = np.array(["ant", "bee", "cat", "dog"])
    text = load(path=stored(**{k: names[arrays[k]] for k in arrays if k.endswith("labels")}))
    assert text.class_names == ("ant", "bee", "cat", "dog")
    np.testing.assert_array_equal(text.train.labels, arrays["labels"])
    numbered = load(path=stored(class_names=np.append(names, "eel")))
    assert numbered.num_classes == 5


def test_other_labels_of_the_same_examples(stored, arrays, tmp_path):
    np.save(tmp_path / "worst.npy", arrays["true_labels"])
    found = load(path=stored(), labels=str(tmp_path / "worst.npy"))
    np.testing.assert_array_equal(found.train.labels, arrays["true_labels"])
    assert found.tests["test"].images.shape == (8, 3)


def test_an_array_with_a_file_of_labels_and_a_table(arrays, tmp_path):
    np.save(tmp_path / "x.npy", arrays["features"])
    lines = ["label", *map(str, arrays["labels"])]
    (tmp_path / "y.csv").write_text("\n".join(lines))
    found = load(path=str(tmp_path / "x.npy"), labels=str(tmp_path / "y.csv"))
    both = np.column_stack([arrays["features"], arrays["labels"]])
    rows = [f"{a},{b},{c},{int(y)}" for a, b, c, y in both]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,kind", *rows]))
    table = load(path=str(tmp_path / "t.csv"), label="kind")
    np.testing.assert_allclose(table.train.images, found.train.images, atol=1e-4)
    np.testing.assert_array_equal(table.train.labels, found.train.labels)


@pytest.mark.parametrize(
    "changed, sentence",
    [
        ({"labels": None}, "expected one named 'labels'"),
        ({"test_labels": None}, "expected one named 'test_labels'"),
        ({"labels": np.zeros(40, int)}, "All labels are 0; expected at least two classes"),
        ({"labels": np.arange(39) % 4}, "40 rows of features but 39 labels"),
        ({"test_features": vectors(8, 5)}, "expected 3 columns, as in training"),
        ({"test_labels": np.full(8, 9)}, "The test labels hold '9' at index 0"),
        ({"test_labels": np.arange(7) % 4}, "8 rows of test features but 7 test labels"),
        ({"features": np.full((40, 3), np.nan)}, "40 rows of the features hold NaN"),
        ({"test_features": np.full((8, 3), np.inf)}, "8 rows of the features hold NaN or infinite"),
        ({"true_labels": np.arange(39) % 4}, "40 labels and 39 true ones"),
    ],
)
def test_what_cannot_be_used_is_named(stored, changed, sentence):
    with pytest.raises(ValueError, match=sentence):
        load(path=stored(**changed))


def test_paths_that_do_not_lead_to_labels(tmp_path):
    with pytest.raises(ValueError, match="dataset.path is empty"):
        load()
    np.save(tmp_path / "x.npy", vectors())
    with pytest.raises(ValueError, match="give their file as dataset.labels"):
        load(path=str(tmp_path / "x.npy"))
    few = Given(vectors(4), np.arange(4))
    with pytest.raises(ValueError, match="No class has 5 examples"):
        np.savez(tmp_path / "few.npz", features=few.features, labels=few.labels)
        load(path=str(tmp_path / "few.npz"))


def test_constant_columns_and_wild_cells_stay_finite():
    features = vectors()
    features[:, 1] = 7
    features[3, 0] = -99999
    found = dataset_of(Given(features, np.arange(40) % 4)).train.images
    assert np.isfinite(found).all() and np.abs(found).max() <= 8 and (found[:, 1] == 0).all()


def test_components_keep_what_varies_and_the_distances_between_examples(tmp_path):
    """Orthonormal directions: as many as asked for, of the scaled columns; the same for tests."""
    rng = np.random.default_rng(0)
    inner = rng.standard_normal((300, 4))
    X = (inner @ rng.standard_normal((4, 20)) + 1e-3 * rng.standard_normal((300, 20))) * 7 + 3
    y = np.arange(300) % 3
    path = tmp_path / "wide.npz"
    np.savez(path, features=X[:250], labels=y[:250], test_features=X[250:], test_labels=y[250:])
    whole, few = load(path=str(path)), load(path=str(path), components=4)
    assert few.train.images.shape == (250, 4) and few.tests["test"].images.shape == (50, 4)
    for split, other in [(whole.train, few.train), (whole.tests["test"], few.tests["test"])]:
        apart = split.images[:10] - split.images[10:20]
        close = other.images[:10] - other.images[10:20]
        np.testing.assert_allclose(
            np.linalg.norm(close, axis=1), np.linalg.norm(apart, axis=1), rtol=0.01
        )
    assert load(path=str(path), components=20).train.images.shape == (250, 20)
    with pytest.raises(ValueError, match="components is -1; expected"):
        load(path=str(path), components=-1)
