"""Tables show our numbers, the paper's, and the commands of the runs that are missing."""

import json

import pytest
from conftest import PROGRAMS
from finished_runs import leave, table_options

from experiments import (
    paper_results,
    table1_synthetic,
    table2_real_world,
    table3_ablation,
    table4_time,
)
from experiments.harness import runs, study
from experiments.harness.runs import folder

pytestmark = pytest.mark.usefixtures("as_command")

TABLES = (table1_synthetic, table2_real_world, table3_ablation)
LAST, BEST = "test accuracy, last epoch, mean (%)", "test accuracy, best on test, mean (%)"


def leave_result(run, out, last, best, commit="here", **more):
    summary = {
        "last": {f"{test}_top1": value for test, value in last.items()} | more,
        "best_on_test": {f"{test}_top1": {f"{test}_top1": value} for test, value in best.items()},
    }
    leave(run, out, summary, commit=commit)


def test_table_1_has_ours_and_the_papers_numbers_and_what_is_missing(table, tmp_path):
    options = table_options("--seeds=2")
    cells, out = table1_synthetic.cells(options), tmp_path / "runs"
    for run, last in zip(cells["mnist", "spr, noise_model", "sym-0.4"], (0.98, 0.99), strict=True):
        leave_result(run, out, {"test": last}, {"test": 0.995}, label_precision=0.97)
    leave_result(cells["mnist", "ce", "sym-0.4"][1], out, {"test": 0.6}, {"test": 0.9}, "there")
    status, text, rows = table(table1_synthetic, "--read", "--seeds=2")
    assert status == study.SAVED  # something is missing
    missing = 2 * len(cells) - 3
    for line in (
        "- Command: `python -m experiments.harness.browser --read`",
        f"- Runs: 3 of {2 * len(cells)} finished",
        "- Commit: here",
        "- Commit: there",
        "- Machine: a machine",
        "mean and standard deviation of 2 seeds",
        "## MNIST, C2F2: test accuracy, last epoch",
        "| spr, noise_model | SPR | - (99.3) | 98.50 ± 0.71 (99.2) | - (99.2) |",
        "| spr, noise_model | SPR | - (99.3) | 99.50 ± 0.00 (99.2) | - (99.2) |",
        "| ce | CE | - (91.6) | 60.00 [1 of 2] (74.0) | - (49.4) |",
        "| ce | CE | - (91.6) | 90.00 [1 of 2] (74.0) | - (49.4) |",
        "| pencil |  | - | - |",
        "| rog | RoG | - (89.2) | - (83.5) |",
        "Runs of another commit: 1 of there; the code is now here.",
    ):
        assert line in text
    made = [line for line in text.splitlines() if line.startswith("    python -m spr_jax.main ")]
    assert len(made) == 2 * len(cells) == missing + 3 and len({*made}) == len(made)
    row = rows["mnist", "spr, noise_model", "sym-0.4"]
    assert (row["paper (%)"], row["runs finished"], row["runs"]) == ("99.20", "2", "2")
    assert (row[LAST], row[BEST], row["commits"]) == ("98.5000", "99.5000", "here")
    assert row["test accuracy, last epoch, std (%)"] == "0.7071"
    assert row["label precision, last epoch, mean (%)"] == "97.0000"
    assert rows["mnist", "ce", "sym-0.4"]["commits"] == "there"
    assert rows["cifar10", "spr, paper", "sym-0.2"][LAST] == "-"
    for key, row in rows.items():
        commands = row["command"].splitlines()
        assert len(commands) == 2, key
        assert all(f"    {command}" in made for command in commands)
    assert "dataset.data_dir" not in text
    assert "Protocols differ" in text


def test_what_falls_short_of_the_paper_is_said(table, tmp_path):
    cells, out = table1_synthetic.cells(table_options()), tmp_path / "runs"
    kept = {"label_precision": 0.97, "label_recall": 0.9}
    for row, last in {
        "spr, noise_model": 0.985,
        "spr, paper": 0.995,
        "ce": 0.1,
        "oracle, noise_model": 0.991,
        "oracle, paper": 0.2,
    }.items():
        leave_result(cells["mnist", row, "sym-0.4"][0], out, {"test": last}, {"test": last}, **kept)
    leave_result(
        cells["mnist", "spr, noise_model", "sym-0.8"][0], out, {"test": 0.98}, {"test": 0.99}
    )
    _, text, _ = table(table1_synthetic, "--read")
    said = text.split("Below the paper, last epoch, in per cent:")[1].split(
        "Commands for the missing"
    )[0]
    assert [line for line in said.splitlines() if line.startswith("- ")] == [
        "- MNIST, C2F2, sym-0.4, spr, noise_model: 98.50, 0.70 below. 97.00 % of the labels it "
        "kept are correct, and it kept 90.00 % of the correct ones. A perfect selection reaches "
        "99.10.",
        "- MNIST, C2F2, sym-0.8, spr, noise_model: 98.00, 0.70 below.",
    ]
    assert "Below the paper" not in table(table1_synthetic, "--read", "--noise", "sym-0.2")[1]


