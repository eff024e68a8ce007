"""A sweep checks its grid before anything is run, and reports what it found and what is missing."""

import contextlib
import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import PROGRAMS
from finished_runs import leave
from PIL import Image

from experiments import sweep
from experiments.harness import plot, runs
from experiments.harness.runs import folder, in_shell, read
from experiments.sweep import Axis, main, make_runs, parse_axis, parse_setting

ROOT = Path(__file__).parents[2]
DIGITS = "configs/digits_sym.py"


@contextlib.contextmanager
def starting_nothing():
    """Let a sweep only read its runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "commit", lambda: "here")
        read_all = lambda several, out, jobs: {run: read(run, out) for run in several}  # noqa: E731
        patch.setattr(sweep, "launch", read_all)
        yield


@pytest.fixture
def read_only():
    with starting_nothing():
        yield


def points(*grids, config=DIGITS, fixed=()):
    axes = [parse_axis([text] if isinstance(text, str) else text) for text in grids]
    return make_runs(config, axes, fixed)


def test_a_grid_is_the_product_of_its_fields():
    found = points("config.noise.rate=0.2,0.40", "seed=0,1,2")
    rates, seeds = (0.2, 0.4), (0, 1, 2)
    expected = [{"noise.rate": rate, "seed": seed} for rate in rates for seed in seeds]
    assert list(found.values()) == expected
    assert [(dict(run.overrides)["noise.rate"], run.seed) for run in found] == [
        (rate, seed) for rate in rates for seed in seeds
    ]
    assert {run[:2] for run in found} == {(DIGITS, "spr")}


def test_zipped_fields_change_together():
    assert parse_axis(["a=1,2", "config.b=3,4"]) == Axis(("a", "b"), [("1", "3"), ("2", "4")])
    found = points(["epochs=1,2", "noise.inclusive=true,False"], "seed=0,1")
    assert [tuple(point.values()) for point in found.values()] == [
        (1, True, 0),
        (1, True, 1),
        (2, False, 0),
        (2, False, 1),
    ]


def test_methods_can_be_swept_and_the_rest_fixed():
    found = points("method=spr,ce", fixed=[parse_setting("config.epochs=3")])
    assert [run.method for run in found] == ["spr", "ce"]
    assert {run.overrides for run in found} == {(("epochs", 3),)}
    assert [run.method for run in points("seed=1", config=f"{DIGITS}:ce")] == ["ce"]


MISTAKES = {
    "no such field": (["--grid", "noise.rat=0.2"], "no field 'noise.rat'; did you mean 'noise.rat"),
    "no such field of one method": (["--grid", "method=spr,ce", "method.cutmix=0"], ":ce has no f"),
    "no such fixed field": (["--set", "epoch=2"], "no field 'epoch'; did you mean 'epochs'?"),
    "a section": (["--grid", "noise=1"], "has no field 'noise'; did you mean 'noise."),
    "no such method": (["--grid", "method=spr,spl"], "Unknown name 'spl'; did you mean 'spr'?"),
    "no values": (["--grid", "noise.rate="], "noise.rate has no values; write noise.rate=VALUE,"),
    "no field": (["--grid", "=1,2"], "Cannot read '=1,2'; write FIELD=VALUE."),
    "no equals sign": (["--grid", "seed"], "Cannot read 'seed'; write FIELD=VALUE."),
    "no number": (["--grid", "noise.rate=0.2,x"], "noise.rate is of type float, and 'x' is not."),
    "no whole number": (["--grid", "epochs=1.5"], "epochs is of type int, and '1.5' is not."),
    "neither true nor false": (["--grid", "drop_last=2"], "drop_last is of type bool, and '2'"),
    "no share": (["--grid", "noise.rate=0.2,1.2"], "noise.rate is 1.2; expected a fraction"),
    "no such choice": (["--grid", "noise.kind=symetric"], "did you mean 'symmetric'?"),
    "a value twice": (["--grid", "noise.rate=0.4,0.40"], "noise.rate=0.4/seed=0 twice; every"),
    "no change": (["--grid", "workers=1,2"], "digits_sym-spr/unchanged/seed=0 twice; every value"),
    "a field twice": (["--grid", "seed=1", "config.seed=2"], "seed is given twice."),
    "swept and fixed": (["--grid", "seed=1", "--set", "seed=2"], "seed is given twice."),
    "fixed twice": (["--set", "epochs=1", "epochs=2"], "epochs is given twice."),
    "zipped twice": (["--zip", "seed=1", "seed=2"], "seed is given twice."),
    "unequal zip": (["--zip", "seed=1,2", "epochs=1"], "values, and seed has 2, epochs has 1."),
    "no jobs": (["--grid", "seed=1", "--jobs=0"], "jobs is 0; expected 1 or more."),
    "no such flag": (["--grids", "seed=1"], "unrecognized arguments: --grids seed=1"),
    "no such file": (["--config=configs/digit_sym.py"], "Cannot read configs/digit_sym.py: No su"),
    "no folder": (["--out=README.md/out"], "README.md is not a folder; give another one."),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake, tmp_path, capsys):
    arguments, says = MISTAKES[mistake]
    with pytest.raises(SystemExit) as exit:
        main([f"--config={DIGITS}", f"--out={tmp_path / 'out'}", *arguments])
    said = capsys.readouterr()
    assert says in said.err and (exit.value.code, said.out) == (2, "")
    assert said.err.startswith("python -m experiments.sweep: ") and said.err.count("\n") == 1
    assert not [*tmp_path.iterdir()]


def record(run, out, last, best, precision=None, commit="here"):
    row = {"test_top1": last} | ({"label_precision": precision} if precision else {})
    on_test = {"test_top1": {"epoch": 3, "test_top1": best}}
    leave(run, out, {"last": row, "best_on_test": on_test}, commit=commit)


GRID = ["--grid", "method=spr,ce", "noise.rate=0.2,0.4", "seed=0,1,2", "--set", "epochs=7"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two methods at two rates: one row complete, one with two seeds, one failed, one missing."""
    tmp_path = tmp_path_factory.mktemp("sweep")
    several = list(
        points("method=spr,ce", "noise.rate=0.2,0.4", "seed=0,1,2", fixed=[("epochs", "7")])
    )
    for run, last in zip(several[:3], (0.90, 0.92, 0.94), strict=True):
        record(run, tmp_path, last, last + 0.01, 0.995)
    for run, last in zip(several[3:5], (0.80, 0.81), strict=True):
        record(run, tmp_path, last, last, 0.99, commit="there")
    record(several[6], tmp_path, 0.7, 0.75)
    log = runs.log_of(folder(several[9], tmp_path))
    log.parent.mkdir(parents=True)
    log.write_text("python -m spr_jax.main: No data.\n\nexit status 2\n")
    with starting_nothing():
        status = main([f"--config={DIGITS}", f"--out={tmp_path}", *GRID])
    return several, tmp_path, status


