"""Features and labels from the columns of one table."""

import csv

import numpy as np
import pytest

from spr_jax.io.tables import read_columns

TABLE = """file,size,weight,city,kind
a.png,1,100,Rome,cat
b.png,2,300,Oslo,dog
c.png,3,200,Bern,cat
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "pets.csv"
    path.write_text(TABLE)
    return path


def standardized(*columns):
    features = np.stack(columns, axis=1).astype(float)
    return (features - features.mean(axis=0)) / features.std(axis=0)


def test_all_other_columns_of_numbers_are_features(table):
    chosen = read_columns(table, label="kind")
    assert chosen.labels.tolist() == ["cat", "dog", "cat"]
    np.testing.assert_allclose(chosen.features, standardized([1, 2, 3], [100, 300, 200]))
    assert (chosen.used, chosen.unused) == (["size", "weight"], ["city"])
    assert chosen.names.tolist() == ["a.png", "b.png", "c.png"]
    assert chosen.in_words() == "Features: 2 numbers (size, weight); not numbers, left out: city."


def test_columns_can_be_chosen(table):
    chosen = read_columns(table, label="size", features=["weight"], names="city")
    assert chosen.labels.tolist() == [1, 2, 3] and chosen.names.tolist() == ["Rome", "Oslo", "Bern"]
    np.testing.assert_allclose(chosen.features, standardized([100, 300, 200]))
    assert chosen.unused == []


def test_ids_keep_their_zeros_and_an_unnamed_index_is_no_feature(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(",id,x,label\n0,007,1,a\n1,012,5,b\n")  # as pandas writes a frame
    chosen = read_columns(path, label="label", names="id")
    assert chosen.names.tolist() == ["007", "012"] and chosen.used == ["x"]


def test_a_constant_column_does_no_harm(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,label\n1,5,a\n2,5,b\n")
    features = read_columns(tmp_path / "a.csv", label="label").features
    np.testing.assert_array_equal(features, [[-1, 0], [1, 0]])


def test_hostile_names_are_text(tmp_path):
    labels = ["=cmd|' /C calc'!A0", 'a "quoted"\nlabel', "naïve, 猫", "-1+2"]
    path = tmp_path / "a.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("x", "=kind\n"), *enumerate(labels)])
    assert read_columns(path, label="=kind\n").labels.tolist() == labels


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        (TABLE, {"label": "kinds"}, "no column 'kinds'; did you mean 'kind'?"),
        (TABLE, {"label": "KIND"}, "no column 'KIND'; did you mean 'kind'?"),
        (TABLE, {"label": "?"}, "no column '[?]'; it has file, size, weight, city, kind."),
        (TABLE, {"label": "kind", "features": ["sizes"]}, "no column 'sizes'; .*'size'"),
        (TABLE, {"label": "kind", "names": "files"}, "no column 'files'; .*'file'"),
        (TABLE, {"label": "kind", "features": ["city"]}, "'city' of .* not hold numbers"),
        (TABLE, {"label": "kind", "features": ["kind"]}, "'kind' is both"),
        ("x,label\n1,a\n,b\n,c\n", {"label": "label"}, "'x' .* empty in 2 rows, .* index 1"),
        ("x,label\n1,a\n2,\n", {"label": "label"}, "1 labels are missing, .* index 1"),
        ("x,x,label\n1,2,a\n", {"label": "label"}, "several columns 'x'"),
        ("x,label\n1,a,b\n", {"label": "label"}, "3 columns and 2 names"),
        ("city,label\nRome,a\n", {"label": "label"}, "no other column of numbers"),
        ("x,label\n", {"label": "label"}, "no rows"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(tmp_path, content, options, says):
    path = tmp_path / "table.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=says) as error:
        read_columns(path, **options)
    assert str(error.value).count("\n") == 0


def test_many_columns_are_not_all_listed(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text(
        ",".join(f"column{number}" for number in range(800)) + "\n" + "1," * 799 + "1\n"
    )
    with pytest.raises(ValueError, match="column9 and 790 more") as error:
        read_columns(path, label="?")
    assert len(str(error.value)) < 300


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match=".csv or .parquet"):
        read_columns(tmp_path / "a.xlsx", label="x")
    with pytest.raises(ValueError, match="No such file"):
        read_columns(tmp_path / "a.csv", label="x")


class TestParquet:
    @pytest.fixture
    def write(self, tmp_path):
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        def write(**columns):
            parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
            return tmp_path / "a.parquet"

        return write

    def test_numbers_and_text(self, write):
        path = write(x=[1.0, 3.0], flag=[True, False], text=["01", "02"], label=["01", "b"])
        chosen = read_columns(path, label="label", names="text")
        assert chosen.labels.tolist() == ["01", "b"] and chosen.names.tolist() == ["01", "02"]
        np.testing.assert_array_equal(chosen.features, [[-1], [1]])

    def test_vectors_are_taken_as_they_are(self, write):
        path = write(vector=[[1.0, 2.0], [3.0, 5.0]], label=[1, 0])
        chosen = read_columns(path, label="label")
        np.testing.assert_array_equal(chosen.features, [[1, 2], [3, 5]])
        path = write(vector=[[1.0, 2.0], [3.0, 5.0]], x=[1, 2], label=[1, 0])
        with pytest.raises(ValueError, match="'vector' and 1 other"):
            read_columns(path, label="label")
        chosen = read_columns(path, label="label", features=["vector"])
        np.testing.assert_array_equal(chosen.features, [[1, 2], [3, 5]])

    def test_what_is_wrong_is_said(self, write, tmp_path):
        ragged = write(vector=[[1.0], [3.0, 5.0]], label=[1, 0])
        with pytest.raises(ValueError, match="'vector' .* not hold numbers"):
            read_columns(ragged, label="label", features=["vector"])
        with pytest.raises(ValueError, match="1 labels are missing, .* index 1"):
            read_columns(write(x=[1, 2], label=["a", None]), label="label")
        with pytest.raises(ValueError, match="'x' .* empty in 1 rows, .* index 0"):
            read_columns(write(x=[None, 2], label=["a", "b"]), label="label")
        (tmp_path / "b.parquet").write_bytes(b"not parquet")
        with pytest.raises(ValueError, match="b.parquet: it is not a Parquet file"):
            read_columns(tmp_path / "b.parquet", label="label")
        with pytest.raises(ValueError, match="No such file"):
            read_columns(tmp_path / "c.parquet", label="label")


def test_without_pyarrow_there_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ValueError, match="needs pyarrow, .* pip install pyarrow"):
        read_columns(tmp_path / "a.parquet", label="x")
