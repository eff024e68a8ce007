"""The paper's figures show what the runs recorded, and tell what is missing in them."""

import csv
import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from finished_runs import leave
from matplotlib.figure import Figure
from PIL import Image

from experiments import (
    figure_features,
    figure_precision,
    figure_select_ratio,
    figure_sparse_norm,
    learn_mnist,
    plot,
    runs,
    study,
)
from experiments.features import View, look
from experiments.features import main as write_features
from experiments.figure_features import in_the_plane, same_class_neighbours, silhouette
from experiments.figure_precision import EXACT, PAPER, PLAIN
from experiments.figure_select_ratio import peak
from experiments.runs import Run, config_of, folder, read
from spr_jax import settings
from spr_jax.augment import normalise
from spr_jax.experiment import init_state, make_experiment
from spr_jax.files import load_arrays
from spr_jax.methods import METHODS
from spr_jax.registry import build
from spr_jax.run import run as run_here

ROOT = Path(__file__).parent.parent
SCRIPTS = (figure_precision, figure_features, figure_select_ratio, figure_sparse_norm)
LAST, BEST = "test accuracy, last epoch", "test accuracy, best on test"


@pytest.fixture(autouse=True)
def told(monkeypatch):
    """Reports that do not depend on who makes them."""
    monkeypatch.setattr(runs, "commit", lambda: "here")
    monkeypatch.setattr(study, "command_line", lambda: "python -m a.figure")


@pytest.fixture
def drawn(monkeypatch):
    """The figures, before and while they become pictures."""
    found, save = [], Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *a, **k: (found.append(figure), save(figure, *a, **k))
    )
    return found


def options(**changes):
    return Namespace(**{"small": False, "seeds": 1, "data_dir": ""} | changes)


def epoch(number, test, **shares):
    return {"epoch": number, "test_top1": test, **shares}


def record(run, out, rows, wrong=0.4):
    best = {"test_top1": {"epoch": 0, "test_top1": max(row["test_top1"] for row in rows)}}
    home = leave(run, out, {"last": rows[-1], "best_on_test": best}, wrong=wrong)
    (home / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def render(script, out, *flags):
    """Exit status, lines of the CSV, Markdown."""
    status = script.main([f"--out={out}", f"--reports={out / 'reports'}", "--read", *flags])
    (table,), (text,) = ([*(out / "reports").glob(f"*.{end}")] for end in ("csv", "md"))
    with open(table, newline="") as file:
        return status, list(csv.DictReader(file)), text.read_text()


def has_colours(path, colours):
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    return all((pixels == list(bytes.fromhex(c[1:]))).all(axis=-1).any() for c in colours)


def lines_of(panel):
    """Label -> points, of lines with and without bars."""
    lines = {bars.get_label(): bars.lines[0].get_xydata() for bars in panel.containers}
    return lines | {
        line.get_label(): line.get_xydata()
        for line in panel.lines
        if not line.get_label().startswith("_")
    }


# Cells.


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.NAME)
def test_every_cell_can_be_run(script, small):
    cells = script.cells(options(small=small, seeds=2, data_dir="DIR"))
    several = [run for cell in cells.values() for run in cell]
    assert len({folder(run, Path()) for run in several}) == 2 * len(cells)
    for run in several:
        config = config_of(run)
        settings.check(config)
        build(METHODS, config.method)
        assert config.dataset.name in (("mnist", "digits") if small else ("cifar10",))
        assert config.dataset.get("data_dir", "DIR") == "DIR"  # digits have none


def test_the_share_that_is_kept_is_all_that_changes():
    cells = figure_select_ratio.cells(options())
    assert [*cells] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, "auto"]
    configs = {name: config_of(run) for name, (run,) in cells.items()}
    assert [config.method.keep for config in configs.values()][:-1] == [*cells][:-1]
    for name, config in configs.items():
        assert (config.noise.rate, config.method.cutmix, config.preset) == (0.8, 0, "paper")
        assert config.method.select == ("auto" if name == "auto" else "piece")
        assert config.optimizer == configs[0.5].optimizer


def test_the_exponent_is_all_that_changes():
    configs = {q: config_of(run) for q, (run,) in figure_sparse_norm.cells(options()).items()}
    assert min(configs) == 0.05 and max(configs) == 1 and 0.2 in configs
    for q, config in configs.items():
        assert config.method.q == q and config.noise.rate == 0.4
        config.method.q = 0.2
        assert config == configs[0.2]


