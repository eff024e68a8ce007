"""Arrays and labels from a user's files."""

import numpy as np
import pytest

from spr_jax.io.arrays import read_features, read_labels


def test_features_from_each_format(tmp_path):
    features = np.random.default_rng(0).random((5, 3)).astype(np.float32)
    np.save(tmp_path / "a.npy", features)
    np.savez(tmp_path / "a.npz", features=features, labels=np.arange(5))
    np.savez(tmp_path / "one.npz", features)
    np.savetxt(tmp_path / "a.csv", features, delimiter=",")
    np.savetxt(tmp_path / "named.csv", features, delimiter=",", header="u,v,w", comments="")
    np.savetxt(tmp_path / "counted.csv", features, delimiter=",", header="0,1,2", comments="")
    for name in ("a.npy", "a.npz", "one.npz", "a.csv", "named.csv", "counted.csv"):
        np.testing.assert_allclose(read_features(tmp_path / name), features, rtol=1e-6)


def test_labels_from_each_format(tmp_path):
    np.save(tmp_path / "a.npy", [0, 2, 1])
    np.savez(tmp_path / "a.npz", labels=[0, 2, 1], features=np.zeros(3))
    (tmp_path / "a.csv").write_text("0\n2\n1\n")
    (tmp_path / "named.csv").write_text("index,label\n7,0\n8,2\n9,1\n")
    for name in ("a.npy", "a.npz", "a.csv", "named.csv"):
        assert read_labels(tmp_path / name).tolist() == [0, 2, 1]


def test_text_labels_are_class_names(tmp_path):
    (tmp_path / "a.csv").write_text('label\ncat\n"dog, wet"\n', encoding="utf-8-sig")
    assert read_labels(tmp_path / "a.csv").tolist() == ["cat", "dog, wet"]
    np.save(tmp_path / "bytes.npy", np.array([b"cat", b"dog"]))
    assert read_labels(tmp_path / "bytes.npy").tolist() == ["cat", "dog"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.npy", None, "No such file"),
        ("a.txt", b"1,2", ".npy, .npz or .csv"),
        ("a.npy", b"not numpy", "not an array"),
        ("a.npy", b"", "cut off"),
        ("a.npz", b"PK\x03\x04cut", "cut off"),
        ("a.csv", b"", "holds no rows"),
        ("a.csv", b"1,2\n3\n", "Line 2 of .* 1 columns .* 2"),
        ("a.csv", b"1,2\n3,four\n", "text or empty cells"),
        ("a.csv", b"1,\n3,4\n", "text or empty cells"),
        ("a.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4', \n", "cut off|not an array"),
        ("a.csv", b"\xff\xfe\x00", "UTF-8"),
    ],
)
def test_unreadable_features_are_named(tmp_path, name, content, says):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=says) as error:
        read_features(path)
    assert str(path) in str(error.value)


def test_numbers_too_large_for_integers_are_names_or_refused_later(tmp_path):
    (tmp_path / "a.csv").write_text(f"{10**25}\n{10**26}\n")
    assert len(read_labels(tmp_path / "a.csv")) == 2


def test_labels_in_several_columns_need_a_name(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    with pytest.raises(ValueError, match="2 columns .*'label'"):
        read_labels(tmp_path / "a.csv")


def test_ambiguous_archive_names_its_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3), y=np.zeros(3))
    with pytest.raises(ValueError, match=r"\['x', 'y'\].*'features'"):
        read_features(tmp_path / "a.npz")


def test_pickles_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"code": 1}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="without pickling"):
        read_labels(tmp_path / "a.npy")
