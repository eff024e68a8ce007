"""Tables tell what was measured, what the paper has, and how what is missing is made."""

import csv
import json
import sys
from types import SimpleNamespace

import pytest
from finished_runs import leave

from experiments import (
    paper,
    runs,
    study,
    table1_synthetic,
    table2_real_world,
    table3_ablation,
    table4_time,
)
from experiments.runs import Run, config_of, folder
from spr_jax import settings
from spr_jax.methods import METHODS, Method
from spr_jax.methods.rules import RULES
from spr_jax.registry import build

TABLES = (table1_synthetic, table2_real_world, table3_ablation)
LAST, BEST = "test accuracy, last epoch, mean (%)", "test accuracy, best on test, mean (%)"


@pytest.fixture(autouse=True)
def typed(monkeypatch):
    """As if the table had been started by hand, at a known commit."""
    main = SimpleNamespace(name="experiments.markdown")  # one that a worker quickly imports
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", main)
    monkeypatch.setattr(sys, "argv", ["table", "--read"])
    monkeypatch.setattr(runs, "commit", lambda: "here")


@pytest.fixture
def table(tmp_path):
    """A table, called; (exit status, Markdown, rows of the CSV by their first columns)."""

    def call(script, *arguments):
        folders = [f"--out={tmp_path / 'runs'}", f"--reports={tmp_path / 'reports'}"]
        status = script.main([*folders, *arguments])
        (text,) = (tmp_path / "reports").glob("*.md")
        with open(text.with_suffix(".csv"), newline="") as file:
            rows = list(csv.DictReader(file))
        named = {tuple(row.values())[: list(row).index("paper (%)")]: row for row in rows}
        return status, text.read_text(), named

    return call


def options_of(script, *arguments):
    several = {"dataset": None, "noise": None, "methods": None, "epochs": None}
    options = study.arguments("A table.", "table").parse_args(arguments)
    return SimpleNamespace(**several | vars(options))


def record(run, out, last, best, commit="here", **more):
    summary = {
        "last": {f"{test}_top1": value for test, value in last.items()} | more,
        "best_on_test": {f"{test}_top1": {f"{test}_top1": value} for test, value in best.items()},
    }
    leave(run, out, summary, commit=commit)


# Cells -------------------------------------------------------------------------------------


def check_run(run):
    """What a dry run of its command checks, but for the data."""
    config = config_of(run)
    settings.check(config)
    stages = build(METHODS, config.method)
    if not isinstance(stages, Method):
        assert sum(stage.epochs for stage in stages[:-1]) < config.epochs, run
    return config


@pytest.mark.parametrize("small", [[], ["--small"]], ids=["full", "small"])
@pytest.mark.parametrize("script", TABLES, ids=lambda script: script.NAME)
def test_every_cell_can_be_run_and_has_a_folder_of_its_own(script, small, tmp_path):
    cells = script.cells(options_of(script, "--seeds=2", *small))
    homes = set()
    for cell in cells.values():
        assert [run.seed for run in cell] == [0, 1]
        data = check_run(cell[0]).dataset.name
        assert (data == "digits") == (bool(small) and script is not table3_ablation)
        homes |= {folder(run, tmp_path) for run in cell}
    shared = script is table2_real_world and small  # ce and spr stand for both data sets
    assert len(homes) == 2 * len(cells) or shared


def test_table_1_has_all_methods_data_sets_and_noise():
    cells = table1_synthetic.cells(options_of(table1_synthetic))
    assert len(cells) == 2 * 7 * (len(METHODS) + 1)
    config = config_of(cells["cifar10", "spr, exact", "asym-0.3"][0])
    assert (config.dataset.name, config.noise.kind, config.noise.rate) == (
        "cifar10",
        "asymmetric",
        0.3,
    )
    assert (config.preset, config.epochs, config.method.growth) == ("exact", 180, 1.02)
    assert config_of(cells["cifar10", "spr, paper", "sym-0.8"][0]).method.growth == 1.0
    assert config_of(cells["mnist", "spr, paper", "sym-0.8"][0]).method.growth == 1.2
    assert config_of(cells["mnist", "forward", "sym-0.8"][0]).epochs == 100


def test_runs_of_mnist_are_found_where_they_are_launched(tmp_path):
    cells = table1_synthetic.cells(options_of(table1_synthetic, "--data_dir=elsewhere"))
    overrides = (
        ("preset", "exact"),
        ("epochs", 50),
        ("method.growth", 1.03),
        ("noise.rate", 0.4),
        ("dataset.data_dir", "D"),
    )
    for kind in ("sym", "asym"):
        launched = Run(f"configs/mnist_{kind}.py", "spr", overrides)
        (run,) = cells["mnist", "spr, exact", f"{kind}-0.4"]
        assert folder(run, tmp_path) == folder(launched, tmp_path)


