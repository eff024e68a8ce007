"""The curves over the kept fraction and over the exponent show means, gaps and peaks."""

from argparse import Namespace

import numpy as np
import pytest
from finished_runs import epoch, figures_drawn, has_colours, leave_history, lines_of, rendered

from experiments import figure_select_ratio, figure_sparse_norm
from experiments.figure_select_ratio import peak
from experiments.harness import plot
from experiments.harness.runs import config_of

pytestmark = pytest.mark.usefixtures("fixed_origin")

LAST, BEST = "test accuracy, last epoch", "test accuracy, best on test"


def options(**changes):
    return Namespace(**{"small": False, "seeds": 1, "data_dir": ""} | changes)


def test_the_share_that_is_kept_is_all_that_changes():
    cells = figure_select_ratio.cells(options())
    assert [*cells] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, "auto"]
    configs = {name: config_of(run) for name, (run,) in cells.items()}
    assert [config.method.select.get("keep") for config in configs.values()][:-1] == [*cells][:-1]
    for name, config in configs.items():
        assert (config.noise.rate, config.method.cutmix, config.preset) == (0.8, 0, "paper")
        assert config.method.select.name == ("noise_model" if name == "auto" else "share")
        assert config.optimizer == configs[0.5].optimizer


def test_the_exponent_is_all_that_changes():
    configs = {q: config_of(run) for q, (run,) in figure_sparse_norm.cells(options()).items()}
    assert min(configs) == 0.05 and max(configs) == 1 and 0.2 in configs
    for q, config in configs.items():
        assert config.method.penalty_q == q and config.noise.rate == 0.4
        config.method.penalty_q = 0.2
        assert config == configs[0.2]


@pytest.fixture(scope="module")
def select_ratio(tmp_path_factory, fixed_origin):
    """Three seeds; the share 0.3 is missing, and one seed of 0.4."""
    tmp_path, cells = tmp_path_factory.mktemp("runs"), figure_select_ratio.cells(options(seeds=3))
    accuracy = {0.1: 0.5, 0.2: 0.7, 0.3: None, 0.4: 0.6, "auto": 0.65}
    for name, cell in cells.items():
        for run, more in zip(cell, (0, 0.02, 0.04), strict=True):
            if (found := accuracy.get(name, 0.3)) is None or (name, run.seed) == (0.4, 2):
                continue
            shares = {"clean_share": 0.15, "label_precision": 0.9}
            leave_history(run, tmp_path, [epoch(0, found + 0.1), epoch(1, found + more, **shares)])
    with figures_drawn() as drawn:
        found = rendered(figure_select_ratio, tmp_path, "--seeds=3")
    return *found, tmp_path, drawn


def test_accuracy_is_drawn_over_the_share_with_a_gap(select_ratio):
    status, rows, text, out, (figure,) = select_ratio
    (panel,) = figure.axes
    lines = lines_of(panel)
    expected = [[0.1, 52], [0.2, 72], [0.4, 61], *([x / 10, 32] for x in range(5, 10))]
    np.testing.assert_allclose(lines["last epoch"], expected)
    np.testing.assert_allclose(lines["best on test"][:3], [[0.1, 60], [0.2, 80], [0.4, 70]])
    np.testing.assert_allclose(lines["fraction that auto keeps"][:, 0], 0.15)
    np.testing.assert_allclose(lines["fraction of correct labels"][:, 0], 0.2)
    stars = [line for line in panel.lines if line.get_marker() == "*"]
    np.testing.assert_allclose([star.get_xydata()[0] for star in stars], [[0.15, 67], [0.15, 75]])
    (bars,) = panel.containers[0].lines[2]
    np.testing.assert_allclose(np.diff(bars.get_segments()[0][:, 1]), 4)  # a deviation up and down
    assert panel.get_xlabel() == "fraction of labels that is kept"
    assert panel.get_ylabel() == "test accuracy (%)"
    assert has_colours(out / "reports" / "figure_select_ratio.png", plot.COLOURS[:2])


def test_the_report_of_shares_tells_numbers_and_gaps(select_ratio):
    status, rows, text, *_ = select_ratio
    assert status == 75
    by_share = {row["kept"]: row for row in rows}
    assert [*by_share] == [*map(str, figure_select_ratio.SHARES), "auto"]
    column = f"{LAST}, mean (%)", f"{LAST}, std (%)", f"{BEST}, mean (%)", "runs finished"
    assert [by_share["0.2"][name] for name in column] == ["72.0000", "2.0000", "80.0000", "3"]
    assert [by_share["0.3"][name] for name in column] == ["-", "-", "-", "0"]
    assert [by_share["auto"][name] for name in column] == ["67.0000", "2.0000", "75.0000", "3"]
    for line in (
        "| 0.4 | 61.00 ± 1.41 [2 of 3] | 70.00 ± 0.00 [2 of 3] | 90.00 ± 0.00 [2 of 3] |",
        "| 0.3 | - | - | - |",
        f"- {LAST}: highest at 0.2 (72.00 ± 2.00 %).",
        f"- auto keeps 0.150, where 0.2 are correct: {LAST} 67.00 ± 2.00 %",
        "--config.method.select.keep=0.3 --config.seed=2",
    ):
        assert line in text
    missing = text.split("Commands for the missing")[1].split("<details>")[0]
    assert missing.count("python -m spr_jax.main") == 4


def test_accuracy_is_drawn_over_the_exponent(tmp_path, drawn):
    cells = figure_sparse_norm.cells(options(small=True))
    for q, (run,) in cells.items():
        if q != 0.5:
            leave_history(
                run, tmp_path, [epoch(0, 0.9 - abs(q - 0.2)), epoch(1, 0.8 - abs(q - 0.3))]
            )
    status, rows, text = rendered(figure_sparse_norm, tmp_path, "--small")
    (panel,) = drawn[0].axes
    q, last = lines_of(panel)["last epoch"].T
    assert [*q] == [q for q in figure_sparse_norm.EXPONENTS if q != 0.5]
    np.testing.assert_allclose(last, 80 - 100 * abs(q - 0.3))
    np.testing.assert_allclose(lines_of(panel)["best in the paper"][:, 0], 0.2)
    assert [tick.get_text() for tick in panel.get_xticklabels()] == [
        str(q) for q in figure_sparse_norm.EXPONENTS
    ]
    assert f"- {LAST}: highest at 0.3 (80.00 %)." in text and status == 75
    assert f"- {BEST}: highest at 0.2 (90.00 %)." in text
    assert "--config.method.penalty_q=0.5" in text.split("<details>")[0]
    assert {row["q"]: row[f"{LAST}, mean (%)"] for row in rows}["0.05"] == "55.0000"
    assert has_colours(tmp_path / "reports" / "figure_sparse_norm_small.png", plot.COLOURS[:2])


def test_a_peak_names_the_points_it_cannot_be_distinguished_from():
    assert peak({0.1: [50.0], 0.2: [60.0]}) == "highest at 0.2 (60.00 %)"
    expected = "highest at 0.2 (60.00 ± 2.83 %; not distinguishable from it: 0.1, 0.3)"
    assert peak({0.1: [58.0], 0.2: [58.0, 62.0], 0.3: [57.5], 0.4: [57.0]}) == expected
