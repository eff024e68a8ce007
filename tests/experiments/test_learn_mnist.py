"""The table of learn_mnist: the runs it asks for, and the numbers of those that are finished."""

import csv

import pytest
from finished_runs import leave

from experiments.harness import runs, study
from experiments.harness.runs import config_of, folder
from experiments.learn_mnist import METHODS, NOISE, cells, main
from spr_jax.io.signals import SAVED
from spr_jax.training.config import check

SELECTION = {"clean_share": 0.5959, "label_precision": 0.99759, "label_recall": 0.99067}


@pytest.fixture
def start(tmp_path, monkeypatch):
    """The script, with what it may write to, where nothing is trained."""
    monkeypatch.setattr(runs, "commit", lambda: "here")
    monkeypatch.setattr(study, "command_line", lambda: "a test")
    monkeypatch.setattr(study, "launch", None)  # would fail if called
    arguments = [f"--out={tmp_path / 'out'}", f"--reports={tmp_path / 'reports'}", "--read"]
    return lambda *more: main([*arguments, "--data_dir=/data", *more])


def options_of(*arguments):
    return study.arguments("A test.", "learn_mnist").parse_args(arguments)


def record(run, out, last, best, **selection):
    """Make the folder of a run with 150 s of training, and 50 s of selection if it selects."""
    summary = {
        "last": {"test_top1": last} | selection,
        "best_on_test": {"test_top1": {"epoch": 8, "test_top1": best}},
        "seconds_train": 150.4,
        "seconds_select": 50.13 if selection else 0.0,
    }
    leave(run, out, summary)


def test_every_cell_is_a_run_whose_folder_tells_what_it_changes(tmp_path):
    found = cells(options_of("--data_dir=/data"))
    assert {*found} == {(noise, title) for noise in NOISE for title in METHODS}
    homes = {
        names: str(folder(run, tmp_path).relative_to(tmp_path)) for names, [run] in found.items()
    }
    assert homes["symmetric 0.8", "SPR, preset noise_model"] == (
        "mnist_sym-spr/epochs=10,noise.rate=0.8,preset=noise_model/seed=0"
    )
    half = homes["asymmetric 0.4", "the same, half kept"]
    assert half.startswith("mnist_asym-spr/epochs=10,method.select.classes_per_group=100,")
    assert homes["symmetric 0.4", "plain cross-entropy"] == (
        "mnist_sym-ce/epochs=10,noise.rate=0.4/seed=0"
    )
    assert len({*homes.values()}) == 12
    for [run] in found.values():
        check(config_of(run))
    small = cells(options_of("--small"))
    assert {dict(run.overrides)["epochs"] for [run] in small.values()} == {1}


def test_a_table_of_what_is_finished(start, tmp_path, capsys):
    found = cells(options_of("--data_dir=/data"))
    [spr], [plain] = (found["symmetric 0.4", title] for title in [*METHODS][::2])
    record(spr, tmp_path / "out", 0.98871, 0.9892, **SELECTION)
    record(plain, tmp_path / "out", 0.9698, 0.97)
    assert start() == SAVED  # the same command without --read resumes

    report = (tmp_path / "reports" / "learn_mnist.md").read_text()
    numbers = "| 98.87 | 98.92 | 0.5959 | 0.9976 | 0.9907 | 150 | 25.0 % |\n"
    assert f"| symmetric 0.4 | SPR, preset noise_model {numbers}" in report
    assert "| symmetric 0.4 | plain cross-entropy | 96.98 | 97.00 |  |  |  | 150 |  |\n" in report
    assert f"| symmetric 0.8 | plain cross-entropy {'| - ' * 7}|\n" in report
    assert "- Runs: 2 of 12 finished" in report and "epochs: 10, one seed" in report
    missing, done = report.split("Commands for the missing")[1].split("of the finished")
    assert (missing.count("spr_jax.main"), done.count("spr_jax.main")) == (10, 2)
    assert "/data" not in report and str(tmp_path) not in report
    assert report in capsys.readouterr().out

    with open(tmp_path / "reports" / "learn_mnist.csv", newline="") as file:
        first, second = csv.DictReader(file)
    assert first["method"] == "SPR, preset noise_model" and first["last epoch"] == "98.8710"
    assert first["selection"] == "24.9988" and first["commit"] == "here"
    assert second["noise"] == "symmetric 0.4" and second["kept"] == ""


def test_seeds_are_averaged_and_counted(start, tmp_path):
    found = cells(options_of("--small", "--seeds=3"))
    for run, last in zip(
        found["asymmetric 0.4", "SPR, preset noise_model"][:2], (0.97, 0.98), strict=True
    ):
        record(run, tmp_path / "out", last, 0.99, **SELECTION)
    start("--small", "--seeds=3")
    report = (tmp_path / "reports" / "learn_mnist_small.md").read_text()
    assert "SPR, preset noise_model [2 of 3 seeds] | 97.50 ± 0.71 | 99.00 ± 0.00 |" in report
    assert "epochs: 1, mean and standard deviation of 3 seeds" in report
    assert "- Runs: 2 of 36 finished" in report
