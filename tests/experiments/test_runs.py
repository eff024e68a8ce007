"""Runs are found by their folder, resume where they were stopped, and do not disturb each other."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import PROGRAMS

from experiments.harness import runs
from experiments.harness.runs import Result, Run, config_of, folder, launch, log_of, read, share_out
from spr_jax.devices import num_cores

DIGITS = "configs/digits_sym.py"
SEVERAL_CORES = pytest.mark.skipif(num_cores() < 2, reason="needs two cores")


@pytest.fixture(scope="module")
def brief():
    """Overrides of a run that takes seconds, most of them to start."""
    return (("epochs", 1), ("validation_share", 0.9), ("compilation_cache", str(PROGRAMS)))


@contextlib.contextmanager
def counted():
    """The runs that are started: (process, those that were active already)."""
    started = []

    class Counted(subprocess.Popen):
        def __init__(self, arguments, **options):
            super().__init__(arguments, **options)
            if "spr_jax.main" in arguments:
                going_on = [other for other, _ in started if other.poll() is None]
                started.append((self, going_on))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Counted)
        yield started


def record(run, out, commit="here", **summary):
    """Make the folder of a finished run, or without a summary of an interrupted one."""
    home = folder(run, out)
    home.mkdir(parents=True)
    (home / "config.json").write_text(config_of(run).to_json())
    (home / "origin.json").write_text(json.dumps({"commit": commit}))
    (home / "noise.npz").touch()
    if summary:
        (home / "summary.json").write_text(json.dumps(summary))
    return home


def test_a_folder_tells_what_was_run(tmp_path):
    overrides = (("preset", "noise_model"), ("noise.rate", 0.4), ("dataset.data_dir", "/data"))
    run = Run("configs/mnist_sym.py", "spr", overrides, seed=3)
    expected = tmp_path / "mnist_sym-spr" / "noise.rate=0.4,preset=noise_model" / "seed=3"
    assert folder(run, tmp_path) == expected
    assert log_of(expected).name == "seed=3.log"
    assert folder(Run("configs/mnist_sym.py"), tmp_path).parts[-3:] == (
        "mnist_sym",
        "unchanged",
        "seed=0",
    )


def test_folders_of_unlike_runs_differ_and_are_safe(tmp_path):
    values = [
        "a/b",
        "a_b",
        "a:b",
        "a b",
        "é",
        "x" * 300,
        "x" * 301,
        "1,preset=noise_model",
        "../..",
    ]
    several = [(("noise.matrix", value),) for value in values]
    several.append((("noise.matrix", "1"), ("preset", "noise_model")))
    homes = {folder(Run(DIGITS, "ce", overrides), tmp_path) for overrides in several}
    assert len(homes) == len(several)
    for home in homes:
        assert home.parents[2] == tmp_path and len(str(home.parent.name)) < 150
        assert not set(home.parent.name) & set('/\\:*?"<>| ') and home.parent.name.isascii()
        log_of(home).parent.mkdir(parents=True)


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (Run(DIGITS, "ce", (("noise.rat", 0.4),)), "no field 'noise.rat'; did you mean 'noise.ra"),
        (Run(DIGITS, "ce", (("noise.rate", "much"),)), "noise.rate is of type float, and 'much'"),
        (Run(DIGITS, "ce", (("epochs", 1.5),)), "epochs is of type int, and 1.5 is not"),
        (Run(DIGITS, "spl"), "Unknown name 'spl'; did you mean 'spr'?"),
        (Run("configs/nothing.py"), "Cannot read configs/nothing.py: No such file"),
        (Run("configs/__init__.py"), "configs/__init__.py has no function get_config"),
    ],
)
def test_a_run_that_cannot_be_is_named_before_anything_is_run(run, says, tmp_path):
    with counted() as started, pytest.raises(ValueError, match=says.replace("?", r"\?")):
        launch([Run(DIGITS, "ce"), run], tmp_path)
    assert not started and not [*tmp_path.iterdir()]


@pytest.fixture(scope="module")
def three(tmp_path_factory, brief):
    """Two runs and one that fails before them, as many at a time as there are cores for."""
    out = tmp_path_factory.mktemp("three")
    bad = Run(DIGITS, "ce", (*brief, ("noise.manifest", "nowhere.npz")))
    good = [Run(DIGITS, "ce", brief, seed) for seed in (0, 1)]
    with counted() as started:
        results = launch([bad, *good], out, jobs=min(2, num_cores()))
    return out, results, started


@pytest.mark.slow
def test_a_run_that_fails_stops_no_other_and_keeps_its_log(three):
    _, results, started = three
    bad, *good = results.values()
    assert [result.status for result in results.values()] == ["failed", "finished", "finished"]
    assert bad.why == "Cannot read nowhere.npz: No such file or directory."
    log = log_of(bad.folder).read_text()
    assert log.startswith("$ python -m spr_jax.main --config=configs/digits_sym.py:ce --config.ep")
    assert bad.why in log and log.endswith("\nexit status 2\n")
    for result in good:
        assert result.summary["epochs"] == 1 and "test_top1" in result.summary["last"]
        assert result.commit and result.origin["versions"]
    assert len(started) == 3


@pytest.mark.slow
@SEVERAL_CORES
def test_two_at_a_time_each_have_their_cores(three):
    _, results, started = three
    assert [len(going_on) for _, going_on in started] == [0, 1, 1]
    theirs = [result.origin["machine"] for result in results.values() if result.summary]
    if num_cores() == 2:
        assert all(machine.endswith("JAX devices: 1 x cpu") for machine in theirs)


@pytest.mark.slow
def test_a_finished_run_is_read_and_no_process_started(three, capsys):
    out, results, _ = three
    _, *good = results
    # In another order, and with another cache, it is the same run.
    again = [run._replace(overrides=run.overrides[:2][::-1]) for run in good]
    start = time.perf_counter()
    with counted() as started:
        found = launch([*good, *again], out, jobs=2)
    assert time.perf_counter() - start < 2 and not started
    assert [result.summary for result in found.values()] == [
        results[run].summary for run in good * 2
    ]
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_the_folder_of_another_config_is_named_and_not_used(three, tmp_path, capsys):
    out, results, _ = three
    run = [*results][1]
    other = tmp_path / "digits_sym.py"
    other.write_text(
        "from configs.digits_sym import get_config as usual\n"
        "def get_config(method):\n    config = usual(method)\n    config.ema = 0.5\n"
        "    return config\n"
    )
    other = run._replace(config=str(other))
    assert folder(other, out) == folder(run, out)
    with counted() as started:
        found = launch([other], out)[other]
    assert not started and (found.status, found.summary) == ("refused", None)
    said = capsys.readouterr().err
    assert f"{found.folder} belongs to a run with ema=0.0, and this one has 0.5" in said


def when(path, then):
    """Call `then` in a thread as soon as the file exists."""

    def wait():
        for _ in range(5000):
            if path.exists() and path.read_text().strip():
                return then()
            time.sleep(0.02)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_stopped_run_resumes_where_it_was(tmp_path, brief):
    slow = dict(brief) | {"epochs": 40, "checkpoint.every": 1000}
    first, second = (Run(DIGITS, "ce", tuple(slow.items()), seed) for seed in (0, 1))
    home = folder(first, tmp_path)
    thread = when(home / "metrics.jsonl", lambda: os.kill(os.getpid(), signal.SIGINT))
    results = launch([first, second], tmp_path)
    thread.join()
    assert [result.status for result in results.values()] == ["interrupted", "missing"]
    assert log_of(home).read_text().endswith("exit status 75\n")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    rows = (home / "metrics.jsonl").read_text().count("\n")
    assert 0 < rows < 40

    (result,) = launch([first], tmp_path).values()
    assert (result.status, result.summary["epochs"]) == ("finished", 40)
    log = log_of(home).read_text()
    assert log.count("$ python") == 2 and log.count("epoch  1/40  loss") == 1
    assert log.count(f"epoch {rows + 1:2}/40  loss") == 1


STUBBORN = """
import signal, subprocess, sys, time
asked, begun, ended = sys.argv[1:]
def once(*_):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    print("asked", file=open(asked, "w"))
signal.signal(signal.SIGTERM, once)
worker = "trap 'echo ended > $1; exit' TERM; echo begun > $0; while :; do sleep 0.05; done"
subprocess.run(["sh", "-c", worker, begun, ended])
"""


def test_a_second_signal_ends_the_runs_and_their_processes(tmp_path, monkeypatch):
    asked, begun, ended = (tmp_path / name for name in ("asked", "begun", "ended"))
    command = [sys.executable, "-c", STUBBORN, str(asked), str(begun), str(ended)]
    monkeypatch.setattr(runs, "command", lambda run, out: command)
    stop = lambda: os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
    threads = [when(begun, stop), when(asked, lambda: ended.exists() or stop())]
    (result,) = launch([Run(DIGITS, "ce")], tmp_path / "out").values()
    for thread in [*threads, when(ended, lambda: None)]:
        thread.join()
    assert ended.exists() and result.status == "missing"
    assert log_of(result.folder).read_text().endswith("exit status -15\n")


@pytest.mark.parametrize(
    ("begun", "log", "status", "why"),
    [
        (False, None, "missing", ""),
        (True, None, "interrupted", ""),
        (True, "$ python\nepoch 1/2\n", "interrupted", ""),  # while it runs, or all was killed
        (True, "$ python\nSaved.\n\nexit status 75\n", "interrupted", ""),
        (False, "$ python\n\nexit status -15\n", "missing", ""),
        (True, "$ python\n\nexit status 2\n$ python\n", "interrupted", ""),
        (False, "python -m spr_jax.main: No data.\n\nexit status 2\n", "failed", "No data."),
        (
            True,  # JAX has the last word
            "$ p\nOSError: A.\n$ p\nx.BError: B.\n---\nSet FILTERING=off.\n\nexit status 1\n",
            "failed",
            "x.BError: B.",
        ),
        (True, "$ p\nOSError: A.\n$ p\nOver.\n\nexit status 1\n", "failed", "Over."),
        (True, "$ python\n\nexit status -9\n", "failed", "It was ended by SIGKILL."),
    ],
)
def test_what_is_in_its_folder_says_how_far_a_run_came(begun, log, status, why, tmp_path):
    run = Run(DIGITS, "ce")
    home = record(run, tmp_path) if begun else folder(run, tmp_path)
    home.parent.mkdir(parents=True, exist_ok=True)
    if log:
        log_of(home).write_text(log)
    found = read(run, tmp_path)
    assert (found.status, found.why, found.folder) == (status, why, home)


def test_a_folder_of_another_config_is_refused_and_one_without_a_run_is_free(tmp_path):
    run = Run(DIGITS, "ce", (), 0)
    home = record(run, tmp_path, epochs=1)
    assert runs.why_not_ours(home, config_of(run)) == ""
    assert runs.why_not_ours(tmp_path / "nothing", config_of(run)) == ""
    other = config_of(run)
    other.ema = 0.5
    assert "ema=0.0, and this one has 0.5" in runs.why_not_ours(home, other)
    other = config_of(run)
    other.workers += 1  # changes no result
    assert runs.why_not_ours(home, other) == ""


def test_results_of_another_commit_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runs, "commit", lambda: "here")
    several = [Run(DIGITS, "ce", (), seed) for seed in range(3)]
    for run, commit in zip(several, ("here", "there", "there"), strict=True):
        record(run, tmp_path, commit, epochs=1)
    assert launch(several, tmp_path)[several[1]].commit == "there"
    said = capsys.readouterr().err
    assert said == "Runs of another commit: 2 of there; the code is now here.\n"


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "open", lambda path, mode: open("/dev/full", mode), raising=False)
    with counted() as started, pytest.raises(ValueError, match="Cannot write .* No space left"):
        launch([Run(DIGITS, "ce")], tmp_path)
    assert not started


def test_a_folder_that_is_none_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="file is not a folder; give another one"):
        launch([Run(DIGITS, "ce")], tmp_path / "file" / "out")


@pytest.mark.slow
@SEVERAL_CORES
def test_cores_are_shared_out():
    first, second = share_out(2)
    assert {*first.cores} | {*second.cores} == os.sched_getaffinity(0)
    assert not {*first.cores} & {*second.cores} and share_out(1)[0].cores == ()


@pytest.mark.parametrize("jobs", [0, -1])
def test_at_least_one_at_a_time(jobs, tmp_path):
    with pytest.raises(ValueError, match=f"jobs is {jobs}; expected 1 or more"):
        launch([], tmp_path, jobs)


@pytest.mark.parametrize(
    ("answer", "jobs", "says"),
    [
        ("cpu 1", 1000, f"jobs is 1000, but there are {num_cores()} cores"),
        ("gpu 4", 5, "jobs is 5, but there are 4 GPUs"),
        ("tpu 4", 2, "jobs is 2, but a TPU belongs to one process"),
    ],
)
def test_no_more_at_a_time_than_there_are_devices(answer, jobs, says, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    done = subprocess.CompletedProcess([], 0, stdout=f"{answer}\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(ValueError, match=says):
        share_out(jobs)


def test_gpus_are_shared_out_of_those_that_are_visible(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    done = subprocess.CompletedProcess([], 0, stdout="gpu 3\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    named = [share.environment["CUDA_VISIBLE_DEVICES"] for share in share_out(2)]
    assert named == ["4,7", "5"]


def test_a_result_without_origin_has_no_commit(tmp_path):
    assert Result("missing", tmp_path).commit == ""
