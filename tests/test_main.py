"""The command as a user meets it: one sentence for a mistake, a dry run, the first try."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DIGITS = "--config=configs/digits_sym.py"
MISTAKES = {
    "misspelt field": ([DIGITS, "--config.epochz=3"], 'Did you mean "epochs"'),
    "misspelt option": ([DIGITS, "--config.noise.rat=0.5"], 'Did you mean "rate"'),
    "unknown field": ([DIGITS, "--config.method.qq=1"], "Unknown field 'qq'; --dry_run shows"),
    "misspelt choice": ([DIGITS, "--config.noise.kind=symetric"], "did you mean 'symmetric'?"),
    "misspelt method": ([f"{DIGITS}:spl"], "Unknown name 'spl'; did you mean 'spr'?"),
    "no number": ([DIGITS, "--config.epochs=abc"], "--config.epochs=abc: invalid literal"),
    "no flag": ([DIGITS, "--epochs=3"], "Unknown command line flag 'epochs'"),
    "no dashes": ([DIGITS, "config.epochs=3"], "Unknown argument 'config.epochs=3'"),
    "no file": (["--config=configs/digit_sym.py"], "No such file or directory: 'configs/digit_sym"),
    "no file, and a field": (
        ["--config=configs/digit_sym.py", "--config.epochs=3"],
        "No such file or directory: 'configs/digit_sym.py'",
    ),
    "folder of something else": ([DIGITS, "--workdir=tests"], "tests holds other files and no run"),
}


def start(*arguments, before=""):
    program = ["-c", f"{before}\napp.run(main.main, flags_parser=main.parse_flags)"]
    return subprocess.Popen(
        [sys.executable, *(program if before else ["-m", "spr_jax.main"]), *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture(scope="module")
def answers():
    """(output, errors, status) of every mistake."""
    started = {name: start(*arguments) for name, (arguments, _) in MISTAKES.items()}
    return {
        name: (*process.communicate(timeout=100), process.returncode)
        for name, process in started.items()
    }


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake, answers):
    output, errors, status = answers[mistake]
    assert MISTAKES[mistake][1] in errors
    assert errors.startswith("python -m spr_jax.main: ") and errors.count("\n") == 1
    assert (output, status) == ("", 2)


def test_a_dry_run_says_what_would_be_run_and_writes_nothing(tmp_path):
    places = [f"--workdir={tmp_path / 'run'}", f"--config.compilation_cache={tmp_path / 'cache'}"]
    process = start(DIGITS, "--dry_run", "--config.batch_size=100", "--config.epochs=7", *places)
    said, errors = process.communicate(timeout=100)
    assert (process.returncode, errors) == (0, "")
    assert "pca_dim: 64" in said and "epochs: 7" in said  # as the preset resolves it, as asked for
    # Two 3x3 convolutions to 32 and 64 channels, 256 -> 128, 128 -> 10; norms of 32, 64 and 128.
    weights = (9 * 32 + 32) + (9 * 32 * 64 + 64) + (256 * 128 + 128) + (128 * 10 + 10)
    assert f"Networks: 1 of {weights + 2 * (32 + 64 + 128):,} parameters." in said
    assert "Examples: 1,438, in memory." in said and "Steps: 15 an epoch, 105 in all." in said
    assert "Devices: " in said and "On each device: state " in said and "MiB" in said
    assert not [*tmp_path.iterdir()]


def test_without_arguments_it_shows_plain_training_and_spr(tmp_path):
    before = f"""
from absl import app
from configs import digits_sym
from spr_jax import main

def brief(method, usual=digits_sym.get_config):
    config = usual(method)
    config.update(epochs=1, compilation_cache={str(tmp_path / "cache")!r})
    return config

digits_sym.get_config = brief
"""
    process = start(f"--workdir={tmp_path / 'digits'}", before=before)
    said, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    lines = said.split("\n")
    assert sum(line.startswith("epoch 1/1  loss ") for line in lines) == 2
    assert "Test accuracy after the last epoch, with 40 % of the training labels wrong" in said
    for method in ("ce", "spr"):
        assert (tmp_path / "digits" / method / "summary.json").exists()
