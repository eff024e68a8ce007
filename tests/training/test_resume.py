"""Runs in processes that are interrupted at every moment, moved, and divided."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PROGRAMS
from interrupted_run import BREAKS
from run_folders import assert_close, assert_identical, found_in

from spr_jax.io.signals import SAVED

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FIELDS = {"epochs": 2, "batch_size": 128, "validation_share": 0.1, "ema": 0.5}
# The noise model cuts at a probability; a last digit moves a label that is at the cut.
RULE = {"name": "share", "within": "class", "per_class": 0, "pca_dim": 64, "intercept": True}
FIELDS |= {f"method.select.{name}": value for name, value in RULE.items()}
FAILED = 2  # status of a process


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def start(home):
    """Start a run in a process; its programs are compiled once for all."""

    def start(workdir, *flags, moment="left alone", devices=2, **changes):
        fields = FIELDS | {"compilation_cache": PROGRAMS} | changes
        flags = [*flags, *(f"--config.{name}={value}" for name, value in fields.items())]
        program = ROOT / "tests" / "interrupted_run.py"
        command = [sys.executable, program, moment, str(devices), f"--workdir={workdir}"]
        return subprocess.Popen(
            [*command, "--config=configs/digits_sym.py", *flags],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    return start


def finish(*processes, status=0) -> str:
    """Return what the processes said, if they ended as they should."""
    try:
        said = [process.communicate(timeout=200)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert [process.returncode for process in processes] == [status] * len(processes), said
    return "\n".join(said)


@pytest.fixture(scope="module")
def unbroken(home, start):
    finish(start(home / "unbroken"))
    return found_in(home / "unbroken")


@pytest.fixture(scope="module")
def broken(home, start, unbroken):
    for moment, (_, status) in BREAKS.items():
        finish(start(home / "broken", moment=moment), status=status)
        if status == SAVED:
            shutil.copytree(home / "broken", home / "moved")
    return home / "broken"


def test_a_run_interrupted_at_every_moment_ends_as_if_it_were_not(broken, unbroken, home):
    assert_identical(found_in(broken), unbroken)
    visible = [{p.name for p in f.glob("[!.]*")} for f in (broken, home / "unbroken")]
    assert visible[0] == visible[1]
    assert all(path.name.isdigit() for path in (broken / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def elsewhere(broken, home, start):
    """The same run on other devices; "moved" began on two, and was stopped by SIGTERM."""
    devices = {"moved": 1, "one": 1, "eight": 8}
    finish(*(start(home / name, devices=number) for name, number in devices.items()))
    return {name: found_in(home / name) for name in devices}


def test_a_run_resumes_with_another_number_of_devices(elsewhere, unbroken):
    assert_close(elsewhere["moved"], unbroken)


@pytest.mark.parametrize("devices", ["one", "eight"])
def test_devices_share_the_work_and_change_no_result(devices, elsewhere, unbroken):
    assert_close(elsewhere[devices], unbroken)


def start_two(start, workdir, moments=("left alone", "left alone"), **changes):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for number, moment in enumerate(moments):
        flags = (f"--coordinator=127.0.0.1:{port}", "--num_processes=2", f"--process_id={number}")
        yield start(workdir, *flags, devices=1, moment=moment, **changes)


def test_two_processes_train_as_one(home, start, unbroken):
    """A SIGTERM that only one of them gets stops both, after the same step."""
    moments = ("left alone", "SIGTERM for one of two")
    said = finish(*start_two(start, home / "two", moments), status=SAVED)
    assert said.count("Stopped and saved") == 2
    assert not (home / "two" / "summary.json").exists()
    finish(*start_two(start, home / "two"))
    assert_close(found_in(home / "two"), unbroken)
    said = finish(*start_two(start, home / "two", seed=5), status=FAILED)
    assert said.count("seed=0, and this one has 5") == 2


def test_a_run_that_diverges_says_so(home, start):
    said = finish(start(home / "high", **{"optimizer.learning_rate": 1e30}), status=FAILED)
    assert "loss is nan in step 2 of epoch 1" in said and "Traceback" not in said
    assert not (home / "high" / "summary.json").exists()
