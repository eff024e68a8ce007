"""The documentation names what is there, and its example runs."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from spr_jax.methods import METHODS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
NOTEBOOK = ROOT / "examples" / "label_errors_in_digits.ipynb"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text()
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text)
    for target in targets:
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors_of(file), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page):
    text = page.read_text()
    for module in re.findall(r"python -m ((?:spr_jax|experiments)\.\w+)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), f"{page.name}: {module}"
    for config in re.findall(r"--config=(configs/\w+\.py)", text):
        assert (ROOT / config).exists(), f"{page.name}: {config}"
    for script in re.findall(r"^(spr-\w+)", text, re.MULTILINE):
        assert script in PROJECT["scripts"], f"{page.name}: {script}"


def test_architecture_lists_every_module():
    text = (ROOT / "docs" / "architecture.md").read_text()
    sections = re.findall(r"^### (spr_jax\S*)\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL)
    listed = {
        f"{folder}/{name}"
        for folder, rows in sections
        for name in re.findall(r"^\| `([\w.]+\.py)`", rows, re.MULTILINE)
    }
    there = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("spr_jax/**/*.py")}
    assert listed == there


def test_every_method_is_documented():
    text = (ROOT / "docs" / "methods.md").read_text()
    table = text.split("## Add a method")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(METHODS)


def test_readme_has_the_two_commands_of_ci():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 180
    for command in ("spr_jax.main", "pytest"):
        assert sum(bool(re.match(rf"python3 -m venv .*{command}", line)) for line in lines) == 1


def test_requirements_are_those_of_the_package():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    listed = {line for line in lines if line and not line.startswith("#")}
    extras = PROJECT["optional-dependencies"]
    needed = {*PROJECT["dependencies"], *extras["train"], *extras["images"]}
    assert listed == needed - {"spr_jax[train]"}


def test_console_commands_are_functions():
    for target in PROJECT["scripts"].values():
        module, function = target.split(":")
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
        assert f"\ndef {function}(" in source, target


def test_only_ci_knows_where_raw_data_comes_from():
    kinds = ("*.py", "*.md", "*.toml", "*.txt", "*.yml", "*.yaml", "*.sh")
    folders = ("spr_jax", "configs", "experiments", "docs", "examples", ".github")
    files = [
        path for kind in kinds for place in folders for path in ROOT.glob(f"{place}/**/{kind}")
    ]
    assert len(files) > 100
    assert not [path for path in [*files, *PAGES] if "../shared" in path.read_text()]


def shape_of(text: str) -> list[str]:
    """The lines of an output without its numbers, which depend on the machine."""
    return [re.sub(r"[\d.e%-]+", "#", line) for line in text.splitlines()]


@pytest.mark.slow
def test_notebook_runs_and_shows_what_it_prints(tmp_path):
    cells = [
        cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"
    ]
    assert all(cell["execution_count"] for cell in cells)
    source = "\n".join("".join(cell["source"]) for cell in cells)
    env = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}
    env.pop("XLA_FLAGS", None)  # the tests' own, which compile quickly and run slowly
    run = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", source],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    outputs = [output for cell in cells for output in cell["outputs"]]
    stored = "".join("".join(output.get("text", "")) for output in outputs)
    assert shape_of(stored) == shape_of(run.stdout)
    assert any("image/png" in output.get("data", {}) for output in outputs)