def test_a_table_of_little_shows_that_alone(table):
    asked = ["--dataset=mnist", "--noise", "asym-0.4", "sym-0.2", "--methods", "spr", "ce"]
    _, text, rows = table(table1_synthetic, "--read", *asked, "--epochs=10")
    assert list(rows) == [
        ("mnist", row, noise)
        for row in ("spr, paper", "spr, noise_model", "ce")
        for noise in ("sym-0.2", "asym-0.4")
    ]
    assert "Every method has 10 epochs" in text and "--config.epochs=10" in text


def test_a_budget_has_a_report_of_its_own(table, tmp_path):
    table(table1_synthetic, "--read", "--dataset=mnist", "--methods=ce", "--epochs=10")
    assert (tmp_path / "reports" / "table1_synthetic_10_epochs.csv").exists()


def test_table_2_has_both_test_sets_of_webvision(table, tmp_path):
    cells = table2_real_world.cells(table_options())
    last, best = {"webvision": 0.7, "imagenet": 0.6}, {"webvision": 0.75, "imagenet": 0.65}
    fives = {"webvision_top5": 0.9, "imagenet_top5": 0.85}
    leave_result(cells["webvision", "spr, noise_model"][0], tmp_path / "runs", last, best, **fives)
    leave_result(cells["animal10n", "nct"][0], tmp_path / "runs", {"test": 0.8}, {"test": 0.81})
    _, text, rows = table(table2_real_world, "--read")
    for line in (
        "| spr, noise_model | SPR | 78.12 | 70.00 | 75.00 | 90.00 | 60.00 | 65.00 | 85.00 |",
        "| divide_mix | DivideMix | 77.32 | - | - | - | - | - | - |",
        "| nct | NCT | 84.1 | 80.00 | 81.00 |",
        "| spr, paper | SPR | 86.8 | - | - |",
    ):
        assert line in text
    row = rows["webvision", "spr, noise_model"]
    assert row["imagenet top-5 accuracy, last epoch, mean (%)"] == "85.0000"
    assert row[LAST] == "-"
    assert "--config=configs/webvision.py:divide_mix" in rows["webvision", "divide_mix"]["command"]
    assert "--config=configs/animal10n.py:selfie" in rows["animal10n", "selfie"]["command"]


def test_table_3_has_both_presets(table, tmp_path):
    cells = table3_ablation.cells(table_options())
    leave_result(
        cells["noise_model", "CE + SPR"][0], tmp_path / "runs", {"test": 0.8}, {"test": 0.9}
    )
    _, text, rows = table(table3_ablation, "--read")
    assert "| CE + SPR | noise_model | 80.4 | 80.00 | 90.00 | - |" in text
    assert "| CE + SPR | paper | 80.4 | - | - | - |" in text
    assert rows["noise_model", "CE + SPR"][BEST] == "90.0000" and len(rows) == 14


@pytest.mark.parametrize("script", TABLES, ids=lambda script: script.NAME)
def test_a_small_table_does_not_compare_itself_with_the_paper(script, table, tmp_path):
    _, text, rows = table(script, "--read", "--small")
    assert "cannot be compared with the paper" in text and "in the paper" not in text
    assert {row["paper (%)"] for row in rows.values()} == {"-"}
    assert (tmp_path / "reports" / f"{script.NAME}_small.md").exists()
    assert f"runs/{script.NAME}/" in text  # where the table itself looks for them


def test_a_run_of_another_config_is_named_and_refused(table, tmp_path):
    (run,) = table3_ablation.cells(table_options())["noise_model", "CE"]
    leave_result(run, tmp_path / "runs", {"test": 0.8}, {"test": 0.9})
    path = folder(run, tmp_path / "runs") / "config.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {"batch_size": 5}))
    _, text, rows = table(table3_ablation, "--read")
    assert "belongs to a run with batch_size=5, and this one has 128" in text
    assert rows["noise_model", "CE"][LAST] == "-"


