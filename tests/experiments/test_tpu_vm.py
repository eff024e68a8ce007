"""The script for TPU VMs, with a gcloud that notes what it is asked and answers as it is told."""

import json
import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "experiments" / "tpu_vm.sh"
# Each run ends as the next of RUNS says; a machine that is "gone" is so until another is created.
GCLOUD = """#!/usr/bin/env python3
import json, os, sys
from pathlib import Path
home = Path(os.environ["FAKE_HOME"])
asked = sys.argv[1:]
with open(home / "asked", "a") as file:
    file.write(json.dumps(asked) + chr(10))
runs, gone = home / "runs", home / "gone"
verb = asked[3]
if verb == "create":
    gone.unlink(missing_ok=True)
elif verb == "describe":
    print("" if gone.exists() else "READY")
elif verb == "ssh" and any("spr_jax.main" in each for each in asked):
    status, *rest = json.loads(runs.read_text())
    runs.write_text(json.dumps(rest))
    if status == "gone":
        gone.touch()
        sys.exit(255)
    print(f"spr_jax ended with status {status}")
    sys.exit(status and 1)  # gcloud's own
"""


@pytest.fixture
def script(tmp_path):
    """Run the script; return its exit status and what gcloud was asked."""
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(GCLOUD)
    gcloud.chmod(0o755)

    def script(*arguments, runs=(), **environment):
        (tmp_path / "runs").write_text(json.dumps(runs))
        found = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FAKE_HOME": str(tmp_path)}
        done = subprocess.run(
            ["bash", SCRIPT, *arguments],
            env=os.environ | found | {"PAUSE": "0"} | environment,
            capture_output=True,
            timeout=60,
        )
        asked = (tmp_path / "asked").read_text().splitlines()
        (tmp_path / "asked").unlink()
        return done.returncode, [json.loads(line)[3:] for line in asked]

    return script


def verbs(asked):
    return [each[0] for each in asked if each[0] != "describe"]


@pytest.mark.parametrize(
    "kind, runtime",
    [
        ("v4-32", "tpu-ubuntu2204-base"),
        ("v5litepod-8", "v2-alpha-tpuv5-lite"),
        ("v5p-16", "v2-alpha-tpuv5"),
        ("v6e-4", "v2-alpha-tpuv6e"),
    ],
)
def test_a_machine_boots_with_the_software_of_its_type(script, kind, runtime):
    (create,) = script("create", "me", "there", kind)[1]
    assert f"--accelerator-type={kind}" in create and f"--version={runtime}" in create
    (create,) = script("create", "me", "there", kind, RUNTIME="mine", SPOT="1")[1]
    assert "--version=mine" in create and "--spot" in create


def test_python_is_one_that_jax_supports_and_a_bucket_is_mounted_if_named(script):
    status, asked = script("install", "me", "there")
    assert status == 0 and verbs(asked) == ["scp", "ssh"]
    assert "--python 3.12" in str(asked[-1]) and "jax[tpu]" in str(asked[-1])
    _, asked = script("install", "me", "there", BUCKET="pail")
    assert "gcsfuse --implicit-dirs pail runs" in str(asked[-1])


def test_a_run_is_repeated_while_it_was_stopped_and_saved(script):
    status, asked = script("keep", "me", "there", "v4-8", "--config=x", runs=[75, 75, 0])
    assert status == 0 and verbs(asked) == ["ssh"] * 3


def test_a_machine_that_is_gone_is_made_again_with_its_bucket(script):
    status, asked = script("keep", "me", "there", "v4-8", runs=["gone", 0], BUCKET="pail")
    assert status == 0
    assert verbs(asked) == ["ssh", "delete", "create", "scp", "ssh", "ssh", "ssh"]
    assert "pail" in str(asked[-2]) and "spr_jax.main" in str(asked[-1])


@pytest.mark.parametrize("mistake", [1, 2])
def test_a_mistake_is_not_repeated(script, mistake):
    status, asked = script("keep", "me", "there", "v4-8", runs=[75, mistake, 0])
    assert status == mistake and verbs(asked) == ["ssh"] * 2