def test_embedded_data_needs_no_folder():
    cells = table1_synthetic.cells(options_of(table1_synthetic, "--small", "--data_dir=D"))
    assert "dataset.data_dir" not in dict(cells["digits", "ce", "sym-0.4"][0].overrides)
    cells = table3_ablation.cells(options_of(table3_ablation, "--small", "--data_dir=D"))
    assert dict(cells["exact", "CE"][0].overrides)["dataset.data_dir"] == "D"


@pytest.mark.parametrize("epochs", [3, 4, 5, 7, 10, 25, 60])
def test_an_equal_budget_has_room_for_all_stages(epochs):
    options = options_of(table1_synthetic, f"--seeds={1}")
    for small in (False, True):
        options.small, options.epochs, options.noise = small, epochs, ["sym-0.4"]
        for (run,) in table1_synthetic.cells(options).values():
            assert check_run(run).epochs == epochs


def test_stages_shrink_in_proportion():
    found = table1_synthetic.budget("configs/mnist_sym.py", "pencil", 25)
    assert found == {"epochs": 25, "method.warmup": 5, "method.learn": 12}
    assert table1_synthetic.budget("configs/mnist_sym.py", "ce", 25) == {"epochs": 25}
    grows = table1_synthetic.budget("configs/mnist_sym.py", "sr", 10)
    assert grows == {"epochs": 10, "method.every": 1}  # as often as in 50 epochs, every 5
    assert table1_synthetic.budget("configs/cifar10_sym.py", "nlnl", None) == {"epochs": 2160}


def test_the_ablation_leaves_out_what_a_row_does_not_name():
    cells = table3_ablation.cells(options_of(table3_ablation))
    parts = {}
    for (preset, row), (run,) in cells.items():
        config = config_of(run)
        assert (config.preset, config.noise.rate) == (preset, 0.4)
        method = config.method
        parts[preset, row] = (method.select != "none", method.sparse > 0, method.cutmix > 0)
    assert parts["exact", "CE"] == (False, False, False)
    assert parts["exact", "CE + SPR"] == (True, False, False)
    assert parts["exact", "CE + lq"] == (False, True, False)
    assert parts["paper", "CE + CutMix"] == (False, False, True)
    assert parts["paper", "CE + SPR + CutMix"] == (True, False, True)
    assert parts["paper", "CE + SPR + lq + CutMix"] == (True, True, True)
    assert len({parts["paper", row] for row in paper.TABLE3}) == 7


# The paper ---------------------------------------------------------------------------------


def test_numbers_are_those_of_the_paper():
    column = paper.NOISE.index
    assert paper.TABLE1["mnist"]["SPR"][column("sym-0.8")] == 98.7
    assert paper.TABLE1["mnist"]["NLNL"][column("asym-0.4")] == 95.8
    assert paper.TABLE1["cifar10"]["SPR"] == (93.2, 91.0, 82.7, 64.1, 92.8, 91.3, 89.0)
    assert paper.TABLE1["cifar10"]["Co-teaching+"][column("asym-0.4")] == 71.3
    assert paper.TABLE1["cifar10"]["TopoFilter"][column("sym-0.6")] == 80.5
    assert paper.TABLE2["animal10n"]["SPR"] == 86.8 and paper.TABLE2["webvision"]["CE"] == 66.96
    assert paper.TABLE3["CE + SPR + lq"] == 88.5
    for rows in paper.TABLE1.values():
        assert {len(numbers) for numbers in rows.values()} == {len(paper.NOISE)}


def test_rows_of_the_paper_are_ours_or_stand_for_themselves():
    printed = {name for rows in paper.TABLE1.values() for name in rows}
    printed |= {name for rows in paper.TABLE2.values() for name in rows}
    assert {*paper.METHOD_OF} <= printed and {*paper.METHOD_OF.values()} <= {*METHODS}
    assert printed - {*paper.METHOD_OF} == {
        "IterNLD",
        "RoG",
        "TopoFilter",
        "Iterative-CV",
        "DivideMix",
    }
    rows = paper.variants(["spr", "dropout", "sr"])
    assert paper.counterparts(rows, paper.TABLE1["cifar10"]) == {
        "spr, paper": "SPR",
        "spr, exact": "SPR",
        "dropout": "Forgetting",
        "IterNLD": "IterNLD",
        "RoG": "RoG",
        "TopoFilter": "TopoFilter",
    }


