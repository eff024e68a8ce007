"""Text for a terminal."""

import sys

import pytest

from spr_jax.io.text import print_columns, program_name, shown


@pytest.mark.parametrize(
    ("label", "text"),
    [("cat", "cat"), (7, "7"), ("dog\x1b[31m", r"'dog\x1b[31m'"), ("a\nb", r"'a\nb'")],
)
def test_labels_cannot_control_a_terminal(label, text):
    assert shown(label) == text


def test_columns_are_as_wide_as_their_cells(capsys):
    print_columns(("a", "long"), [("wide", "1"), ("b", "22")])
    assert capsys.readouterr().out == "\n   a  long\nwide     1\n   b    22\n"


@pytest.mark.parametrize(
    ("started", "name"),
    [("/usr/bin/spr-detect", "spr-detect"), ("spr_jax/detect.py", "python -m spr_jax.detect")],
)
def test_a_program_is_called_what_the_user_typed(monkeypatch, started, name):
    monkeypatch.setattr(sys, "argv", [started])
    assert program_name("spr_jax.detect") == name
