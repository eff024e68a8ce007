"""The benchmark of `spr-detect` starts the right calls, shows medians and limits, and draws."""

import json
import subprocess
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from experiments import benchmark_command
from spr_jax import devices

pytestmark = pytest.mark.usefixtures("as_command")


class FakeCommand:
    """Stands in for `spr-detect`: takes the seconds it is told, leaves what the command leaves."""

    def __init__(self, seconds):
        self.seconds, self.clock, self.calls, self.seen = list(seconds), 0.0, [], []
        self.status, self.prints = 0, ""

    def run(self, command, *, env, **_):
        assert tuple(command[: len(benchmark_command.COMMAND)]) == benchmark_command.COMMAND
        given = dict(each[2:].split("=", 1) for each in command[len(benchmark_command.COMMAND) :])
        programs, out = Path(env["JAX_COMPILATION_CACHE_DIR"]), Path(given["out"])
        features = out / "features" / "lite" / "features.npy"
        self.calls.append((given, env))
        self.seen.append((programs, len(list(programs.iterdir())), features.exists()))
        self.clock += self.seconds.pop(0)
        if not self.status:
            features.parent.mkdir(parents=True, exist_ok=True)
            features.touch()
            (programs / "program").touch()
            examples = (
                len(list(Path(given["images"]).rglob("*.jpg"))) if "images" in given else 50_000
            )
            summary = {"examples": examples, "features_from": {"encoder": "lite"}}
            (out / "summary.json").write_text(json.dumps(summary))
        return subprocess.CompletedProcess(command, self.status, stdout=self.prints)


