"""Fixtures of the tables and figures: a fixed origin of reports, and the figures they draw."""

import csv
import functools
import runpy
import sys
from types import SimpleNamespace

import pytest
from finished_runs import figures_drawn

from experiments.harness import runs, study


@pytest.fixture(scope="session", autouse=True)
def configs_read_once():
    """Execute every config file once, however many cells it has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "runpy", SimpleNamespace(run_path=functools.cache(runpy.run_path)))
        yield


@pytest.fixture(scope="module")
def fixed_origin():
    """Reports that do not depend on who makes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "commit", lambda: "here")
        patch.setattr(study, "command_line", lambda: "python -m a.figure")
        yield


@pytest.fixture
def as_command(monkeypatch):
    """Start as `python -m experiments.harness.browser --read`, at a known commit."""
    main = SimpleNamespace(name="experiments.harness.browser")  # a module that imports quickly
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", main)
    monkeypatch.setattr(sys, "argv", ["table", "--read"])
    monkeypatch.setattr(runs, "commit", lambda: "here")


@pytest.fixture
def drawn():
    """The figures that are saved, in order."""
    with figures_drawn() as found:
        yield found


@pytest.fixture
def table(tmp_path):
    """Make a table; (exit status, Markdown, rows of the CSV by their first columns)."""

    def call(script, *arguments):
        folders = [f"--out={tmp_path / 'runs'}", f"--reports={tmp_path / 'reports'}"]
        status = script.main([*folders, *arguments])
        (text,) = (tmp_path / "reports").glob("*.md")
        with open(text.with_suffix(".csv"), newline="") as file:
            rows = list(csv.DictReader(file))
        named = {tuple(row.values())[: list(row).index("paper (%)")]: row for row in rows}
        return status, text.read_text(), named

    return call