# Rendering ---------------------------------------------------------------------------------


def test_table_1_has_ours_beside_the_paper_and_what_is_missing(table, tmp_path):
    options = options_of(table1_synthetic, "--seeds=2")
    cells, out = table1_synthetic.cells(options), tmp_path / "runs"
    for run, last in zip(cells["mnist", "spr, exact", "sym-0.4"], (0.98, 0.99), strict=True):
        record(run, out, {"test": last}, {"test": 0.995}, label_precision=0.97)
    record(cells["mnist", "ce", "sym-0.4"][1], out, {"test": 0.6}, {"test": 0.9}, "there")
    status, text, rows = table(table1_synthetic, "--read", "--seeds=2")
    assert status == study.SAVED  # something is missing
    missing = 2 * len(cells) - 3
    for line in (
        "- Command: `python -m experiments.markdown --read`",
        f"- Runs: 3 of {2 * len(cells)} finished",
        "- Commit: here",
        "- Commit: there",
        "- Machine: a machine",
        "mean and standard deviation of 2 seeds",
        "## MNIST, C2F2: test accuracy, last epoch",
        "| spr, exact | SPR | - (99.3) | 98.50 ± 0.71 (99.2) | - (99.2) |",
        "| spr, exact | SPR | - (99.3) | 99.50 ± 0.00 (99.2) | - (99.2) |",
        "| ce | CE | - (91.6) | 60.00 [1 of 2] (74.0) | - (49.4) |",
        "| ce | CE | - (91.6) | 90.00 [1 of 2] (74.0) | - (49.4) |",
        "| pencil |  | - | - |",
        "| RoG | RoG | - (89.2) | - (83.5) |",
        "Runs of another commit: 1 of there; the code is now here.",
    ):
        assert line in text
    made = [line for line in text.splitlines() if line.startswith("    python -m spr_jax.main ")]
    assert len(made) == 2 * len(cells) == missing + 3 and len({*made}) == len(made)
    row = rows["mnist", "spr, exact", "sym-0.4"]
    assert (row["paper (%)"], row["runs finished"], row["runs"]) == ("99.20", "2", "2")
    assert (row[LAST], row[BEST], row["commits"]) == ("98.5000", "99.5000", "here")
    assert row["test accuracy, last epoch, std (%)"] == "0.7071"
    assert row["label precision, last epoch, mean (%)"] == "97.0000"
    assert rows["mnist", "ce", "sym-0.4"]["commits"] == "there"
    assert rows["cifar10", "spr, paper", "sym-0.2"][LAST] == "-"
    for key, row in rows.items():
        commands = row["command"].splitlines()
        assert len(commands) == (0 if key[1] in ("IterNLD", "RoG", "TopoFilter") else 2)
        assert all(f"    {command}" in made for command in commands)
    assert "dataset.data_dir" not in text


def test_what_falls_short_of_the_paper_is_said(table, tmp_path):
    cells, out = table1_synthetic.cells(options_of(table1_synthetic)), tmp_path / "runs"
    kept = {"label_precision": 0.97, "label_recall": 0.9}
    for row, last in {"spr, exact": 0.985, "spr, paper": 0.995, "ce": 0.1, "oracle": 0.991}.items():
        record(cells["mnist", row, "sym-0.4"][0], out, {"test": last}, {"test": last}, **kept)
    record(cells["mnist", "spr, exact", "sym-0.8"][0], out, {"test": 0.98}, {"test": 0.99})
    _, text, _ = table(table1_synthetic, "--read")
    said = text.split("Below the paper, last epoch, in per cent:")[1].split("What is missing")[0]
    assert [line for line in said.splitlines() if line.startswith("- ")] == [
        "- MNIST, C2F2, sym-0.4, spr, exact: 98.50, 0.70 below. 97.00 % of the labels it kept are "
        "right, and it kept 90.00 % of the right ones. A perfect selection reaches 99.10.",
        "- MNIST, C2F2, sym-0.8, spr, exact: 98.00, 0.70 below.",
    ]
    assert "Below the paper" not in table(table1_synthetic, "--read", "--noise", "sym-0.2")[1]


def test_a_table_of_little_shows_that_alone(table):
    asked = ["--dataset=mnist", "--noise", "asym-0.4", "sym-0.2", "--methods", "spr", "ce"]
    _, text, rows = table(table1_synthetic, "--read", *asked, "--epochs=10")
    assert list(rows) == [
        ("mnist", row, noise)
        for row in ("spr, paper", "spr, exact", "ce")
        for noise in ("sym-0.2", "asym-0.4")
    ]
    assert "Every method has 10 epochs" in text and "--config.epochs=10" in text


