"""Tensors from torch's legacy files, made here by hand, and by torch where it is installed."""

import io
import pickle

import numpy as np
import pytest

from spr_jax.io.pickles import load_array_pickle
from spr_jax.io.torch_file import MAGIC, VERSION, read_tensors

STORAGE = np.arange(6, dtype=np.float32)


def tensor(shape, strides, offset=0, storage="torch\nFloatStorage"):
    """A tensor as torch pickles it: a view of storage `0`, in the pickle's text opcodes."""
    numbers = "".join(f"I{number}\n" for number in shape)
    steps = "".join(f"I{number}\n" for number in strides)
    place = f"(Vstorage\nc{storage}\nV0\nVcpu\nI6\nNtQ"
    return f"ctorch._utils\n_rebuild_tensor_v2\n({place}I{offset}\n({numbers}t({steps}tI00\nNtR"


def write(path, **tensors):
    """A file whose tensors are views of `STORAGE`."""
    items = "".join(f"V{name}\n{value}" for name, value in tensors.items())
    named = f"ccollections\nOrderedDict\n()R({items}u.".replace("()R", ")R").encode()
    parts = [pickle.dumps(value, 2) for value in (MAGIC, VERSION, {"little_endian": True})]
    parts += [named, pickle.dumps(["0"], 2), np.int64(6).tobytes(), STORAGE.tobytes()]
    path.write_bytes(b"".join(parts))
    return path


def test_views_of_a_storage(tmp_path):
    path = write(
        tmp_path / "a.pth",
        plain=tensor((2, 3), (3, 1)),
        turned=tensor((2, 3), (1, 2)),
        part=tensor((2,), (3,), offset=1),
    )
    found = read_tensors(path)
    np.testing.assert_array_equal(found["plain"], STORAGE.reshape(2, 3))
    np.testing.assert_array_equal(found["turned"], STORAGE.reshape(3, 2).T)
    np.testing.assert_array_equal(found["part"], [1, 4])


def test_what_torch_writes(tmp_path):
    torch = pytest.importorskip("torch")
    values = torch.arange(24.0).reshape(2, 3, 4)
    saved = {"a": values.permute(2, 0, 1), "b": values[1, :, ::2], "n": torch.tensor(7)}
    torch.save(saved, tmp_path / "a.pth", _use_new_zipfile_serialization=False)
    found = read_tensors(tmp_path / "a.pth")
    assert list(found) == list(saved)
    for name, value in saved.items():
        np.testing.assert_array_equal(found[name], value.numpy())


@pytest.mark.parametrize("name", ["os\nsystem", "builtins\neval", "torch\nDoubleStorage"])
def test_more_than_tensors_is_refused_and_named(tmp_path, name):
    path = write(tmp_path / "a.pth", bad=f"c{name}\n(Vtouch {tmp_path}/done\ntR")
    with pytest.raises(ValueError, match=f"asks for {name.replace(chr(10), '.')}, .*tensors only"):
        read_tensors(path)
    assert not (tmp_path / "done").exists()


def test_a_file_cut_anywhere_is_refused(tmp_path):
    path = write(tmp_path / "a.pth", a=tensor((6,), (1,)))
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="cut off"):
            read_tensors(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(ValueError, match="cut off or not"):
        read_tensors(path)


@pytest.mark.parametrize("view", [((7,), (1,)), ((2, 3), (3, 2)), ((2,), (-1,)), ((2,), (1, 1))])
def test_a_view_beyond_its_storage_is_refused(tmp_path, view):
    with pytest.raises(ValueError, match="cut off or not"):
        read_tensors(write(tmp_path / "a.pth", a=tensor(*view)))


def test_another_file_is_told_by_its_hash(tmp_path):
    path = write(tmp_path / "a.pth", a=tensor((6,), (1,)))
    with pytest.raises(ValueError, match=r"not the file expected.*expected 0000000000000000\.\.\."):
        read_tensors(path, sha256="0" * 64)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="missing.pth: No such file"):
        read_tensors(tmp_path / "missing.pth")


def test_pickles_of_arrays():
    content = {"data": np.arange(3), "names": ["a", "b"]}
    found = load_array_pickle(io.BytesIO(pickle.dumps(content)))
    assert found["data"].tolist() == [0, 1, 2] and found["names"] == ["a", "b"]
    with pytest.raises(pickle.UnpicklingError, match="asks for builtins.print"):
        load_array_pickle(io.BytesIO(pickle.dumps(print)))