def test_the_table_has_means_deviations_and_what_is_missing(recorded):
    several, out, status = recorded
    assert status == 75
    with open(out / "sweep.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["noise.rate"], row["runs finished"]) for row in rows] == [
        ("spr", "0.2", "3"),
        ("spr", "0.4", "2"),
        ("ce", "0.2", "1"),
        ("ce", "0.4", "0"),
    ]

    def column(name):
        return [row[name] for row in rows]

    last, best = "test accuracy, last epoch", "test accuracy, best on test"
    assert column(f"{last}, mean (%)") == ["92.0000", "80.5000", "70.0000", "-"]
    assert column(f"{last}, std (%)") == ["2.0000", "0.7071", "-", "-"]
    assert column(f"{best}, mean (%)") == ["93.0000", "80.5000", "75.0000", "-"]
    assert column("label precision, last epoch, mean (%)") == ["99.5000", "99.0000", "-", "-"]
    assert column("runs") == ["3"] * 4 and column("commits") == ["here", "there", "here", ""]
    commands = [[in_shell(run, out) for run in several[k : k + 3]] for k in (0, 3, 6, 9)]
    fill = column("commands of the others")
    assert [text.splitlines() for text in fill] == [
        [],
        commands[1][2:],
        commands[2][1:],
        commands[3],
    ]