def test_a_budget_has_a_report_of_its_own(table, tmp_path):
    table(table1_synthetic, "--read", "--dataset=mnist", "--methods=ce", "--epochs=10")
    assert (tmp_path / "reports" / "table1_synthetic_10_epochs.csv").exists()


def test_table_2_has_both_test_sets_of_webvision(table, tmp_path):
    cells = table2_real_world.cells(options_of(table2_real_world))
    last, best = {"webvision": 0.7, "imagenet": 0.6}, {"webvision": 0.75, "imagenet": 0.65}
    fives = {"webvision_top5": 0.9, "imagenet_top5": 0.85}
    record(cells["webvision", "spr, exact"][0], tmp_path / "runs", last, best, **fives)
    record(cells["animal10n", "nct"][0], tmp_path / "runs", {"test": 0.8}, {"test": 0.81})
    _, text, rows = table(table2_real_world, "--read")
    for line in (
        "| spr, exact | SPR | 78.12 | 70.00 | 75.00 | 90.00 | 60.00 | 65.00 | 85.00 |",
        "| DivideMix | DivideMix | 77.32 | - | - | - | - | - | - |",
        "| nct | NCT | 84.1 | 80.00 | 81.00 |",
        "| spr, paper | SPR | 86.8 | - | - |",
    ):
        assert line in text
    row = rows["webvision", "spr, exact"]
    assert row["imagenet top-5 accuracy, last epoch, mean (%)"] == "85.0000"
    assert row[LAST] == "-"
    assert rows["webvision", "Iterative-CV"]["command"] == ""
    assert "--config=configs/animal10n.py:selfie" in rows["animal10n", "selfie"]["command"]


def test_table_3_has_both_presets(table, tmp_path):
    cells = table3_ablation.cells(options_of(table3_ablation))
    record(cells["exact", "CE + SPR"][0], tmp_path / "runs", {"test": 0.8}, {"test": 0.9})
    _, text, rows = table(table3_ablation, "--read")
    assert "| CE + SPR | exact | 80.4 | 80.00 | 90.00 | - |" in text
    assert "| CE + SPR | paper | 80.4 | - | - | - |" in text
    assert rows["exact", "CE + SPR"][BEST] == "90.0000" and len(rows) == 14


def test_the_small_table_3_has_both_presets_where_they_differ():
    cells = table3_ablation.cells(options_of(table3_ablation, "--small"))
    rows = {preset: [row for name, row in cells if name == preset] for preset, _ in cells}
    assert rows["exact"] == [*paper.TABLE3]
    assert rows["paper"] == [row for row in paper.TABLE3 if "SPR" in row]


@pytest.mark.parametrize("script", TABLES, ids=lambda script: script.NAME)
def test_a_small_table_does_not_compare_itself_with_the_paper(script, table, tmp_path):
    _, text, rows = table(script, "--read", "--small")
    assert "cannot be compared with the paper" in text and "in the paper" not in text
    assert {row["paper (%)"] for row in rows.values()} == {"-"}
    assert (tmp_path / "reports" / f"{script.NAME}_small.md").exists()
    assert f"runs/{script.NAME}/" in text  # where the table itself looks for them


def test_a_run_of_another_config_is_named_and_refused(table, tmp_path):
    (run,) = table3_ablation.cells(options_of(table3_ablation))["exact", "CE"]
    record(run, tmp_path / "runs", {"test": 0.8}, {"test": 0.9})
    path = folder(run, tmp_path / "runs") / "config.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {"batch_size": 5}))
    _, text, rows = table(table3_ablation, "--read")
    assert "belongs to a run with batch_size=5, and this one has 128" in text
    assert rows["exact", "CE"][LAST] == "-"


def test_a_finished_table_is_rendered_again_without_a_start(table, tmp_path, monkeypatch):
    for cell in table2_real_world.cells(options_of(table2_real_world, "--small")).values():
        if not folder(cell[0], tmp_path / "runs").exists():
            record(cell[0], tmp_path / "runs", {"test": 0.8}, {"test": 0.9})
    monkeypatch.setattr(runs, "_start", lambda *_: pytest.fail("started a run"))
    status, text, _ = table(table2_real_world, "--small")
    assert status == 0 and "What is missing" not in text


# Time --------------------------------------------------------------------------------------


