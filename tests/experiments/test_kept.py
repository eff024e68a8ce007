"""Results outlive the folders of their runs, as long as the runs would have the same config."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from finished_runs import leave, leave_history, rendered, table_options

from experiments import (
    figure_precision,
    learn_mnist,
    other_classifiers,
    table1_features,
    table1_synthetic,
    table2_real_world,
    table3_ablation,
)
from experiments.harness import kept, runs, study
from experiments.harness.provenance import REPORTS
from experiments.harness.runs import Result, Run, config_of, folder

pytestmark = pytest.mark.usefixtures("as_command")

DIGITS = "configs/digits_sym.py"
LAST = "test accuracy, last epoch, mean (%)"
FEW = ("--dataset=mnist", "--noise=sym-0.4")  # of table 1
ORIGIN = {"commit": "there", "machine": "a machine", "versions": "its versions"}


def summary_of(accuracy):
    """With all that a table shows of a run; numbers that need every digit."""
    last = {"test_top1": accuracy, "label_precision": 2 / 3, "label_recall": 0.9}
    best = {"test_top1": {"epoch": 0, "test_top1": accuracy + 1 / 30}}
    seconds = {"seconds_train": 10 / 3, "seconds_select": 1 / 7, "seconds_test": 1.0}
    return {"epochs": 1, "last": last | {"clean_share": 0.5}, "best_on_test": best, **seconds}


def cell_of(method):
    """The run of a cell of table 1."""
    (run,) = table1_synthetic.cells(table_options())["mnist", method, "sym-0.4"]
    return run


def keep(run, path, accuracy=0.8):
    """Write the line of a run whose folder is not there."""
    one = kept.from_folder(run, Result("finished", Path(), summary_of(accuracy), ORIGIN))
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.write(kept.as_line(one))


@pytest.fixture
def started(monkeypatch):
    """Runs that are started; each is finished at once, with an accuracy of 0.5."""
    found = []

    class Ended:
        pid, returncode, poll = 0, 0, lambda self: 0

    def start(run, out, share):
        found.append(run)
        leave(run, out, summary_of(0.5))
        return Ended()

    monkeypatch.setattr(runs, "_start", start)
    return found


@pytest.mark.parametrize("script", [table3_ablation, learn_mnist], ids=lambda script: script.NAME)
def test_a_report_is_the_same_without_the_folders_of_its_runs(script, tmp_path):
    cells = script.cells(table_options())
    for number, (run,) in enumerate([*cells.values()][:3]):
        leave(run, tmp_path, summary_of(0.8 + number / 70), commit=f"commit {number}")
    status, rows, text = rendered(script, tmp_path)
    assert f"Runs: 3 of {len(cells)} finished" in text and "81.43" in text
    for path in tmp_path.iterdir():
        if path.name != "reports":
            shutil.rmtree(path)
    assert rendered(script, tmp_path) == (status, rows, text)


def test_a_second_call_loses_nothing_of_the_first(table, tmp_path):
    path = tmp_path / "reports" / "table1_synthetic.runs.jsonl"
    for method, accuracy in (("ce", 0.6), ("apl", 0.7), ("gce", 0.8)):
        leave(cell_of(method), tmp_path / "runs", summary_of(accuracy))
        before = path.read_text().splitlines() if path.exists() else []
        table(table1_synthetic, "--read", *FEW, f"--methods={method}")
        shutil.rmtree(tmp_path / "runs")
        assert {*before} < {*path.read_text().splitlines()}
    lines = path.read_text().splitlines()
    assert [json.loads(line)["method"] for line in lines] == ["apl", "ce", "gce"]
    content = path.read_bytes()
    _, _, rows = table(table1_synthetic, "--read", *FEW)
    found = {row: rows["mnist", row, "sym-0.4"][LAST] for row in ("ce", "apl", "gce", "sce")}
    assert found == {"ce": "60.0000", "apl": "70.0000", "gce": "80.0000", "sce": "-"}
    assert path.read_bytes() == content


def test_a_study_that_is_small_keeps_its_results_apart(table, tmp_path):
    keep(cell_of("ce"), tmp_path / "reports" / "table1_synthetic.runs.jsonl")
    _, text, _ = table(table1_synthetic, "--read", *FEW, "--methods=ce", "--epochs=10")
    assert "- Runs: 0 of 1 finished" in text


def test_only_what_is_missing_is_started(table, tmp_path, started):
    path = tmp_path / "reports" / "table1_synthetic.runs.jsonl"
    keep(cell_of("ce"), path)
    asked = (*FEW, "--methods", "ce", "gce")
    status, text, rows = table(table1_synthetic, *asked)
    assert (started, status) == ([cell_of("gce")], 0)
    assert "- Runs: 2 of 2 finished" in text and "- Commit: here\n- Commit: there" in text
    found = [rows["mnist", row, "sym-0.4"][LAST] for row in ("ce", "gce")]
    assert found == ["80.0000", "50.0000"] and len(path.read_text().splitlines()) == 2
    shutil.rmtree(tmp_path / "runs")
    assert table(table1_synthetic, *asked)[0] == 0 and len(started) == 1


def test_a_folder_wins_and_its_result_takes_the_place_of_the_line(table, tmp_path):
    path = tmp_path / "reports" / "table1_synthetic.runs.jsonl"
    keep(cell_of("ce"), path, accuracy=0.8)
    keep(cell_of("gce"), path, accuracy=0.9)
    _, other = path.read_text().splitlines()
    home = leave(cell_of("ce"), tmp_path / "runs", summary_of(0.7))
    _, _, rows = table(table1_synthetic, "--read", *FEW, "--methods=ce")
    assert rows["mnist", "ce", "sym-0.4"][LAST] == "70.0000"
    ours, same = path.read_text().splitlines()
    assert same == other and json.loads(ours)["summary"]["last"]["test_top1"] == 0.7
    (home / "summary.json").unlink()  # it is being run again
    _, text, rows = table(table1_synthetic, "--read", *FEW, "--methods=ce")
    assert "- Runs: 0 of 1 finished" in text and path.read_text().splitlines() == [ours, other]


def change(path, field, value):
    """Change a field of the config in the only line of a file; None: it did not exist then."""
    line = json.loads(path.read_text())
    *sections, name = field.split(".")
    place = line["resolved"]
    for section in sections:
        place = place[section]
    assert name in place
    if value is None:
        del place[name]
    else:
        place[name] = value
    path.write_text(json.dumps(line) + "\n")


@pytest.mark.parametrize(
    ("field", "value", "counts"),
    [
        ("batch_size", 5, False),
        ("optimizer.weight_decay", 0.5, False),
        ("method.q", 0.1, False),  # a default of the method
        ("method.name", "ce", False),
        ("noise.seed", 0, False),
        ("tta", None, True),  # added since, at the value that changes nothing
        ("preset", "released", True),  # its choices stand elsewhere
    ],
)
def test_a_line_counts_as_long_as_its_config_is_todays(field, value, counts, tmp_path):
    path, run = tmp_path / "a.runs.jsonl", Run(DIGITS, "gce", (("noise.rate", 0.4),), 3)
    keep(run, path)
    assert [*kept.results([run], path, tmp_path)] == [run]
    change(path, field, value)
    assert bool(kept.results([run], path, tmp_path)) == counts


def test_a_stale_line_is_replaced_when_its_run_is_run_again(table, tmp_path, started):
    path = tmp_path / "reports" / "table1_synthetic.runs.jsonl"
    keep(cell_of("ce"), path)
    change(path, "batch_size", 5)
    asked = (*FEW, "--methods=ce")
    _, _, rows = table(table1_synthetic, "--read", *asked)
    assert rows["mnist", "ce", "sym-0.4"][LAST] == "-" and path.exists()
    _, _, rows = table(table1_synthetic, *asked)
    assert started == [cell_of("ce")] and rows["mnist", "ce", "sym-0.4"][LAST] == "50.0000"
    (one,) = kept.load(path).values()
    assert one.resolved["batch_size"] == config_of(cell_of("ce")).batch_size


def test_other_overrides_are_other_runs_and_folders_of_the_user_are_not_kept(tmp_path):
    path, run = tmp_path / "a.runs.jsonl", Run("configs/mnist_sym.py", "ce", (("noise.rate", 0.4),))
    mine = (("dataset.data_dir", "/home/me"), ("workers", 2), ("compilation_cache", "/home/me/x"))
    keep(run._replace(overrides=(*mine, *run.overrides)), path)
    assert "/home/me" not in path.read_text()
    same = run._replace(overrides=(*run.overrides, ("dataset.data_dir", "/elsewhere")))
    others = [
        run._replace(overrides=(("noise.rate", 0.2),)),
        run._replace(overrides=(*run.overrides, ("epochs", 2))),
        run._replace(seed=1),
        run._replace(method="gce"),
        run._replace(config="configs/mnist_asym.py"),
    ]
    found = kept.results([run, same, *others], path, tmp_path)
    assert [*found] == [run, same]
    shown = {name: summary_of(0.8)[name] for name in kept.SHOWN}
    assert found[same] == Result("finished", folder(run, tmp_path), shown, ORIGIN)


WHOLE = {"config": DIGITS, "method": "ce", "overrides": {}, "seed": 0, "origin": ORIGIN}
WHOLE |= {"summary": summary_of(0.8), "resolved": {}}
DAMAGED = {
    "conflict": "<<<<<<< HEAD",
    "cut": json.dumps(WHOLE)[:90],
    "empty": "",
    "no object": "[1]",
    "no seed": json.dumps({name: value for name, value in WHOLE.items() if name != "seed"}),
    "no accuracy": json.dumps(WHOLE | {"summary": {"epochs": 1}}),
    "no machine": json.dumps(WHOLE | {"origin": {"commit": "here"}}),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_line_is_named_in_one_sentence(damage, tmp_path, capsys, started):
    path = tmp_path / "table1_synthetic.runs.jsonl"
    path.write_text(f"{json.dumps(WHOLE)}\n{DAMAGED[damage]}\n")
    with pytest.raises(SystemExit) as ended:
        table1_synthetic.main([f"--out={tmp_path / 'out'}", f"--reports={tmp_path}", *FEW])
    said = capsys.readouterr().err
    assert f"Line 2 of {path} " in said and said.count("\n") == 1
    assert ended.value.code == 2 and not started and [*tmp_path.iterdir()] == [path]


def test_a_figure_that_needs_the_folder_of_a_run_does_not_do_without(tmp_path):
    (run,) = next(iter(figure_precision.cells(table_options("--small")).values()))
    leave_history(run, tmp_path, [{"epoch": 0, "test_top1": 0.5}])
    _, rows, text = rendered(figure_precision, tmp_path, "--small")
    assert "- Runs: 1 of" in text and len(rows) == 1
    shutil.rmtree(folder(run, tmp_path))
    keep(run, tmp_path / "reports" / "figure_precision_small.runs.jsonl")
    status, rows, text = rendered(figure_precision, tmp_path, "--small")
    assert "- Runs: 0 of" in text and (status, rows) == (study.SAVED, [])


def test_every_report_that_looks_into_folders_is_known_to():
    scripts = {path.stem: path.read_text() for path in REPORTS.parent.glob("*.py")}
    studies = {name: text for name, text in scripts.items() if "study.report(" in text}
    assert len(studies) > 5
    looking = {name for name, text in studies.items() if re.search(r"\.folder\b", text)}
    assert looking == {*study.NEED_FOLDERS}


def test_results_of_other_classifiers_are_kept_too(tmp_path, monkeypatch):
    class Guess:
        fit = lambda self, vectors, labels: self  # noqa: E731
        score = lambda self, vectors, labels: 0.3  # noqa: E731

    monkeypatch.setattr(other_classifiers, "CLASSIFIERS", {"guess": lambda seed: Guess()})
    held = {"features": np.eye(60), "labels": np.arange(60) % 2, "true_labels": np.arange(60) % 2}
    tests = {"test_features": np.eye(60), "test_labels": np.arange(60) % 2}
    np.savez(tmp_path / "cifar10.npz", **held, **tests)
    given = ["--small", "--methods=ce", f"--data_dir={tmp_path}"]
    options = table_options("--small", f"--data_dir={tmp_path}")
    (run,) = table1_features.cells(options)[table1_features.DATASET, "ce", "sym-0.4"]
    leave(run, tmp_path / "runs", summary_of(0.8))
    folders = [f"--out={tmp_path / 'runs'}", f"--reports={tmp_path / 'reports'}"]
    for more in (["--others"], ["--read"]):
        assert table1_features.main([*folders, *given, *more]) == 0
        text = (tmp_path / "reports" / "table1_features_small.md").read_text()
        assert "| guess | 30.00 |" in text and "| ce | 80.00 |" in text
        shutil.rmtree(tmp_path / "runs", ignore_errors=True)


@pytest.mark.parametrize("path", sorted(REPORTS.glob("*.runs.jsonl")), ids=lambda path: path.name)
def test_committed_lines_are_whole_and_in_order(path):
    several = kept.load(path)
    assert path.read_text() == "".join(kept.as_line(several[name]) for name in sorted(several))
    assert path.with_name(path.name.replace(".runs.jsonl", ".md")).exists()


@pytest.mark.slow
def test_a_run_that_was_run_is_kept_whole(table, tmp_path, monkeypatch):
    """A run that is as short as it gets, in a process of its own."""
    brief = (("epochs", 1), ("validation_share", 0.9))
    repeat = study.repeat
    monkeypatch.setattr(
        study,
        "repeat",
        lambda run, options: repeat(run._replace(overrides=run.overrides + brief), options),
    )
    monkeypatch.setattr(table2_real_world.paper_results, "TABLE2", {"animal10n": {"CE": 79.4}})
    asked = ("--small", "--dataset=animal10n")
    status, text, rows = table(table2_real_world, *asked)
    assert status == 0 and "- Runs: 1 of 1 finished" in text
    shutil.rmtree(tmp_path / "runs")
    assert table(table2_real_world, *asked) == (status, text, rows)
    assert not (tmp_path / "runs").exists()