def test_the_markdown_tells_the_same(recorded):
    several, out, _ = recorded
    text = (out / "sweep.md").read_text()
    for line in (
        "| method | noise.rate | seeds | test accuracy, last epoch | test accuracy, best on test |"
        " label precision, last epoch |",
        "| spr | 0.2 | 3 | 92.00 ± 2.00 | 93.00 ± 2.00 | 99.50 ± 0.00 |",
        "| spr | 0.4 | 2 of 3 | 80.50 ± 0.71 | 80.50 ± 0.71 | 99.00 ± 0.00 |",
        "| ce | 0.2 | 1 of 3 | 70.00 | 75.00 | - |",
        "| ce | 0.4 | 0 of 3 | - | - | - |",
        "- Runs: 6 of 12 finished",
        "- Commit: here",
        "- Commit: there",
        "- Machine: a machine",
        "Runs of another commit: 2 of there; the code is now here.",
        f"- failed\n\n      {in_shell(several[9], out)}",
        f"- missing\n\n      {in_shell(several[10], out)}",
        "![noise.rate](noise.rate.png)",
    ):
        assert line in text
    assert "Failed: No data. See " in text
    assert f"python -m experiments.sweep --config={DIGITS} --out={out} --grid method=spr,ce" in text


def test_there_is_a_plot_for_each_swept_field_but_the_seed(recorded):
    _, out, _ = recorded
    assert {path.name for path in out.glob("*.png")} == {"method.png", "noise.rate.png"}
    for path in out.glob("*.png"):
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
        for colour in plot.COLOURS[:2]:  # of two lines
            assert (pixels == list(bytes.fromhex(colour[1:]))).all(axis=-1).any()


def panels_of(monkeypatch, folder, rows, field, together):
    """The figure, before it is a picture."""
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    sweep.draw(folder / "x.png", rows, field, together, "title")
    return drawn[0]


def row_of(last, **point):
    point = {name.replace("_", "."): value for name, value in point.items()}
    return sweep.Row(point, {sweep.EXPECTED: last} if last else {}, [], [], 2)


def test_a_plot_has_means_bars_units_and_names(monkeypatch, tmp_path):
    rows = [
        row_of([90.0, 94.0], noise_rate=0.4, method="spr"),
        row_of([98.0, 98.0], noise_rate=0.2, method="spr"),
        row_of([], noise_rate=0.4, method="ce"),
        row_of([80.0], noise_rate=0.2, method="ce"),
    ]
    figure = panels_of(monkeypatch, tmp_path, rows, "noise.rate", ["noise.rate"])
    (panel,) = figure.axes
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("noise.rate", "test accuracy (%)")
    assert panel.get_title() == "last epoch" and panel.get_xscale() == "linear"
    assert sorted(tick.get_text() for tick in panel.get_xticklabels()) == ["0.2", "0.4"]
    spr, ce = panel.containers
    np.testing.assert_allclose(spr.lines[0].get_xydata(), [[0.2, 98], [0.4, 92]])
    np.testing.assert_allclose(ce.lines[0].get_xydata(), [[0.2, 80]])
    (bars,) = spr.lines[2]
    np.testing.assert_allclose(bars.get_segments()[1][:, 1], 92 + 8**0.5 * np.array([-1, 1]))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["method = spr", "method = ce"]


def test_wide_ranges_are_drawn_by_their_logarithm(monkeypatch, tmp_path):
    rows = [row_of([90.0], lr=value) for value in (1e-4, 1e-2, 1.0)]
    figure = panels_of(monkeypatch, tmp_path, rows, "lr", ["lr"])
    assert figure.axes[0].get_xscale() == "log" and not figure.legends


def test_names_are_drawn_side_by_side(monkeypatch, tmp_path):
    rows = [
        row_of([90.0], preset=preset, seed=k) for preset in ("paper", "noise_model") for k in (0, 1)
    ]
    (panel,) = panels_of(monkeypatch, tmp_path, rows, "preset", ["preset"]).axes
    places = np.array([line.lines[0].get_xdata() for line in panel.containers], float)
    assert (places[0] < places[1]).all()
    np.testing.assert_allclose(places.mean(axis=0), [0, 1], atol=1e-9)
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["paper", "noise_model"]


