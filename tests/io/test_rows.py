"""Rows of features in files, read block by block."""

import numpy as np
import pytest

from spr_jax.io.rows import Rows, open_rows

FEATURES = np.random.default_rng(0).random((23, 5)).astype(np.float32)


def write(folder, parts, names=None):
    folder.mkdir(exist_ok=True)
    names = names or [f"part_{number}.npy" for number in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        np.save(folder / name, part)
    return folder


def test_blocks_of_any_size_are_the_rows(tmp_path):
    folder = write(tmp_path / "shards", np.split(FEATURES, [4, 5, 17]))
    rows = open_rows(folder)
    assert len(rows) == 23 and rows.shape == FEATURES.shape and rows.dtype == np.float32
    for size in (1, 4, 7, 23, 100):
        starts, blocks = zip(*rows.blocks(size), strict=True)
        assert starts == tuple(range(0, 23, size))
        np.testing.assert_array_equal(np.concatenate(blocks), FEATURES)
    index = np.array([22, 0, 4, 4, 16, 17])
    np.testing.assert_array_equal(rows.take(index), FEATURES[index])


def test_numbers_in_names_count_as_numbers(tmp_path):
    parts = np.array_split(FEATURES, 12)
    folder = write(tmp_path / "shards", parts)  # part_10 comes after part_9
    rows = open_rows(folder)
    np.testing.assert_array_equal(rows.read(0, 23), FEATURES)
    files = sorted(folder.iterdir(), reverse=True)
    given = open_rows([str(file) for file in files])  # a list keeps its order
    np.testing.assert_array_equal(given.read(0, 23), np.concatenate([np.load(f) for f in files]))


def test_arrays_in_memory_are_not_rows(tmp_path):
    assert open_rows(FEATURES) is None and open_rows(FEATURES.tolist()) is None
    np.save(tmp_path / "features.npy", FEATURES)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    for source in (tmp_path / "features.npy", str(tmp_path / "features.npy"), mapped, [mapped]):
        np.testing.assert_array_equal(open_rows(source).read(3, 9), FEATURES[3:9])
    np.testing.assert_array_equal(open_rows(mapped[10:]).read(0, 2), FEATURES[10:12])
    assert isinstance(open_rows(open_rows(mapped)), Rows)


def test_an_error_while_reading_reaches_the_caller():
    class Broken(Rows):
        def read(self, start, stop):
            if start:
                raise OSError("disk")
            return super().read(start, stop)

    blocks = Broken([FEATURES]).blocks(5)
    assert len(next(blocks)[1]) == 5
    with pytest.raises(OSError, match="disk"):
        next(blocks)


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (FEATURES[:, :4], "4 columns.*5"),
        (FEATURES.astype(np.float64), "float64.*float32"),
        (FEATURES[0], r"shape \(5,\)"),
        (FEATURES.astype("U"), "type <U"),
    ],
)
def test_parts_that_do_not_fit_are_named(tmp_path, second, sentence):
    folder = write(tmp_path / "shards", [FEATURES, second])
    with pytest.raises(ValueError, match=f"part_1.npy.*{sentence}"):
        open_rows(folder)


def test_files_that_are_missing_or_cut_off_are_named(tmp_path):
    folder = write(tmp_path / "shards", [FEATURES, FEATURES])
    with pytest.raises(ValueError, match="part_2.npy: No such file"):
        open_rows([folder / "part_0.npy", folder / "part_2.npy"])
    whole = (folder / "part_1.npy").read_bytes()
    for length in (0, 40, len(whole) - 1):
        (folder / "part_1.npy").write_bytes(whole[:length])
        with pytest.raises(ValueError, match="part_1.npy: it is cut off"):
            open_rows(folder)
    np.save(folder / "part_1.npy", np.array([[object()]]), allow_pickle=True)
    with pytest.raises(ValueError, match="part_1.npy"):
        open_rows(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no .npy files"):
        open_rows(tmp_path / "empty")
    with pytest.raises(ValueError, match="ends in .npy"):
        open_rows(tmp_path / "features.csv")
    with pytest.raises(ValueError, match=r"empty, of shape \(0, 5\)"):
        open_rows(write(tmp_path / "none", [FEATURES[:0]]))
