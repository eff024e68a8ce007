"""The files that a finished run leaves, without the run; and what reports say about them."""

import contextlib
import csv
import json
from types import SimpleNamespace
from unittest import mock

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from experiments.harness import study
from experiments.harness.runs import config_of, folder


def leave(run, out, summary, *, commit="here", wrong=0.4):
    """Make the folder of the run, with the files that the experiments read."""
    home = folder(run, out)
    home.mkdir(parents=True)
    (home / "config.json").write_text(config_of(run).to_json())
    origin = {"commit": commit, "machine": "a machine", "versions": "its versions"}
    (home / "origin.json").write_text(json.dumps(origin))
    np.savez(home / "noise.npz", obtained=wrong)
    (home / "summary.json").write_text(json.dumps(summary))
    return home


def table_options(*arguments):
    """The options of a table, as its parser has them."""
    several = {"dataset": None, "noise": None, "methods": None, "epochs": None}
    parser = study.arguments("A table.", "table", on_features=True, fast=True)
    options = parser.parse_args(arguments)
    return SimpleNamespace(**several | vars(options))


def epoch(number, test, **shares):
    """A row of metrics."""
    return {"epoch": number, "test_top1": test, **shares}


def leave_history(run, out, rows, wrong=0.4):
    """Make the folder of a run with these rows of metrics."""
    best = {"test_top1": {"epoch": 0, "test_top1": max(row["test_top1"] for row in rows)}}
    home = leave(run, out, {"last": rows[-1], "best_on_test": best}, wrong=wrong)
    (home / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def rendered(script, out, *flags):
    """Exit status, lines of the CSV and Markdown of a study that starts nothing."""
    status = script.main([f"--out={out}", f"--reports={out / 'reports'}", "--read", *flags])
    (table,), (text,) = ([*(out / "reports").glob(f"*.{end}")] for end in ("csv", "md"))
    with open(table, newline="") as file:
        return status, list(csv.DictReader(file)), text.read_text()


@contextlib.contextmanager
def figures_drawn():
    """A list of the figures that are saved meanwhile, in order."""
    found, save = [], Figure.savefig

    def note(figure, *arguments, **options):
        found.append(figure)
        save(figure, *arguments, **options)

    with mock.patch.object(Figure, "savefig", note):
        yield found


def lines_of(panel):
    """Label -> points of the lines in a panel, with and without error bars."""
    lines = {bars.get_label(): bars.lines[0].get_xydata() for bars in panel.containers}
    return lines | {
        line.get_label(): line.get_xydata()
        for line in panel.lines
        if not line.get_label().startswith("_")
    }


def has_colours(path, colours):
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    return all((pixels == list(bytes.fromhex(c[1:]))).all(axis=-1).any() for c in colours)
