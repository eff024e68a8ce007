"""Every cell of a table is a run that starts, and the paper's rows are ours or their own."""

import pytest
from finished_runs import table_options

from experiments import paper_results, table1_synthetic, table2_real_world, table3_ablation
from experiments.harness.runs import Run, config_of, folder
from spr_jax.methods import METHODS, Method
from spr_jax.registry import build
from spr_jax.training.config import check

pytestmark = pytest.mark.usefixtures("as_command")

TABLES = (table1_synthetic, table2_real_world, table3_ablation)


def check_run(run):
    """Check a run as its --dry_run does, without the data."""
    config = config_of(run)
    check(config)
    stages = build(METHODS, config.method)
    if not isinstance(stages, Method):
        assert sum(stage.epochs for stage in stages[:-1]) < config.epochs, run
    return config


@pytest.mark.parametrize("small", [[], ["--small"]], ids=["full", "small"])
@pytest.mark.parametrize("script", TABLES, ids=lambda script: script.NAME)
def test_every_cell_can_be_run_and_has_a_folder_of_its_own(script, small, tmp_path):
    cells = script.cells(table_options("--seeds=2", *small))
    homes = set()
    for cell in cells.values():
        assert [run.seed for run in cell] == [0, 1]
        data = check_run(cell[0]).dataset.name
        assert (data == "digits") == (bool(small) and script is not table3_ablation)
        homes |= {folder(run, tmp_path) for run in cell}
    shared = script is table2_real_world and small  # ce and spr stand for both data sets
    assert len(homes) == 2 * len(cells) or shared


def test_the_fast_ablation_bounds_the_whole_method_by_the_true_clean_set():
    cells = table3_ablation.cells(table_options("--fast"))
    networks = {check_run(cell[0]).backbone.name for cell in cells.values()}
    assert networks == {"whitened"} and len(cells) == 7 + 4 + 3
    whole = check_run(cells["noise_model", "CE + SPR + lq + CutMix"][0])
    bound = check_run(cells["noise_model", table3_ablation.BOUND][0])
    assert (whole.method.name, bound.method.name) == ("spr", "oracle")
    for field, value in bound.method.items():
        assert field == "name" or whole.method[field] == value, field
    alone, likely = (
        check_run(cells["noise_model", row][0]).method
        for row in (table3_ablation.BOUND_ALONE, table3_ablation.LIKELIHOOD)
    )
    assert alone.cutmix == alone.penalty_weight == likely.cutmix == likely.penalty_weight == 0
    assert likely.weights == "likelihood"


def test_the_ablation_on_features_turns_every_part_on_and_off():
    cells = table3_ablation.cells(table_options("--features", "--data_dir=DIR"))
    whole = check_run(cells["noise_model", "CE + SPR + lq + CutMix"][0])
    assert (whole.dataset.name, whole.method.mixing) == ("features", "mixup")
    assert whole.method.penalty_weight == 1.2 and whole.method.cutmix == 0.5
    alone = check_run(cells["noise_model", "CE"][0])
    assert (alone.method.penalty_weight, alone.method.cutmix) == (0.0, 0.0)
    assert alone.method.select.name == "all"


def test_table_1_has_all_methods_data_sets_and_noise():
    cells = table1_synthetic.cells(table_options())
    assert len(cells) == 2 * 7 * (len(METHODS) + 2)
    config = config_of(cells["cifar10", "spr, noise_model", "asym-0.3"][0])
    assert (config.dataset.name, config.noise.kind, config.noise.rate) == (
        "cifar10",
        "asymmetric",
        0.3,
    )
    assert (config.preset, config.epochs, config.method.penalty_growth) == (
        "noise_model",
        180,
        1.02,
    )
    assert config_of(cells["cifar10", "spr, paper", "sym-0.8"][0]).method.penalty_growth == 1.0
    assert config_of(cells["mnist", "spr, paper", "sym-0.8"][0]).method.penalty_growth == 1.2
    assert config_of(cells["mnist", "forward", "sym-0.8"][0]).epochs == 100


@pytest.mark.parametrize("dataset", ["mnist", "cifar10"])
def test_the_bound_differs_from_what_it_bounds_in_the_selection_alone(dataset):
    cells = table1_synthetic.cells(table_options())
    for preset in ("paper", "noise_model"):
        bound, method = (
            config_of(cells[dataset, f"{name}, {preset}", "asym-0.4"][0])
            for name in ("oracle", "spr")
        )
        shared = {*bound.method} - {"name"}
        assert {name: method.method[name] for name in shared} == {
            name: bound.method[name] for name in shared
        }
        assert bound.optimizer == method.optimizer and bound.epochs == method.epochs


