"""The command as a user meets it: one sentence for a mistake, a dry run, the first try."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import PROGRAMS

from configs import digits_sym
from spr_jax import main
from spr_jax.training import demo
from spr_jax.training.presets import PRESETS

ROOT = Path(__file__).parents[2]
DIGITS = "--config=configs/digits_sym.py"
MISTAKES = {
    "misspelled field": ([DIGITS, "--config.epochz=3"], 'Did you mean "epochs"'),
    "misspelled option": ([DIGITS, "--config.noise.rat=0.5"], 'Did you mean "rate"'),
    "unknown field": ([DIGITS, "--config.method.qq=1"], "'qq'"),
    "misspelled choice": ([DIGITS, "--config.noise.kind=symetric"], "did you mean 'symmetric'?"),
    "misspelled method": ([f"{DIGITS}:spl"], "'spl'; did you mean 'spr'?"),
    "misspelled preset": ([DIGITS, "--config.preset=papr"], "'papr'; did you mean 'paper'?"),
    "misspelled rule": ([DIGITS, "--config.method.select.name=pat"], "did you mean 'path'?"),
    "option of another rule": ([DIGITS, "--config.method.select.level=0.2"], "method.select.level"),
    "rule as a word": ([DIGITS, "--config.method.select=path"], "select is 'path'"),
    "no number": ([DIGITS, "--config.epochs=abc"], "--config.epochs=abc: invalid literal"),
    "no flag": ([DIGITS, "--epochs=3"], "Unknown command line flag 'epochs'"),
    "no dashes": ([DIGITS, "config.epochs=3"], "Unknown argument 'config.epochs=3'"),
    "no file": (["--config=configs/digit_sym.py"], "No such file or directory: 'configs/digit_sym"),
    "no file, and a field": (
        ["--config=configs/digit_sym.py", "--config.epochs=3"],
        "No such file or directory: 'configs/digit_sym.py'",
    ),
    "folder of something else": ([DIGITS, "--workdir=tests"], "tests is not empty"),
}


def start(*arguments, before="", cwd=ROOT):
    """Run `python -m spr_jax.main`, after some other lines if they are given."""
    run = 'import runpy; runpy.run_module("spr_jax.main", run_name="__main__", alter_sys=True)'
    program = ["-c", f"{before}\n{run}"] if before else ["-m", "spr_jax.main"]
    return subprocess.Popen(
        [sys.executable, *program, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


# Imports once what a process for each mistake would import again.
FORKS = """
import json, os, sys
from spr_jax import main
for name, arguments in json.loads(sys.argv[1]).items():
    if not os.fork():
        for number, kind in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{name}.{kind}", os.O_WRONLY | os.O_CREAT), number)
        sys.argv = ["main.py", *arguments]
        os.chdir(sys.path[0])
        main.run()
    print(name, os.waitstatus_to_exitcode(os.wait()[1]), sep="\\t")
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """(output, errors, status) of every mistake."""
    home = tmp_path_factory.mktemp("mistakes")
    cases = {name: arguments for name, (arguments, _) in MISTAKES.items()}
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{FORKS}"
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(cases)], cwd=home, capture_output=True, text=True
    )
    statuses = dict(line.split("\t") for line in done.stdout.splitlines())
    return {
        name: (*((home / f"{name}.{kind}").read_text() for kind in ("out", "err")), int(status))
        for name, status in statuses.items()
    }


@pytest.mark.slow
def test_a_process_of_its_own_says_the_same():
    process = start(DIGITS, "--config.epochs=abc")
    _, errors = process.communicate(timeout=300)
    assert "--config.epochs=abc" in errors and process.returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake, answers):
    output, errors, status = answers[mistake]
    assert MISTAKES[mistake][1] in errors
    assert errors.startswith("python -m spr_jax.main: ") and errors.count("\n") == 1
    assert (output, status) == ("", 2)


def test_the_sentence_is_the_last_of_what_was_said():
    traceback = "Traceback (most recent call last):\n  File 'x'\nValueError: epochs is\n  wrong"
    assert main.one_sentence(ValueError(traceback)) == "epochs is wrong"
    assert main.one_sentence(ValueError(repr(traceback))) == "epochs is wrong"
    missing = FileNotFoundError(2, "No such file or directory", "x.py")
    assert main.one_sentence(missing) == "No such file or directory: 'x.py'"
    unknown = ValueError("Traceback (most recent call last):\nKeyError: 'qq'")
    assert main.one_sentence(unknown).startswith("Unknown field 'qq'; --dry_run")