def test_the_small_precision_figure_finds_the_runs_of_learn_mnist():
    cells = figure_precision.cells(options(small=True))
    there = {folder(run, Path()) for (run,) in learn_mnist.cells(options()).values()}
    assert len(cells) == 9 and {folder(run, Path()) for (run,) in cells.values()} <= there


def test_the_penalty_grows_as_in_the_paper():
    cells = figure_precision.cells(options())
    growth = {name: config_of(run).method.get("growth") for name, (run,) in cells.items()}
    assert growth["symmetric 0.4", PAPER] == 1.02 and growth["symmetric 0.8", PAPER] == 1
    assert growth["symmetric 0.8", EXACT] == 1 and growth["symmetric 0.8", PLAIN] is None


# Accuracy and label precision by epoch.


@pytest.fixture
def precision(tmp_path, drawn):
    """Of nine cells, two seeds of one and plain training of another."""
    cells = figure_precision.cells(options(small=True, seeds=2))
    for run, more in zip(cells["symmetric 0.8", PAPER], (0, 0.02), strict=True):
        shares = {"clean_share": 0.5, "label_recall": 0.75}
        first = epoch(0, 0.5, label_precision=0.25, **shares)
        last = epoch(1, 0.6 + more, label_precision=0.30 + more, **shares)
        record(run, tmp_path, [first, last], wrong=0.8)
    for run in cells["symmetric 0.4", PLAIN]:
        record(run, tmp_path, [epoch(0, 0.9), epoch(1, 0.7)])
    return *render(figure_precision, tmp_path, "--small", "--seeds=2"), tmp_path, drawn


def test_precision_is_drawn_by_epoch_with_its_bounds(precision):
    *_, (figure,) = precision
    panels = np.reshape(figure.axes, (3, 3))
    accuracy, share, recall = map(lines_of, panels[:, 1])
    np.testing.assert_allclose(accuracy[PAPER], [[1, 50], [2, 61]])
    np.testing.assert_allclose(share[PAPER], [[1, 25], [2, 31]])
    np.testing.assert_allclose(recall[PAPER], [[1, 75], [2, 75]])
    np.testing.assert_allclose(share["share of right labels"][:, 1], 20)
    np.testing.assert_allclose(share["bound of a fixed half"][:, 1], 40)
    assert "bound of a fixed half" not in recall  # it is 100 %
    assert len(share[PLAIN]) == len(share[EXACT]) == 0
    (band,) = panels[1, 1].collections
    top = band.get_paths()[0].vertices[:, 1].max()
    np.testing.assert_allclose(top, 31 + 2**0.5)

    accuracy, share, recall = map(lines_of, panels[:, 0])
    np.testing.assert_allclose(accuracy[PLAIN], [[1, 90], [2, 70]])
    np.testing.assert_allclose(recall["bound of a fixed half"][:, 1], 50 / 0.6)
    assert "share of right labels" not in lines_of(panels[1, 2])  # nothing is known there
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
        f"| asymmetric 0.4 | {EXACT} | - | - | - | - | - | - | - |",
        "- Runs: 4 of 18 finished",
        "20.00 % of the labels are right; a fixed half has a precision of at most 40.00 %",
        "goes from 25.00 % to 31.00 %, and is highest after epoch 2 of 2 (31.00 %)",
        "![figure_precision_small](figure_precision_small.png)",
        "--config=configs/mnist_asym.py:spr --config.preset=exact --config.noise.rate=0.4",
    ):
        assert line in text
    assert has_colours(out / "reports" / "figure_precision_small.png", plot.COLOURS[:3])


# Curves over one number.


@pytest.fixture
def select_ratio(tmp_path, drawn):
    """Three seeds; the share 0.3 is missing, and one seed of 0.4."""
    cells = figure_select_ratio.cells(options(seeds=3))
    accuracy = {0.1: 0.5, 0.2: 0.7, 0.3: None, 0.4: 0.6, "auto": 0.65}
    for name, cell in cells.items():
        for run, more in zip(cell, (0, 0.02, 0.04), strict=True):
            if (found := accuracy.get(name, 0.3)) is None or (name, run.seed) == (0.4, 2):
                continue
            shares = {"clean_share": 0.15, "label_precision": 0.9}
            record(run, tmp_path, [epoch(0, found + 0.1), epoch(1, found + more, **shares)])
    return *render(figure_select_ratio, tmp_path, "--seeds=3"), tmp_path, drawn


