"""The command, as a user types it."""

import re

import pytest
from publishers import write_mnist

from spr_jax import prepare
from spr_jax.datasets import SOURCES, mnist


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A publisher whose MNIST has 60 images."""
    source, _ = write_mnist(tmp_path / "raw")
    monkeypatch.setitem(SOURCES, "mnist", source)
    monkeypatch.setattr(mnist, "SOURCE", source)
    monkeypatch.delenv("SPR_RAW_DIR", raising=False)
    return [f"--raw_dir={tmp_path / 'raw'}", f"--data_dir={tmp_path / 'data'}"]


def test_it_prepares_and_says_what_it_made(small, capsys, tmp_path):
    prepare.main(["mnist", *small])
    out, error = capsys.readouterr()
    assert re.search(r"train +test\n0 +5 +1\n", out)
    assert re.search(r"all +50 +10\n", out)
    folder = tmp_path / "data" / "spr_mnist" / "1.0.0"
    assert re.search(rf"Prepared mnist in [\d.]+ s: {folder}, \d+ MiB\.", out)
    assert "Writing train: 100%" in error
    prepare.main(["--check", "mnist", small[1]])
    assert "Checked mnist in" in capsys.readouterr().out


def fails(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        prepare.main(arguments)
    assert stopped.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    return lines[-1]


def test_what_goes_wrong_is_one_sentence(small, capsys, tmp_path):
    assert "did you mean 'mnist'?" in fails(["mnits"], capsys)
    assert "'folder' needs no preparing" in fails(["folder"], capsys)
    assert "There is no folder nowhere" in fails(["mnist", "--raw_dir=nowhere"], capsys)
    missing = fails(["--check", "mnist", f"--data_dir={tmp_path}"], capsys)
    assert missing.startswith("python -m spr_jax.prepare: There is no mnist in")
    assert "WebVision must be requested" in fails(["webvision"], capsys)
    (tmp_path / "raw" / "train-images-idx3-ubyte.gz").write_bytes(b"")
    assert "train-images-idx3-ubyte.gz has the md5" in fails(["mnist", *small], capsys)


def test_a_data_folder_that_cannot_be_made_is_described(small, capsys, tmp_path):
    (tmp_path / "file").touch()
    said = fails(["mnist", small[0], f"--data_dir={tmp_path / 'file' / 'data'}"], capsys)
    assert "Cannot prepare mnist in" in said and "Not a directory" in said
