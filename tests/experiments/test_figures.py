"""Every figure is a study that can be run, read and drawn; features are those of its networks."""

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from finished_runs import rendered

from experiments import figure_features, figure_precision, figure_select_ratio, figure_sparse_norm
from experiments.features import View, look
from experiments.features import main as write_features
from experiments.figure_features import in_the_plane, same_class_neighbours, silhouette
from experiments.figure_precision import OURS
from experiments.harness import study
from experiments.harness.runs import Run, config_of, folder, read
from spr_jax.augment import normalise
from spr_jax.io.arrays import load_arrays
from spr_jax.methods import METHODS
from spr_jax.registry import build
from spr_jax.training.build import init_state, make_run
from spr_jax.training.config import check
from spr_jax.training.loop import train as run_here
from spr_jax.training.workdir import claim

pytestmark = pytest.mark.usefixtures("fixed_origin")

ROOT = Path(__file__).parents[2]
SCRIPTS = (figure_precision, figure_features, figure_select_ratio, figure_sparse_norm)
ON_FEATURES = (figure_precision, figure_select_ratio, figure_sparse_norm)


def options(**changes):
    return Namespace(**{"small": False, "seeds": 1, "data_dir": ""} | changes)


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.NAME)
def test_every_cell_can_be_run(script, small):
    cells = script.cells(options(small=small, seeds=2, data_dir="DIR"))
    several = [run for cell in cells.values() for run in cell]
    assert len({folder(run, Path()) for run in several}) == 2 * len(cells)
    for run in several:
        config = config_of(run)
        check(config)
        build(METHODS, config.method)
        assert config.dataset.name in (("mnist", "digits") if small else ("cifar10",))
        assert config.dataset.get("data_dir", "DIR") == "DIR"  # digits have none


@pytest.mark.parametrize("script", ON_FEATURES, ids=lambda script: script.NAME)
def test_every_cell_can_be_run_on_features(script):
    cells = script.cells(options(features=True, data_dir="DIR"))
    assert len(cells) == len(script.cells(options()))
    for (run,) in cells.values():
        config = config_of(run)
        check(config)
        build(METHODS, config.method)
        assert config.dataset.name == "features" and config.backbone.name == "mlp"
        assert config.noise.kind in ("symmetric", "asymmetric")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.NAME)
def test_without_runs_there_are_commands_and_no_picture(script, tmp_path):
    status, _, text = rendered(script, tmp_path)
    cells = script.cells(options())
    assert status == 75 and f"- Runs: 0 of {len(cells)} finished" in text and "![" not in text
    for (run,) in cells.values():
        assert study.command_of(run, script.NAME) in text
    assert not [*tmp_path.rglob("*.png")]


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


@pytest.mark.slow
def test_the_plane_keeps_neighbours_and_is_always_the_same():
    generator = np.random.default_rng(0)
    true = np.repeat([0, 1], 30)
    features = 3.0 * true[:, None] + generator.random((60, 70))
    places = in_the_plane(features)
    assert places.shape == (60, 2) and same_class_neighbours(view_of(places, true)) == 100
    np.testing.assert_array_equal(places, in_the_plane(features))


def launch_here(several, out, jobs):
    """The runs in this process, which has JAX already."""
    for run in several:
        home, config = folder(run, out), config_of(run)
        if not (home / "summary.json").exists():
            with claim(home, config):
                run_here(config, home, report=lambda line: None)
    return {run: read(run, out) for run in several}