def test_runs_of_mnist_are_found_where_they_are_launched(tmp_path):
    cells = table1_synthetic.cells(table_options("--data_dir=elsewhere"))
    overrides = (
        ("preset", "noise_model"),
        ("epochs", 50),
        ("noise.rate", 0.4),
        ("dataset.data_dir", "D"),
    )
    for kind in ("sym", "asym"):
        launched = Run(f"configs/mnist_{kind}.py", "spr", overrides)
        (run,) = cells["mnist", "spr, noise_model", f"{kind}-0.4"]
        assert folder(run, tmp_path) == folder(launched, tmp_path)


def test_embedded_data_needs_no_folder():
    cells = table1_synthetic.cells(table_options("--small", "--data_dir=D"))
    assert "dataset.data_dir" not in dict(cells["digits", "ce", "sym-0.4"][0].overrides)
    cells = table3_ablation.cells(table_options("--small", "--data_dir=D"))
    assert dict(cells["noise_model", "CE"][0].overrides)["dataset.data_dir"] == "D"


def test_an_equal_budget_has_room_for_all_stages():
    for small in (False, True):
        options = table_options()
        for options.epochs in (3, 4, 5, 7, 10, 25, 60):
            options.small, options.noise = small, ["sym-0.4"]
            for (run,) in table1_synthetic.cells(options).values():
                assert check_run(run).epochs == options.epochs


def test_stages_shrink_in_proportion():
    found = table1_synthetic.budget("configs/mnist_sym.py", "pencil", 25)
    assert found == {"epochs": 25, "method.warmup": 5, "method.label_epochs": 12}
    assert table1_synthetic.budget("configs/mnist_sym.py", "ce", 25) == {"epochs": 25}
    grows = table1_synthetic.budget("configs/mnist_sym.py", "sr", 10)
    assert grows == {"epochs": 10, "method.grow_every": 1}  # as often as in 50 epochs, every 5
    assert table1_synthetic.budget("configs/cifar10_sym.py", "nlnl", None) == {"epochs": 2160}


def test_the_ablation_leaves_out_what_a_row_does_not_name():
    cells = table3_ablation.cells(table_options())
    parts = {}
    for (preset, row), (run,) in cells.items():
        config = config_of(run)
        assert (config.preset, config.noise.rate) == (preset, 0.4)
        method = config.method
        parts[preset, row] = (
            method.select.name != "all",
            method.penalty_weight > 0,
            method.cutmix > 0,
        )
    assert parts["noise_model", "CE"] == (False, False, False)
    assert parts["noise_model", "CE + SPR"] == (True, False, False)
    assert parts["noise_model", "CE + lq"] == (False, True, False)
    assert parts["paper", "CE + CutMix"] == (False, False, True)
    assert parts["paper", "CE + SPR + CutMix"] == (True, False, True)
    assert parts["paper", "CE + SPR + lq + CutMix"] == (True, True, True)
    assert len({parts["paper", row] for row in paper_results.TABLE3}) == 7


def test_the_small_table_3_has_both_presets_where_they_differ():
    cells = table3_ablation.cells(table_options("--small"))
    rows = {preset: [row for name, row in cells if name == preset] for preset, _ in cells}
    assert rows["noise_model"] == [*paper_results.TABLE3]
    assert rows["paper"] == [row for row in paper_results.TABLE3 if "SPR" in row]


def test_numbers_of_the_paper_agree_with_each_other():
    for rows in paper_results.TABLE1.values():
        assert {len(numbers) for numbers in rows.values()} == {len(paper_results.NOISE)}
        best = [max(column) for column in zip(*rows.values(), strict=True)]
        assert [*rows["SPR"]] == best  # the paper's claim
    spr = paper_results.TABLE1["cifar10"]["SPR"][paper_results.NOISE.index("sym-0.4")]
    assert paper_results.TABLE3["CE + SPR + lq + CutMix"] == spr == 91.0
    for rows in (*paper_results.TABLE2.values(), paper_results.TABLE3):
        assert max(rows, key=rows.get).startswith(("SPR", "CE + SPR"))


def test_rows_of_the_paper_are_ours_or_stand_for_themselves():
    printed = {name for rows in paper_results.TABLE1.values() for name in rows}
    printed |= {name for rows in paper_results.TABLE2.values() for name in rows}
    assert {*paper_results.METHOD_OF} <= printed and {*paper_results.METHOD_OF.values()} <= {
        *METHODS
    }
    assert printed == {*paper_results.METHOD_OF}  # all of them are implemented
    rows = paper_results.variants(["spr", "dropout", "sr"])
    assert paper_results.counterparts(rows, paper_results.TABLE1["cifar10"]) == {
        "spr, paper": "SPR",
        "spr, noise_model": "SPR",
        "dropout": "Forgetting",
    }