def test_zipped_fields_are_one_line(monkeypatch, tmp_path):
    rows = [row_of([90.0 + k], epochs=k, width=2 * k) for k in (1, 2, 3)]
    figure = panels_of(monkeypatch, tmp_path, rows, "epochs", ["epochs", "width"])
    assert len(figure.axes[0].containers) == 1


def test_what_is_zipped_with_the_seed_is_averaged_over(tmp_path):
    axes = [parse_axis(["seed=0,1", "noise.seed=5,6"]), parse_axis(["noise.rate=0.2"])]
    several = make_runs(DIGITS, axes, [])
    results = {run: read(run, tmp_path) for run in several}
    (row,) = sweep.make_rows(several, axes, results)
    assert row.point == {"noise.rate": 0.2} and row.num_runs == 2


def test_a_sweep_of_which_nothing_is_finished_has_a_table(tmp_path, read_only):
    assert main([f"--config={DIGITS}", f"--out={tmp_path}", "--grid", "epochs=1,2"]) == 75
    assert "| 1 | 0 of 1 | - |" in (tmp_path / "sweep.md").read_text()
    assert not [*tmp_path.glob("*.png")]


def test_a_dry_run_lists_the_runs_and_writes_nothing(recorded, capsys):
    several, out, _ = recorded
    capsys.readouterr()
    before = sorted(out.rglob("*"))
    assert main([f"--config={DIGITS}", f"--out={out}", "--dry_run", *GRID]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ", 1)[1] for line in lines] == [in_shell(run, out) for run in several]
    assert [line.split(":")[0] for line in lines] == (
        ["finished"] * 5 + ["missing", "finished"] + ["missing"] * 2 + ["failed"] + ["missing"] * 2
    )
    assert sorted(out.rglob("*")) == before


@pytest.fixture
def copied(recorded, tmp_path, read_only):
    """The same runs, in a folder that a test may change."""
    several, out, _ = recorded
    return several, Path(shutil.copytree(out, tmp_path / "sweep"))


def test_a_finished_sweep_is_rendered_again_in_no_time(copied, monkeypatch):
    several, out = copied
    for run in several:
        if not folder(run, out).exists():
            record(run, out, 0.7, 0.7)
    monkeypatch.setattr(sweep, "launch", runs.launch)
    monkeypatch.setattr(runs, "_start", lambda *_: pytest.fail("started a run"))
    start = time.perf_counter()
    assert main([f"--config={DIGITS}", f"--out={out}", *GRID]) == 0
    assert time.perf_counter() - start < 10
    assert "| ce | 0.4 | 3 | 70.00 ± 0.00 | 70.00 ± 0.00 | - |" in (out / "sweep.md").read_text()


def test_a_failed_run_is_in_the_exit_status(copied):
    several, out = copied
    for run in several:
        if not folder(run, out).exists() and run != several[9]:
            record(run, out, 0.7, 0.7)
    assert main([f"--config={DIGITS}", f"--out={out}", *GRID]) == 1


@pytest.mark.slow
def test_a_sweep_that_was_stopped_has_a_table_and_resumes(tmp_path, tmp_path_factory):
    fixed = ["epochs=1", "validation_share=0.9", f"compilation_cache={PROGRAMS}"]
    arguments = [f"--config={DIGITS}:ce", f"--out={tmp_path}", "--grid", "noise.rate=0.2,0.4"]
    arguments += ["--set", *fixed]
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.sweep", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    second = tmp_path / "digits_sym-ce" / "epochs=1,noise.rate=0.4,validation_share=0.9" / "seed=0"
    while process.poll() is None and not runs.log_of(second).exists():  # started, so one is done
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=100)
    assert process.returncode == 75, errors
    assert "Stopping when the runs have saved" in errors and "Traceback" not in errors
    assert "| 0.4 | 0 of 1 | - |" in said and (tmp_path / "noise.rate.png").exists()
    assert main(arguments) == 0
    with open(tmp_path / "sweep.csv", newline="") as file:
        assert [row["runs finished"] for row in csv.DictReader(file)] == ["1", "1"]
