"""The detector without the packages that only training and images need."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import make_data

import spr_jax

ROOT = Path(__file__).parents[2]

# absl is not among them: optax, which the noise model needs, imports it.
HEAVY = ("flax", "orbax", "tensorflow_datasets", "grain", "PIL", "ml_collections", "sklearn")
BLOCK = f"import sys; sys.modules.update(dict.fromkeys({HEAVY}))"  # None: importing it fails


def run(code, *arguments, cwd=ROOT):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    options = {"cwd": cwd, "env": environment, "capture_output": True, "text": True}
    return subprocess.run(command, timeout=300, **options)


def run_detect(*arguments, cwd):
    return run(f"{BLOCK}; from spr_jax.detect import main; main()", *arguments, cwd=cwd)


@pytest.mark.slow
def test_public_names_are_imported_lazily():
    code = f"""
import sys, spr_jax
assert "jax" not in sys.modules
spr_jax.find_label_errors, spr_jax.sample_weights, spr_jax.Detection
print([name for name in {HEAVY} if name in sys.modules])
"""
    done = run(code)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'nothing'"):
        spr_jax.nothing  # noqa: B018


@pytest.mark.slow
def test_features_need_no_training_packages(tmp_path):
    features, labels, _ = make_data(100)
    np.save(tmp_path / "features.npy", features)
    np.save(tmp_path / "labels.npy", labels)
    done = run_detect("features.npy", "labels.npy", "--keep=0.5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "100 examples of 4 classes" in done.stdout
    assert (tmp_path / "found" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--images=."], ["--dataset=digits"], []])
def test_what_is_missing_is_named_in_one_sentence(tmp_path, arguments):
    done = run_detect(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("python -m spr_jax.detect: ")
    assert 'pip install "spr_jax[images]"' in done.stderr
    assert any(name in done.stderr for name in HEAVY)
    assert not (tmp_path / "found").exists()