def test_a_finished_table_is_rendered_again_without_a_start(table, tmp_path, monkeypatch):
    for cell in table2_real_world.cells(table_options("--small")).values():
        if not folder(cell[0], tmp_path / "runs").exists():
            leave_result(cell[0], tmp_path / "runs", {"test": 0.8}, {"test": 0.9})
    monkeypatch.setattr(runs, "_start", lambda *_: pytest.fail("started a run"))
    status, text, _ = table(table2_real_world, "--small")
    assert status == 0 and "Commands for the missing" not in text


FEW_CELLS = {  # of the tables as they are tried here: one for each
    table1_synthetic: ["--methods=ce", "--noise=sym-0.4", "--epochs=3"],
    table2_real_world: ["--dataset=animal10n"],
    table3_ablation: [],
}


@pytest.mark.slow
@pytest.mark.parametrize("script", TABLES, ids=lambda script: script.NAME)
def test_a_small_table_is_made_from_nothing(script, table, tmp_path_factory, monkeypatch):
    """A run that is as short as it gets, in a process of its own."""
    monkeypatch.setitem(paper_results.TABLE2, "animal10n", {"CE": 79.4})
    monkeypatch.setattr(paper_results, "TABLE3", {"CE + CutMix": 87.0})
    fields = {"epochs": 2, "noise.rate": 0.4, "method.cutmix": 0.5}
    monkeypatch.setattr(table3_ablation, "SMALL", ("configs/digits_sym.py", fields))
    brief = (("validation_share", 0.9), ("compilation_cache", str(PROGRAMS)))
    brief += (("epochs", 1),) if script is table2_real_world else ()
    repeat = study.repeat
    monkeypatch.setattr(study, "repeat", lambda run, options: repeat(_longer(run, brief), options))
    status, text, rows = table(script, "--small", *FEW_CELLS[script])
    ((_, row),) = rows.items()
    assert (status, row["runs finished"]) == (0, "1")
    assert 0 < float(row[LAST]) <= float(row[BEST]) <= 100
    assert f"| {float(row[LAST]):.2f} |" in text


def _longer(run, overrides):
    return run._replace(overrides=run.overrides + overrides)


MISTAKES = {
    "method": (table1_synthetic, ["--methods", "ce", "spl"], "Unknown method 'spl'; did you mean"),
    "noise": (table1_synthetic, ["--noise=sym-0.5"], "Unknown noise 'sym-0.5'; did you mean 'sym-"),
    "data set": (table1_synthetic, ["--dataset=cifar"], "did you mean 'cifar10'?"),
    "small data": (table1_synthetic, ["--small", "--dataset=mnist"], "choose from ['digits']."),
    "small noise": (table1_synthetic, ["--small", "--noise=asym-0.2"], "Unknown noise 'asym-0.2'"),
    "epochs": (table1_synthetic, ["--epochs=2"], "epochs is 2; give 3 or more"),
    "real data": (table2_real_world, ["--dataset=animal"], "did you mean 'animal10n'?"),
    "seeds": (table3_ablation, ["--seeds=0"], "--seeds: '0' is not a whole number of at least 1."),
    "variants": (table3_ablation, ["--small", "--fast"], "--small and --fast exclude each other"),
    "jobs": (table3_ablation, ["--jobs=0"], "jobs is 0; expected 1 or more."),
    "no measurement": (table4_time, ["--read"], "measure first, without --read."),
    "no folder": (table4_time, ["--read", "--out=README.md/out"], "README.md is not a folder"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake, tmp_path, capsys, monkeypatch):
    script, arguments, says = MISTAKES[mistake]
    monkeypatch.setattr(runs, "_start", lambda *_: pytest.fail("started a run"))
    folders = [f"--out={tmp_path / 'out'}", f"--reports={tmp_path}"]
    with pytest.raises(SystemExit) as exit:
        script.main([*folders, *arguments])
    said = capsys.readouterr()
    assert says in said.err and (exit.value.code, said.out) == (2, "")
    assert (
        said.err.startswith("python -m experiments.harness.browser: ") and said.err.count("\n") == 1
    )
    assert not [*tmp_path.iterdir()]
