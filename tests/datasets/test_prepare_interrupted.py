"""Preparing that fails, is interrupted or happens twice at once."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from publishers import (
    assert_holds,
    write_mnist,
)

from spr_jax.datasets import prepared


def test_no_space_is_noticed_before_writing(tmp_path, monkeypatch):
    source, _ = write_mnist(tmp_path / "raw")
    usage = shutil.disk_usage(tmp_path)._replace(free=2**16)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        ValueError, match="has 0 MiB free and 0 MiB are needed; choose another data_dir"
    ):
        prepared.prepare(source, str(tmp_path / "raw"), str(tmp_path / "data"))
    assert prepared.folder_of(source, str(tmp_path / "data")) is None


RUN = """
import os, sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
from publishers import write_mnist
from spr_jax.datasets import prepared, records
raw = Path({raw!r}, str(os.getpid()))
source, _ = write_mnist(raw)
{setup}
prepared.prepare(source, str(raw), {data!r})
"""


def start(tmp_path, setup=""):
    raw, data = str(tmp_path / "raw"), str(tmp_path / "data")
    code = RUN.format(tests=str(Path(__file__).parents[1]), setup=setup, raw=raw, data=data)
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
"""


@pytest.mark.slow
def test_a_write_that_fails_leaves_nothing_half_made(tmp_path):
    process = start(tmp_path, FULL)
    error = process.communicate(timeout=100)[1]
    source, expected = write_mnist(tmp_path / "raw")
    assert process.returncode == 1
    assert "Cannot prepare mnist in" in error.splitlines()[-1], error
    assert "File too large; choose another data_dir" in error.splitlines()[-1]
    assert not list((tmp_path / "data").rglob("*incomplete*"))
    assert not list((tmp_path / "data").rglob("*.partial"))
    prepared.prepare(source, str(tmp_path / "raw"), str(tmp_path / "data"))
    assert_holds(prepared.load(source, str(tmp_path / "data"))["train"], *expected["train"])


SLOW = """
import time
png = records._png
records._png = lambda image: time.sleep(0.1) or png(image)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_it_can_be_run_again(tmp_path, how):
    process = start(tmp_path, SLOW)
    partial_folder = tmp_path / "data" / "spr_mnist"
    deadline = time.monotonic() + 60
    while not list(partial_folder.glob("incomplete.*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(how)
    process.communicate(timeout=60)
    source, expected = write_mnist(tmp_path / "raw")
    assert prepared.folder_of(source, str(tmp_path / "data")) is None
    prepared.prepare(source, str(tmp_path / "raw"), str(tmp_path / "data"))
    assert_holds(prepared.load(source, str(tmp_path / "data"))["train"], *expected["train"])
    assert not list(partial_folder.glob("incomplete.*"))


@pytest.mark.slow
def test_two_at_once_make_one(tmp_path):
    processes = [start(tmp_path, SLOW), start(tmp_path)]
    for process in processes:
        assert "Error" not in process.communicate(timeout=100)[1]
        assert process.returncode == 0
    source, expected = write_mnist(tmp_path / "raw")
    assert_holds(prepared.load(source, str(tmp_path / "data"))["test"], *expected["test"])