@pytest.mark.parametrize(
    ("old", "new"),
    {"growth": "penalty_growth", "most_wrong": "select.max_error_probability"}.items(),
)
def test_a_renamed_option_is_told_its_new_name(old, new):
    unknown = ValueError(f"Traceback (most recent call last):\nKeyError: '{old}'")
    assert f"'{old}'; it is now called '{new}'" in main.one_sentence(unknown)


@pytest.fixture
def launched(monkeypatch):
    """Leave the devices and the memory of this process alone."""
    monkeypatch.setattr(main, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(main, "one_device_per_core", lambda **_: None)
    monkeypatch.setattr(main, "NUM_PROCESSES", SimpleNamespace(value=None))
    monkeypatch.setattr(main, "DRY_RUN", SimpleNamespace(value=True))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_dry_run_names_the_preset_and_the_rule(preset, launched, tmp_path, capsys):
    config = digits_sym.get_config()
    config.preset = preset
    assert main.launch(config, tmp_path / "run") is None
    said = capsys.readouterr().out
    assert f"Preset {preset}: " in said and f"rule {PRESETS[preset].rule['name']}(" in said
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_dry_run_says_what_would_be_run_and_writes_nothing(tmp_path):
    places = [f"--workdir={tmp_path / 'run'}", f"--config.compilation_cache={PROGRAMS}"]
    process = start(DIGITS, "--dry_run", "--config.batch_size=100", "--config.epochs=7", *places)
    said, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, "")
    assert "pca_dim: 64" in said and "epochs: 7" in said  # as the preset resolves it, as asked for
    assert "Preset noise_model" in said and "rule noise_model(" in said
    # Two 3x3 convolutions to 32 and 64 channels, 256 -> 128, 128 -> 10; norms of 32, 64 and 128.
    weights = (9 * 32 + 32) + (9 * 32 * 64 + 64) + (256 * 128 + 128) + (128 * 10 + 10)
    assert f"Networks: 1 of {weights + 2 * (32 + 64 + 128):,} parameters." in said
    assert "Examples: 1,438, in memory." in said and "Steps: 15 per epoch, 105 in all." in said
    assert "Devices: " in said and "On each device: state " in said and "MiB" in said
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_an_old_name_of_a_preset_warns_and_works(tmp_path):
    process = start(DIGITS, "--dry_run", "--config.preset=exact", f"--workdir={tmp_path / 'run'}")
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0 and "Preset noise_model" in said
    assert "FutureWarning" in errors and "'noise_model'" in errors


def test_the_demonstration_compares_what_its_rows_say(launched, tmp_path, monkeypatch, capsys):
    runs = []

    def launch(config, workdir):
        runs.append((config.method.name, config.preset, workdir))
        kept = {"clean_share": 0.6, "label_precision": 0.97} if len(runs) > 1 else {}
        return {"last": {"test_top1": 0.5 + len(runs) / 10} | kept}

    monkeypatch.setattr(main, "launch", launch)
    main.demonstrate(tmp_path)
    assert [run[:2] for run in runs] == [row[1:] for row in demo.ROWS]
    assert len({workdir for _, _, workdir in runs}) == len(demo.ROWS) == 3
    said = capsys.readouterr().out
    for (title, _, _), accuracy in zip(demo.ROWS, ("60.0 %", "70.0 %", "80.0 %"), strict=True):
        (line,) = [line for line in said.splitlines() if title in line and "%" in line]
        assert accuracy in line and ("97.0 %" in line) == (accuracy != "60.0 %")


@pytest.mark.slow
def test_without_arguments_it_shows_plain_training_and_spr(tmp_path):
    """Also outside the checkout, where there is no configs/."""
    before = f"""
from spr_jax.training import demo

def brief(method, usual=demo.digits_config):
    config = usual(method)
    config.update(epochs=1, compilation_cache={str(PROGRAMS)!r})
    return config

demo.digits_config = brief
"""
    process = start(before=before, cwd=tmp_path)
    said, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    lines = said.split("\n")
    assert sum(line.startswith("epoch 1/1  loss ") for line in lines) == 3
    assert "40 % of the training labels wrong" in said
    table = said[said.index("40 % of the training labels wrong") :]
    for title, method, preset in demo.ROWS:
        (line,) = [line for line in table.splitlines() if title in line]
        assert line.count("%") == (1 if method == "ce" else 3)
        name = method if method == "ce" else f"{method}-{preset}"
        assert (tmp_path / "runs" / "digits" / name / "summary.json").exists()