@pytest.fixture
def two_steps(monkeypatch):
    """Small studies of one cell, the same in all: a run of two steps on a tenth of the digits."""
    brief = {"epochs": 1, "validation_share": 0.9, "batch_size": 128}
    fields = brief | {"noise.rate": 0.4, "method.select.name": "random", "method.penalty_q": 0.2}
    run = Run("configs/digits_sym.py", "spr", tuple(fields.items()))
    monkeypatch.setattr(study, "launch", launch_here)
    for script in (figure_precision, figure_features):
        monkeypatch.setattr(script, "METHODS", {OURS: ("spr", fields)})
    monkeypatch.setattr(figure_features, "NOISE", ())
    monkeypatch.setattr(figure_precision, "NOISE", {"symmetric 0.4": ("sym", 0.4)})
    monkeypatch.setattr(figure_precision, "SMALL_EPOCHS", 1)
    monkeypatch.setattr(figure_precision, "data_of", lambda options: "digits")
    monkeypatch.setattr(figure_select_ratio, "SMALL", run)
    monkeypatch.setattr(figure_select_ratio, "SHARES", ())
    monkeypatch.setattr(figure_select_ratio, "AUTO", ())
    without_q = tuple(pair for pair in run.overrides if pair[0] != "method.penalty_q")
    monkeypatch.setattr(figure_sparse_norm, "SMALL", run._replace(overrides=without_q))
    monkeypatch.setattr(figure_sparse_norm, "EXPONENTS", (0.2,))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The folder of that run."""
    return tmp_path_factory.mktemp("runs")


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.NAME)
def test_a_small_study_is_run_and_drawn(script, two_steps, shared, tmp_path, drawn):
    flags = ["--small", f"--out={shared}", f"--reports={tmp_path}"]
    assert script.main(flags) == 0
    name = f"{script.NAME}_small"
    files = {f"{name}.{ending}" for ending in ("csv", "md", "png")}
    kept = set() if script.NAME in study.NEED_FOLDERS else {f"{name}.runs.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} == files | kept
    text = (tmp_path / f"{name}.md").read_text()
    assert f"![{name}]({name}.png)" in text and "Commands for the missing" not in text
    assert len((tmp_path / f"{name}.csv").read_text().splitlines()) > 1
    assert len(drawn) == 1 and "- Runs: 1 of 1 finished" in text


@pytest.mark.slow
def test_features_are_those_of_the_trained_network(two_steps, shared, tmp_path):
    (run,) = figure_features.cells(options(small=True))[OURS]
    result = launch_here([run], shared, 1)[run]
    view = look(config_of(run), result.folder, figure_features.NUM_EXAMPLES)
    made = make_run(config_of(run))
    train = made.dataset.train
    assert sorted(view.index) == [*made.members]
    order = np.argsort(view.index)
    np.testing.assert_array_equal(view.given[order], train.labels)
    np.testing.assert_array_equal(view.true[order], train.true_labels)
    assert same_class_neighbours(view) > 60  # they belong to their labels

    network = init_state(config_of(run), made).networks[0]
    images = normalise(train.images, *made.dataset[4:6])
    fresh = np.asarray(network.predict(images).features)
    assert fresh.shape == view.features.shape and abs(fresh - view.features[order]).mean() > 0.1

    write_features([str(result.folder), str(tmp_path / "digits_sym40.npz")])
    arrays = load_arrays(tmp_path / "digits_sym40.npz")
    np.testing.assert_array_equal(arrays["index"], made.members)
    np.testing.assert_array_equal(arrays["given"], train.labels)
    np.testing.assert_array_equal(arrays["true"], train.true_labels)
    np.testing.assert_allclose(arrays["features"], view.features[order], rtol=1e-3, atol=1e-3)


def test_features_are_of_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", figure_features.__spec__)
    with pytest.raises(SystemExit):
        write_features([str(tmp_path), str(tmp_path / "a.npz")])
    assert "is not the folder of a run: No such file or directory." in capsys.readouterr().err


@pytest.mark.slow
def test_a_figure_is_a_command(tmp_path):
    command = [sys.executable, "-m", "experiments.figure_sparse_norm", "--small", "--read"]
    flags = [f"--out={tmp_path / 'runs'}", f"--reports={tmp_path / 'reports'}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    how = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run([*command, *flags], **how)
    assert done.returncode == 75 and not done.stderr
    assert "- Command: `python -m experiments.figure_sparse_norm --small --read" in done.stdout
    assert "| 0.2 | - | - | - |" in done.stdout and not (tmp_path / "runs").exists()