def test_accuracy_is_drawn_over_the_share_with_a_gap(select_ratio):
    status, rows, text, out, (figure,) = select_ratio
    (panel,) = figure.axes
    lines = lines_of(panel)
    expected = [[0.1, 52], [0.2, 72], [0.4, 61], *([x / 10, 32] for x in range(5, 10))]
    np.testing.assert_allclose(lines["last epoch"], expected)
    np.testing.assert_allclose(lines["best on test"][:3], [[0.1, 60], [0.2, 80], [0.4, 70]])
    np.testing.assert_allclose(lines["share that auto keeps"][:, 0], 0.15)
    np.testing.assert_allclose(lines["share of right labels"][:, 0], 0.2)
    stars = [line for line in panel.lines if line.get_marker() == "*"]
    np.testing.assert_allclose([star.get_xydata()[0] for star in stars], [[0.15, 67], [0.15, 75]])
    (bars,) = panel.containers[0].lines[2]
    np.testing.assert_allclose(np.diff(bars.get_segments()[0][:, 1]), 4)  # a deviation up and down
    assert panel.get_xlabel() == "share of labels that is kept"
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
        f"- auto keeps 0.150, where 0.2 are right: {LAST} 67.00 ± 2.00 %",
        "--config.method.keep=0.3 --config.seed=2",
    ):
        assert line in text
    missing = text.split("What is missing")[1].split("<details>")[0]
    assert missing.count("python -m spr_jax.main") == 4


def test_accuracy_is_drawn_over_the_exponent(tmp_path, drawn):
    cells = figure_sparse_norm.cells(options(small=True))
    for q, (run,) in cells.items():
        if q != 0.5:
            record(run, tmp_path, [epoch(0, 0.9 - abs(q - 0.2)), epoch(1, 0.8 - abs(q - 0.3))])
    status, rows, text = render(figure_sparse_norm, tmp_path, "--small")
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
    assert "--config.method.q=0.5" in text.split("<details>")[0]
    assert {row["q"]: row[f"{LAST}, mean (%)"] for row in rows}["0.05"] == "55.0000"
    assert has_colours(tmp_path / "reports" / "figure_sparse_norm_small.png", plot.COLOURS[:2])


def test_a_peak_says_what_it_is_not_told_apart_from():
    assert peak({0.1: [50.0], 0.2: [60.0]}) == "highest at 0.2 (60.00 %)"
    told = "highest at 0.2 (60.00 ± 2.83 %; not told apart from it: 0.1, 0.3)"
    assert peak({0.1: [58.0], 0.2: [58.0, 62.0], 0.3: [57.5], 0.4: [57.0]}) == told


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.NAME)
def test_without_runs_there_are_commands_and_no_picture(script, tmp_path):
    status, _, text = render(script, tmp_path)
    cells = script.cells(options())
    assert status == 75 and f"- Runs: 0 of {len(cells)} finished" in text and "![" not in text
    for (run,) in cells.values():
        assert study.command_of(run, script.NAME) in text
    assert not [*tmp_path.rglob("*.png")]


# Features.


def view_of(features, true):
    true = np.asarray(true)
    return View(np.arange(len(true)), np.asarray(features, float), true, true, ("a", "b"))


def test_neighbours_and_silhouette_are_of_the_true_classes():
    generator = np.random.default_rng(0)
    apart = np.repeat([0.0, 100.0], 30)[:, None] + generator.random((60, 5))
    classes = np.repeat([0, 1], 30)
    assert same_class_neighbours(view_of(apart, classes)) == 100
    assert silhouette(view_of(apart, classes)) > 0.98
    mixed = view_of(apart, np.arange(60) % 2)
    assert abs(same_class_neighbours(mixed) - 50) < 15 and abs(silhouette(mixed)) < 0.1
    # Nobody is a neighbour of itself.
    assert same_class_neighbours(view_of([[0], [1]], [0, 1])) == 0


def test_the_plane_keeps_neighbours_and_is_always_the_same():
    generator = np.random.default_rng(0)
    true = np.repeat([0, 1], 30)
    features = 3.0 * true[:, None] + generator.random((60, 70))
    places = in_the_plane(features)
    assert places.shape == (60, 2) and same_class_neighbours(view_of(places, true)) == 100
    np.testing.assert_array_equal(places, in_the_plane(features))


# From the first run to the picture.


def launch_here(several, out, jobs):
    """The runs in this process, which has JAX already."""
    for run in several:
        home, config = folder(run, out), config_of(run)
        if not (home / "summary.json").exists():
            with settings.claim(home, config):
                run_here(config, home, report=lambda line: None)
    return {run: read(run, out) for run in several}