@pytest.fixture
def fake(monkeypatch):
    """Replace the command and the clock; the seconds of the calls are given."""

    def fake(*seconds):
        command = FakeCommand(seconds)
        names = {name: getattr(subprocess, name) for name in ("PIPE", "STDOUT", "DEVNULL")}
        process = SimpleNamespace(run=command.run, **names)
        monkeypatch.setattr(benchmark_command, "subprocess", process)
        clock = SimpleNamespace(perf_counter=lambda: command.clock)
        monkeypatch.setattr(benchmark_command, "time", clock)
        return command

    return fake


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Make the report of a few photographs, in a folder for this test."""
    monkeypatch.setattr("experiments.harness.provenance.REPORTS", tmp_path / "reports")
    (tmp_path / "reports").mkdir()
    monkeypatch.setattr(benchmark_command, "SMALL", 20)
    work = f"--work={tmp_path / 'work'}"
    return lambda *arguments: benchmark_command.main(["--small", work, *arguments])


def test_a_second_call_finds_what_the_first_one_left(fake, small, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "mine")
    command = fake(90, 8, 9)
    small()
    folder = tmp_path / "work" / "photographs_20"
    assert [given["images"] for given, _ in command.calls] == [str(folder)] * 3
    assert all({*given} == {"images", "out"} for given, _ in command.calls)  # no other option
    assert len({given["out"] for given, _ in command.calls}) == 1
    assert len({programs for programs, _, _ in command.seen}) == 1
    assert [seen[1:] for seen in command.seen] == [(0, False), (1, True), (1, True)]


def test_programs_are_kept_as_the_command_keeps_them(monkeypatch, tmp_path):
    """Every setting of `cache_programs` has its variable in the environment."""
    settings = {}
    config = SimpleNamespace(update=settings.__setitem__)
    monkeypatch.setattr("jax.config", config)
    devices.cache_programs(str(tmp_path))
    environment = benchmark_command.environment_with(tmp_path)
    assert len(settings) >= 3
    assert {name: environment[name.upper()] for name in settings} == {
        name: str(value) for name, value in settings.items()
    }


def test_the_table_has_medians_and_limits(fake, small, tmp_path, capsys):
    fake(90, 8, 9, 300, 12, 11, 16)
    small("--report", f"--data_dir={tmp_path}", f"--out={tmp_path / 'kept'}")
    text = (tmp_path / "reports" / "benchmark_command_small.md").read_text()
    for line in (
        "| photographs, first call: from files to page | 20 | lite | 90.0 | 90.0 "
        "| 180 s for 10,000 |",
        "| photographs, again | 20 | lite | 8.0, 9.0 | 8.5 | - |",
        "| cifar10n, first call | 50,000 | lite | 300.0 | 300.0 | - |",
        "| cifar10n, again | 50,000 | lite | 12.0, 11.0, 16.0 | 12.0 | 10 s for 50,000 |",
    ):
        assert line in text.splitlines()
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [*last.values()] == [90, 8.5, 300, 12]


def test_a_data_set_with_features_is_called_once_for_its_programs(fake, small, tmp_path, capsys):
    features = tmp_path / "kept" / "features" / "lite" / "features.npy"
    features.parent.mkdir(parents=True)
    features.touch()
    command = fake(90, 8, 9, 30, 12, 11, 16)
    small(f"--data_dir={tmp_path / 'data'}", f"--out={tmp_path / 'kept'}")
    given = {"dataset": "cifar10n", "data_dir": f"{tmp_path}/data", "out": f"{tmp_path}/kept"}
    assert [each for each, _ in command.calls[3:]] == [given] * 4
    assert [seen[1:] for seen in command.seen[3:]] == [(0, True)] + [(1, True)] * 3
    assert (
        "| cifar10n, features kept, no programs | 50,000 | lite | 30.0" in capsys.readouterr().out
    )
    assert not list((tmp_path / "reports").iterdir())  # not asked for


def test_a_call_that_fails_is_one_sentence(fake, small, capsys):
    command = fake(3)
    command.status, command.prints = 1, "Reading.\nValueError: The disk is full.\n\n"
    with pytest.raises(SystemExit) as ended:
        small()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "spr-detect" in line]
    assert ended.value.code == 2 and len(command.calls) == 1
    assert "spr-detect --images=" in line and "status 1" in line
    assert line.endswith("ValueError: The disk is full.")


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--photographs=5"], ["--photographs", "5", "20"]),
        (["--data_dir=there", "--out={}/half"], ["half", "--out"]),
        (["--work={}/file"], ["file"]),
    ],
)
def test_mistakes_are_told_before_anything_is_timed(fake, tmp_path, capsys, arguments, words):
    half = tmp_path / "half" / "features" / "lite" / "features.partial.npy"
    half.parent.mkdir(parents=True)
    half.touch()
    (tmp_path / "file").touch()
    command = fake()
    with pytest.raises(SystemExit) as ended:
        benchmark_command.main([each.format(tmp_path) for each in arguments])
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and not command.calls
    assert all(word in line for word in words)


def test_photographs_are_the_same_every_time(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        (folder / "home").mkdir(parents=True)
        benchmark_command.make_photographs(folder / "made", 40, folder / "home")
    files = sorted(path.relative_to(first) for path in first.rglob("*.jpg"))
    assert len(files) == 40
    for file in files:
        assert (first / file).read_bytes() == (second / file).read_bytes()
        with Image.open(first / file) as image:
            image.load()
            assert image.format == "JPEG" and image.mode == "RGB" and image.size == (400, 300)
    assert len({(first / file).read_bytes() for file in files}) == 40


def test_photographs_are_made_once(tmp_path):
    folder = tmp_path / "made"
    benchmark_command.make_photographs(folder, 20, tmp_path)
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*.jpg")}
    benchmark_command.make_photographs(folder, 20, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.jpg")} == times


def test_some_photographs_are_in_the_folder_of_another_class(monkeypatch):
    monkeypatch.setattr(benchmark_command, "WIDTH", 8)
    monkeypatch.setattr(benchmark_command, "HEIGHT", 6)
    drawn = [benchmark_command.draw(number)[1:] for number in range(2000)]
    true, given = np.array(drawn).T
    assert {*Counter(true.tolist()).values()} == {200} and {*given.tolist()} == {*range(10)}
    assert np.mean(true != given) == pytest.approx(0.1, abs=0.02)
