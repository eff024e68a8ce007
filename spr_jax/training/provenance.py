"""Provenance of a result: commit, machine, versions."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import jax


def commit() -> str:
    """Short hash of the checkout, marked if the code differs from it; reports do not count."""
    root = Path(__file__).parents[2]

    def git(*arguments):
        return subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", ".", ":!experiments/reports")
        return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> str:
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    devices = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    return f"{model}, {os.cpu_count()} cores; JAX devices: {devices}"


def versions(*packages: str) -> str:
    named = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    return ", ".join([f"Python {platform.python_version()}", *named])