@pytest.fixture
def two_steps(monkeypatch):
    """Small studies of one cell, the same in all: a run of two steps on a tenth of the digits."""
    brief = {"epochs": 1, "validation_share": 0.9, "batch_size": 128}
    fields = brief | {"noise.rate": 0.4, "method.select": "random", "method.q": 0.2}
    run = Run("configs/digits_sym.py", "spr", tuple(fields.items()))
    monkeypatch.setattr(study, "launch", launch_here)
    for script in (figure_precision, figure_features):
        monkeypatch.setattr(script, "METHODS", {EXACT: ("spr", fields)})
    monkeypatch.setattr(figure_features, "NOISE", ())
    monkeypatch.setattr(figure_precision, "NOISE", {"symmetric 0.4": ("sym", 0.4)})
    monkeypatch.setattr(figure_precision, "SMALL_EPOCHS", 1)
    monkeypatch.setattr(figure_precision, "data_of", lambda options: "digits")
    monkeypatch.setattr(figure_select_ratio, "SMALL", run)
    monkeypatch.setattr(figure_select_ratio, "SHARES", ())
    monkeypatch.setattr(figure_select_ratio, "AUTO", ())
    without_q = tuple(pair for pair in run.overrides if pair[0] != "method.q")
    monkeypatch.setattr(figure_sparse_norm, "SMALL", run._replace(overrides=without_q))
    monkeypatch.setattr(figure_sparse_norm, "EXPONENTS", (0.2,))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The folder of that run."""
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.NAME)
def test_a_small_study_is_run_and_drawn(script, two_steps, shared, tmp_path, drawn):
    flags = ["--small", f"--out={shared}", f"--reports={tmp_path}"]
    assert script.main(flags) == 0
    name = f"{script.NAME}_small"
    files = {f"{name}.{ending}" for ending in ("csv", "md", "png")}
    assert {path.name for path in tmp_path.iterdir()} == files
    text = (tmp_path / f"{name}.md").read_text()
    assert f"![{name}]({name}.png)" in text and "What is missing" not in text
    assert len((tmp_path / f"{name}.csv").read_text().splitlines()) > 1
    assert len(drawn) == 1 and "- Runs: 1 of 1 finished" in text


def test_features_are_those_of_the_trained_network(two_steps, shared, tmp_path):
    (run,) = figure_features.cells(options(small=True))[EXACT]
    result = launch_here([run], shared, 1)[run]
    view = look(config_of(run), result.folder, figure_features.NUM_EXAMPLES)
    experiment = make_experiment(config_of(run))
    train = experiment.setup.dataset.train
    assert sorted(view.index) == [*experiment.members]
    order = np.argsort(view.index)
    np.testing.assert_array_equal(view.given[order], train.labels)
    np.testing.assert_array_equal(view.true[order], train.true_labels)
    assert same_class_neighbours(view) > 60  # they belong to their labels

    network = init_state(config_of(run), experiment.setup).networks[0]
    images = normalise(train.images, *experiment.setup.dataset[4:6])
    fresh = np.asarray(network.predict(images).features)
    assert fresh.shape == view.features.shape and abs(fresh - view.features[order]).mean() > 0.1

    write_features([str(result.folder), str(tmp_path / "digits_sym40.npz")])
    arrays = load_arrays(tmp_path / "digits_sym40.npz")
    np.testing.assert_array_equal(arrays["index"], experiment.members)
    np.testing.assert_array_equal(arrays["given"], train.labels)
    np.testing.assert_array_equal(arrays["true"], train.true_labels)
    np.testing.assert_allclose(arrays["features"], view.features[order], rtol=1e-3, atol=1e-3)


def test_features_are_of_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", figure_features.__spec__)
    with pytest.raises(SystemExit):
        write_features([str(tmp_path), str(tmp_path / "a.npz")])
    assert "is not the folder of a run: No such file or directory." in capsys.readouterr().err


def test_a_figure_is_a_command(tmp_path):
    command = [sys.executable, "-m", "experiments.figure_sparse_norm", "--small", "--read"]
    flags = [f"--out={tmp_path / 'runs'}", f"--reports={tmp_path / 'reports'}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    how = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run([*command, *flags], **how)
    assert done.returncode == 75 and not done.stderr
    assert "- Command: `python -m experiments.figure_sparse_norm --small --read" in done.stdout
    assert "| 0.2 | - | - | - |" in done.stdout and not (tmp_path / "runs").exists()