def measurement(examples=1000):
    """scikit-learn takes n^2 microseconds on whole data, ours a thousandth of a second."""
    growth = [{"examples": n, "scikit-learn": 1e-6 * n**2, "ours": 1e-3} for n in (100, 200, 400)]
    seconds = {name: [0.5, 0.25, 0.75] for name in table4_time.TITLES if name != table4_time.WHOLE}
    return {"examples": examples, "seconds": seconds, "growth": growth, "origin": "- Commit: here"}


def test_a_quadratic_is_extrapolated_exactly():
    growth = measurement()["growth"]
    seconds, exponent = table4_time.extrapolate(growth, 50_000)
    assert seconds == pytest.approx(2500) and exponent == pytest.approx(2)
    cubic = [row | {"scikit-learn": row["examples"] ** 3} for row in growth]
    assert table4_time.extrapolate(cubic, 50_000)[1] == pytest.approx(3)


def test_table_4_is_read_again(tmp_path):
    path = tmp_path / "table4_time.json"
    path.write_text(json.dumps(measurement(examples=100_000)))
    assert table4_time.main(["--read", f"--out={tmp_path}", f"--reports={tmp_path}"]) == 0
    text = (tmp_path / "table4_time.md").read_text()
    for line in (
        "- Commit: here",
        "| split, scikit-learn, a process for each core | 0.5 s | 0.125 | 54 s |",
        "| whole data, scikit-learn, extrapolated | 2.8 h |  | 6.0 h |",
        "| 400 | 0.160 | 0.0010 | 160 |",
        "Whole data takes 1/20,000 of scikit-learn's time for the same problem.",
        "a free exponent would be 2.00",
    ):
        assert line in text
    with open(tmp_path / "table4_time.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["paper, seconds"] for row in rows] == ["54.0", "", "21600.0", "", "", ""]
    assert float(rows[2]["seconds"]) == pytest.approx(1e4)
    assert {row["command"] for row in rows} == {"python -m experiments.table4_time"}


# Smoke -------------------------------------------------------------------------------------


def test_table_4_measures(tmp_path, monkeypatch):
    """All but our solver, which takes long to compile and is timed, not changed, here."""
    changed = {
        "NUM_EXAMPLES": 600,
        "DIMENSION": 20,
        "SMALL_SIZES": (100, 200),
        "TURNS": 1,
        "CALLS": 2,
        "one_device_per_core": lambda: None,
        "compile_clean_set": lambda features, labels, per_class, options: (lambda: None, 0),
    }
    for name, value in changed.items():
        monkeypatch.setattr(table4_time, name, value)
    choices = []

    def keep_all(choice, features, labels, key, clean):
        choices.append(choice)
        return {"clean": clean}

    monkeypatch.setitem(RULES, "auto", keep_all)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # one worker
    assert table4_time.main(["--small", f"--out={tmp_path}", f"--reports={tmp_path}"]) == 0
    measured = json.loads((tmp_path / "table4_time_small.json").read_text())
    assert {*measured["seconds"]} == {*table4_time.TITLES} - {table4_time.WHOLE}
    assert {len(times) for times in measured["seconds"].values()} == {1, 2}
    assert all(second > 0 for times in measured["seconds"].values() for second in times)
    assert [row["examples"] for row in measured["growth"]] == [100, 200]
    assert "extrapolated | " in (tmp_path / "table4_time_small.md").read_text()
    assert {(choice.per_class, choice.options.pca_dim) for choice in choices} == {(0, 64)}


FEW_CELLS = {  # of the tables as they are tried here: one for each
    table1_synthetic: ["--methods=ce", "--noise=sym-0.4", "--epochs=3"],
    table2_real_world: ["--dataset=animal10n"],
    table3_ablation: [],
}


@pytest.mark.parametrize("script", TABLES, ids=lambda script: script.NAME)
def test_a_small_table_is_made_from_nothing(script, table, tmp_path_factory, monkeypatch):
    """A run that is as short as it gets, in a process of its own."""
    monkeypatch.setitem(paper.TABLE2, "animal10n", {"CE": 79.4})
    monkeypatch.setattr(paper, "TABLE3", {"CE + CutMix": 87.0})
    fields = {"epochs": 2, "noise.rate": 0.4, "method.cutmix": 0.5}
    monkeypatch.setattr(table3_ablation, "SMALL", ("configs/digits_sym.py", fields))
    cache = tmp_path_factory.getbasetemp() / "xla"
    brief = (("validation_share", 0.9), ("compilation_cache", str(cache)))
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
    "seeds": (table3_ablation, ["--seeds=0"], "--seeds: '0' is not a whole number from 1 on."),
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
    assert said.err.startswith("python -m experiments.markdown: ") and said.err.count("\n") == 1
    assert not [*tmp_path.iterdir()]
