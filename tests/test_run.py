"""Runs that are broken off at every moment, moved, divided; and what a run leaves behind.

This file is also the program that such runs are: `main` with a number of devices, and something
that happens to it (`MOMENTS`).
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from absl import app
from flax import jax_utils
from jax.experimental.compilation_cache import compilation_cache
from PIL import Image
from small_backbone import Small

from configs import digits_sym
from spr_jax import experiment, main, run, settings
from spr_jax.backbones import BACKBONES
from spr_jax.base_config import get_config
from spr_jax.checkpoint import Checkpoints
from spr_jax.datasets.digits import digits
from spr_jax.methods import METHODS, Stage
from spr_jax.metrics import read_rows
from spr_jax.train import Progress

ROOT = Path(__file__).parent.parent
KILLED, NOT_A_NUMBER = -signal.SIGKILL, 2  # status of a process
FIELDS = {"epochs": 2, "batch_size": 128, "validation_share": 0.1, "ema": 0.5}
STEP = 15  # of 22: in the second epoch
CLOSE = {"rtol": 1e-3, "atol": 1e-5}  # sums over devices round differently


# In the process of a run ------------------------------------------------------------------


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt():
    os.kill(os.getpid(), signal.SIGTERM)


def at_step(number, act):
    watch = main.watch_signals

    def watch_steps():
        should_stop = watch()
        return lambda step: (step == number and act(), should_stop(step))[1]

    main.watch_signals = watch_steps


def at_checkpoint(event, act):
    """When a file is renamed, or a folder removed, in the folder of checkpoints."""

    def hook(name, arguments):
        if name == event and Path(arguments[0]).parent.name == "checkpoints":
            act(Path(arguments[0]).name)

    sys.addaudithook(hook)


BREAKS = {  # in this order, in one folder: what is done to the process, and its status
    "killed between a row of metrics and its checkpoint": (
        lambda: setattr(run, "save", die),
        KILLED,
    ),
    "killed in a step": (lambda: at_step(STEP, lambda: (time.sleep(1), die())), KILLED),
    "killed in the selection": (
        lambda: setattr(sys.modules["spr_jax.methods.rules"], "clean_set", die),
        KILLED,
    ),
    "stopped by SIGTERM": (lambda: at_step(STEP, interrupt), main.SAVED),
    "killed in the write of a checkpoint": (lambda: at_checkpoint("os.rename", die), KILLED),
    "killed in the removal of the checkpoint before": (
        lambda: at_checkpoint("shutil.rmtree", lambda name: name.isdigit() and die()),
        KILLED,
    ),
    "left alone": (lambda: None, 0),
}
MOMENTS = {moment: act for moment, (act, _) in BREAKS.items()} | {
    # The other process waits for this one's step; JAX looks for signals every second.
    "SIGTERM for one of two": lambda: at_step(3, lambda: (interrupt(), time.sleep(3))),
}


def begin(moment: str, devices: str) -> None:
    def use_devices(**_):
        jax.config.update("jax_num_cpu_devices", int(devices))

    main.one_device_per_core = use_devices
    BACKBONES["c2f2"] = Small
    MOMENTS[moment]()
    app.run(main.main, flags_parser=main.parse_flags)


# In the process of the tests --------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def start(home):
    """Start a run in a process; its programs are compiled once for all."""

    def start(workdir, *flags, moment="left alone", devices=2, **changes):
        # "auto" draws a line through chances; a last digit moves a label that is on it.
        fields = FIELDS | {"method.select": "class", "compilation_cache": home / "cache"} | changes
        flags = [*flags, *(f"--config.{name}={value}" for name, value in fields.items())]
        command = [sys.executable, __file__, moment, str(devices), f"--workdir={workdir}"]
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
    """What the processes said, if they ended as they should."""
    try:
        said = [process.communicate(timeout=200)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert [process.returncode for process in processes] == [status] * len(processes), said
    return "\n".join(said)


def without_times(content):
    if isinstance(content, list):
        return [without_times(value) for value in content]
    if isinstance(content, dict):
        timed = ("seconds", "images_per_second")
        return {k: without_times(v) for k, v in content.items() if not k.startswith(timed)}
    return content


def found_in(workdir):
    """All that a run leaves: arrays by name, and what it tells."""
    checkpoints = Checkpoints(workdir / "checkpoints")
    wanted = ocp.args.Composite(tree=ocp.args.StandardRestore())
    tree = checkpoints.manager.restore(checkpoints.manager.latest_step(), args=wanted).tree
    meta = checkpoints.latest()
    checkpoints.close()
    with np.load(workdir / "clean.npz") as stored:
        arrays = {**tree, **stored}
    summary = json.loads((workdir / "summary.json").read_text())
    rows = read_rows(workdir / "metrics.jsonl")
    return arrays, without_times({"rows": rows, "summary": summary, "meta": meta})


def assert_identical(found, expected):
    arrays, expected_arrays = found[0], expected[0]
    assert arrays.keys() == expected_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected_arrays[name], err_msg=name)
    assert found[1] == expected[1]


def assert_close(found, expected):
    arrays, expected_arrays = found[0], expected[0]
    assert arrays.keys() == expected_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_allclose(array, expected_arrays[name], err_msg=name, **CLOSE)
    for row, expected_row in zip(found[1]["rows"], expected[1]["rows"], strict=True):
        assert row == pytest.approx(expected_row, rel=1e-4)


@pytest.fixture(scope="module")
def unbroken(home, start):
    finish(start(home / "unbroken"))
    return found_in(home / "unbroken")


@pytest.fixture(scope="module")
def broken(home, start, unbroken):
    for moment, (_, status) in BREAKS.items():
        finish(start(home / "broken", moment=moment), status=status)
        if status == main.SAVED:
            shutil.copytree(home / "broken", home / "moved")
    return home / "broken"


def test_a_run_broken_off_at_every_moment_ends_as_if_it_were_not(broken, unbroken, home):
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


def test_a_run_goes_on_with_another_number_of_devices(elsewhere, unbroken):
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
    """And a SIGTERM that only one of them gets stops both, after the same step."""
    moments = ("left alone", "SIGTERM for one of two")
    said = finish(*start_two(start, home / "two", moments), status=main.SAVED)
    assert said.count("Stopped and saved") == 2
    assert not (home / "two" / "summary.json").exists()
    finish(*start_two(start, home / "two"))
    assert_close(found_in(home / "two"), unbroken)
    said = finish(*start_two(start, home / "two", seed=5), status=2)
    assert said.count("belongs to a run with seed=0, and this one has 5") == 2


def test_a_run_that_diverges_says_so(home, start):
    said = finish(start(home / "high", **{"optimizer.learning_rate": 1e30}), status=NOT_A_NUMBER)
    assert "The loss is nan in step 2 of epoch 1" in said and "Traceback" not in said
    assert not (home / "high" / "summary.json").exists()


# Within this process ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled_once(home):
    """What one test has compiled, another reads."""
    wished = {
        "jax_compilation_cache_dir": str(home / "cache"),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    usual = {name: getattr(jax.config, name) for name in wished}
    for options in (wished, usual):
        for name, value in options.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        if options is wished:
            yield


@pytest.fixture
def small(monkeypatch, compiled_once):
    """A config of a few steps; in single precision, as runs are."""
    monkeypatch.setitem(BACKBONES, "c2f2", Small)
    config = digits_sym.get_config("ce")
    config.update(FIELDS | {"batch_size": 512})
    with jax.enable_x64(False):
        yield config


def test_not_a_number_leaves_the_last_good_checkpoint(small, tmp_path, monkeypatch):
    method = METHODS["ce"]()

    def poisoned(networks, batch, memory, key):
        loss, rest = method.loss(networks, batch, memory, key)
        return jnp.where(memory["epoch"] == 1, jnp.nan, 1) * loss, rest

    poison = method._replace(
        init=lambda labels, num_classes: {"epoch": jnp.int32(0)},
        loss=poisoned,
        revise=lambda memory, record, key: {"epoch": memory["epoch"] + 1},
    )
    monkeypatch.setitem(METHODS, "ce", lambda: poison)
    with pytest.raises(FloatingPointError, match="The loss is nan in step 1 of epoch 2; the check"):
        run.run(small, tmp_path, report=lambda line: None)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.latest()["epoch"] == 1 and checkpoints.manager.all_steps() == [3]
    checkpoints.close()
    assert [row["epoch"] for row in read_rows(tmp_path / "metrics.jsonl")] == [0]


def test_weights_that_are_not_numbers_are_not_saved(small, tmp_path):
    small.batch_size, small.optimizer.learning_rate = 2048, 1e30  # an epoch is one step
    with pytest.raises(FloatingPointError, match="norm of the weights is inf in step 1 of epoch 1"):
        run.run(small, tmp_path, report=lambda line: None)
    assert not [*(tmp_path / "checkpoints").iterdir()]


def test_a_summary_says_how_its_epochs_were_chosen(small, tmp_path):
    small.epochs, lines = 3, []
    summary = run.run(small, tmp_path, report=lines.append)
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    assert lines[0].startswith("Label noise: symmetric, asked for")
    assert summary["epochs"] == len(lines[1:]) == 3 and summary["last"] == rows[-1]
    best = {name: max(rows, key=lambda row: row[name]) for name in ("validation_top1", "test_top1")}
    assert summary["best_on_validation"] == best["validation_top1"]
    epoch, top1 = best["test_top1"]["epoch"], best["test_top1"]["test_top1"]
    assert summary["best_on_test"] == {"test_top1": {"epoch": epoch, "test_top1": top1}}
    assert summary["seconds_train"] == pytest.approx(sum(row["seconds_train"] for row in rows))


def test_patience_ends_a_run_that_gets_no_better(small, tmp_path):
    small.update(epochs=9, patience=2, optimizer={"learning_rate": 0.0}, ema=0.0)
    summary = run.run(small, tmp_path, report=lambda line: None)
    # Without steps the accuracy changes only as the statistics of the batches settle.
    accuracies = [row["validation_top1"] for row in read_rows(tmp_path / "metrics.jsonl")]
    assert len(accuracies) < 9 and np.argmax(accuracies) == len(accuracies) - 3
    assert summary["best_on_validation"]["epoch"] == len(accuracies) - 3


def test_statistics_of_each_device_train_otherwise_but_well(small, tmp_path):
    small.batch_size = 64
    shared = run.run(small, tmp_path / "shared", report=lambda line: None)
    small.sync_batch_stats = False
    own = run.run(small, tmp_path / "own", report=lambda line: None)
    assert abs(own["last"]["loss"] - shared["last"]["loss"]) > 1e-4
    assert own["last"]["test_top1"] > 0.7 and shared["last"]["test_top1"] > 0.7


def staged():
    """Plain training; a look at the labels with a rate of its own; fresh networks for the rest."""
    plain = METHODS["ce"]()

    def init(name):
        def init(labels, num_classes):
            return {name: jnp.zeros(len(labels), jnp.float32), "clean": jnp.asarray(labels) > 2}

        return init

    def count(memory, record, key):
        return memory | {"seen": memory["seen"] + 1}

    def recorded(networks, batch, memory, key):
        loss, (networks, _) = plain.loss(networks, batch, memory, key)
        return loss, (networks, {"labels": batch.labels})

    def keep(memory, record, key):
        return memory | {"labels": memory["seen"] + np.asarray(record["labels"], np.float32)}

    return (
        Stage(plain._replace(init=init("seen"), revise=count), epochs=2),
        Stage(plain._replace(init=init("labels"), loss=recorded, revise=keep), 1, False, 0.003),
        Stage(plain, restart=True),
    )


def test_stages_follow_each_other_and_resume_exactly(small, tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "staged", staged)
    with small.unlocked():
        small.method, small.epochs = {"name": "staged"}, 5
    quiet = {"report": lambda line: None}
    run.run(small, tmp_path / "whole", **quiet)

    def stop(step):  # 3 an epoch; without saving, at the beginning of stages
        if step in lost:
            lost.remove(step)
            raise run.Stopped
        return step in (2, 8, 11)

    lost = [7, 10]
    for _ in range(5):
        with pytest.raises(run.Stopped):
            run.run(small, tmp_path / "broken", should_stop=stop, **quiet)
    run.run(small, tmp_path / "broken", **quiet)
    assert not lost
    whole = found_in(tmp_path / "whole")
    assert_identical(found_in(tmp_path / "broken"), whole)
    rates = [row["learning_rate"] for row in read_rows(tmp_path / "whole" / "metrics.jsonl")]
    rate = small.optimizer.learning_rate
    np.testing.assert_allclose(rates, [rate, 0.75 * rate, 0.003, rate, 0.5 * rate], rtol=1e-5)
    losses = [row["loss"] for row in read_rows(tmp_path / "whole" / "metrics.jsonl")]
    assert losses[3] > losses[1]  # fresh
    checkpoints = Checkpoints(tmp_path / "whole" / "checkpoints")
    assert checkpoints.latest()["epoch"] == 5
    checkpoints.close()


def test_stages_hand_their_memory_on(small, monkeypatch):
    monkeypatch.setitem(METHODS, "staged", staged)
    with small.unlocked():
        small.method, small.epochs = {"name": "staged"}, 5
    made = experiment.make_experiment(small)
    memory = {"seen": np.full(5, 2.0)}
    position = run.Position(2, Progress(None, {}, []), memory, {})
    state = jax_utils.replicate(experiment.init_state(small, made.setup))
    position = position._replace(progress=position.progress._replace(state=state))
    entered = run.enter(small, made.phase_at(2), position)
    np.testing.assert_array_equal(entered.memory["seen"], memory["seen"])
    assert not entered.memory["labels"].any() and "labels" in entered.progress.buffers
    assert entered.progress.state is state
    assert run.enter(small, made.phase_at(3), entered._replace(epoch=3)).progress.state is not state


def test_stages_longer_than_the_run_are_named(small, monkeypatch):
    monkeypatch.setitem(METHODS, "staged", staged)
    with small.unlocked():
        small.method, small.epochs = {"name": "staged"}, 3
    with pytest.raises(ValueError, match="2 stages of staged take 3 epochs and the run has 3; rai"):
        experiment.make_experiment(small)


@pytest.fixture
def streamed(small, tmp_path):
    """Photos too large for the memory, told apart by their brightness."""
    generator = np.random.default_rng(0)
    for label, value in {"cat": 40, "dog": 120, "owl": 200}.items():
        folder = tmp_path / "photos" / label
        folder.mkdir(parents=True)
        for number in range(12):
            pixels = value + generator.integers(-30, 30, (12, 10, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    config = get_config("spr", dataset="folder")
    config.update(epochs=2, batch_size=8, eval_batch_size=8)
    config.dataset.update(path=str(tmp_path / "photos"), size=8, test_share=0.2)
    config.dataset.update(memory_gb=1e-6, data_dir=str(tmp_path / "data"))
    config.method.update(cutmix=0.5, features="eval", select="auto")
    settings.resolve(config)
    return config


def test_streamed_images_train_and_resume_exactly(streamed, tmp_path):
    """With CutMix and a scan: every kind of randomness, every use of the files."""
    quiet = {"report": lambda line: None}
    run.run(streamed, tmp_path / "whole", **quiet)
    for last in (2, 7):  # of 8 steps, 4 an epoch
        with pytest.raises(run.Stopped):
            run.run(streamed, tmp_path / "broken", should_stop=lambda s, e=last: s == e, **quiet)
    run.run(streamed, tmp_path / "broken", **quiet)
    assert_identical(found_in(tmp_path / "broken"), found_in(tmp_path / "whole"))


def test_held_out_classes_keep_their_shares():
    dataset = digits()
    rest, validation, members = experiment.hold_out(dataset, 0.2, seed=0)
    counts = [np.bincount(s.labels) for s in (dataset.train, rest.train, validation)]
    np.testing.assert_array_equal(counts[2], (0.2 * counts[0]).astype(int))
    np.testing.assert_array_equal(counts[1] + counts[2], counts[0])
    np.testing.assert_array_equal(rest.train.images, dataset.train.images[members])
    np.testing.assert_array_equal(rest.train.labels, dataset.train.labels[members])
    held_out = np.setdiff1d(np.arange(len(dataset.train.labels)), members)
    np.testing.assert_array_equal(validation.images, dataset.train.images[held_out])
    np.testing.assert_array_equal(validation.true_labels, dataset.train.true_labels[held_out])
    again, other = (
        experiment.hold_out(dataset, 0.2, seed=0)[2],
        experiment.hold_out(dataset, 0.2, seed=1)[2],
    )
    np.testing.assert_array_equal(again, members)
    assert (other != members).any()


def test_nothing_is_held_out_unless_asked_for():
    dataset = digits()
    rest, validation, members = experiment.hold_out(dataset, 0.0, seed=0)
    assert rest is dataset and validation is None and len(members) == len(dataset.train.labels)


if __name__ == "__main__":
    begin(sys.argv.pop(1), sys.argv.pop(1))
