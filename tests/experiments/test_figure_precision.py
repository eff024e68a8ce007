"""The figure of label precision shows each epoch, its bounds and the paper's numbers."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from finished_runs import epoch, figures_drawn, has_colours, leave_history, lines_of, rendered

from experiments import figure_precision, learn_mnist
from experiments.figure_precision import OURS, PAPER, PLAIN
from experiments.harness import plot
from experiments.harness.runs import config_of, folder

pytestmark = pytest.mark.usefixtures("fixed_origin")


def options(**changes):
    return Namespace(**{"small": False, "seeds": 1, "data_dir": ""} | changes)


SMALL = options(small=True, seeds=2)


def test_the_small_precision_figure_finds_the_runs_of_learn_mnist():
    cells = figure_precision.cells(options(small=True))
    there = {folder(run, Path()) for (run,) in learn_mnist.cells(options()).values()}
    assert len(cells) == 9 and {folder(run, Path()) for (run,) in cells.values()} <= there


def test_the_penalty_grows_as_in_the_paper():
    cells = figure_precision.cells(options())
    growth = {name: config_of(run).method.get("penalty_growth") for name, (run,) in cells.items()}
    assert growth["symmetric 0.4", PAPER] == 1.02 and growth["symmetric 0.8", PAPER] == 1
    assert growth["symmetric 0.8", OURS] == 1 and growth["symmetric 0.8", PLAIN] is None


@pytest.fixture(scope="module")
def precision(tmp_path_factory, fixed_origin):
    """A figure of nine cells with two seeds of one and plain training of another."""
    tmp_path, cells = tmp_path_factory.mktemp("runs"), figure_precision.cells(SMALL)
    for run, more in zip(cells["symmetric 0.8", PAPER], (0, 0.02), strict=True):
        shares = {"clean_share": 0.5, "label_recall": 0.75}
        first = epoch(0, 0.5, label_precision=0.25, **shares)
        last = epoch(1, 0.6 + more, label_precision=0.30 + more, **shares)
        leave_history(run, tmp_path, [first, last], wrong=0.8)
    for run in cells["symmetric 0.4", PLAIN]:
        leave_history(run, tmp_path, [epoch(0, 0.9), epoch(1, 0.7)])
    with figures_drawn() as drawn:
        found = rendered(figure_precision, tmp_path, "--small", "--seeds=2")
    return *found, tmp_path, drawn


def test_precision_is_drawn_by_epoch_with_its_bounds(precision):
    *_, (figure,) = precision
    panels = np.reshape(figure.axes, (3, 3))
    accuracy, share, recall = map(lines_of, panels[:, 1])
    np.testing.assert_allclose(accuracy[PAPER], [[1, 50], [2, 61]])
    np.testing.assert_allclose(share[PAPER], [[1, 25], [2, 31]])
    np.testing.assert_allclose(recall[PAPER], [[1, 75], [2, 75]])
    np.testing.assert_allclose(share["fraction of correct labels"][:, 1], 20)
    np.testing.assert_allclose(share["bound of a fixed half"][:, 1], 40)
    assert "bound of a fixed half" not in recall  # it is 100 %
    assert len(share[PLAIN]) == len(share[OURS]) == 0
    (band,) = panels[1, 1].collections
    top = band.get_paths()[0].vertices[:, 1].max()
    np.testing.assert_allclose(top, 31 + 2**0.5)

    accuracy, share, recall = map(lines_of, panels[:, 0])
    np.testing.assert_allclose(accuracy[PLAIN], [[1, 90], [2, 70]])
    np.testing.assert_allclose(recall["bound of a fixed half"][:, 1], 50 / 0.6)
    assert "fraction of correct labels" not in lines_of(panels[1, 2])  # nothing is known there
    assert [panel.get_title() for panel in panels[0]] == [*figure_precision.NOISE]
    assert panels[1, 0].get_ylabel() == "label precision (%)"
    assert panels[2, 0].get_xlabel() == "epoch"


def test_the_papers_ends_are_marked(precision):
    *_, (figure,) = precision
    stars = [line for line in figure.axes[1].lines if line.get_marker() == "*"]
    np.testing.assert_allclose([star.get_xydata()[0] for star in stars], [[10, 22.7], [10, 98.7]])
    assert [star.get_color() for star in stars] == [*plot.COLOURS[:2]]  # of the lines
    full = [
        figure_precision.published(options(), noise, "label_precision", PAPER)
        for noise in figure_precision.NOISE
    ]
    assert full == [93.90, 30.34, 93.50]


def test_the_report_of_precision_tells_numbers_and_gaps(precision):
    status, rows, text, out, _ = precision
    assert status == 75
    assert len(rows) == 8
    assert [row for row in rows if row["method"] == PAPER][-1] == {
        "noise": "symmetric 0.8",
        "method": PAPER,
        "seed": "1",
        "epoch": "2",
        "test_top1 (%)": "62.0000",
        "clean_share (%)": "50.0000",
        "label_precision (%)": "32.0000",
        "label_recall (%)": "75.0000",
    }
    for line in (
        f"| symmetric 0.8 | {PAPER} | 61.00 ± 1.41 | 61.00 ± 1.41 | 50.00 ± 0.00 | "
        "31.00 ± 1.41 | 75.00 ± 0.00 | 98.70 | - |",
        f"| symmetric 0.4 | {PLAIN} | 70.00 ± 0.00 | 90.00 ± 0.00 | - | - | - | 74.00 | - |",
        f"| asymmetric 0.4 | {OURS} | - | - | - | - | - | - | - |",
        "- Runs: 4 of 18 finished",
        "20.00 % of the labels are correct; a fixed half has a precision of at most 40.00 %",
        "goes from 25.00 % to 31.00 %, and is highest after epoch 2 of 2 (31.00 %)",
        "![figure_precision_small](figure_precision_small.png)",
        "--config=configs/mnist_asym.py:spr --config.preset=noise_model --config.noise.rate=0.4",
    ):
        assert line in text
    assert has_colours(out / "reports" / "figure_precision_small.png", plot.COLOURS[:3])
