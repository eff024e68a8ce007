"""The name of a feature file says what is trained; other names are refused."""

import sys

import pytest
from finished_runs import leave

from experiments import feature_files
from experiments.feature_files import main, run_of
from experiments.harness import runs
from experiments.harness.runs import config_of
from experiments.label_sets import dataset_of, is_redrawn, kind_of
from spr_jax.training.config import check


@pytest.mark.parametrize(
    ("name", "backbone", "epochs", "kind", "rate"),
    [
        ("mnist_sym40", "c2f2", 1, "symmetric", 0.4),
        ("cifar10_sym40", "resnet18", 4, "symmetric", 0.4),
        ("mnist_asym40_e3", "c2f2", 3, "asymmetric", 0.4),
        ("mnist_none_e2", "c2f2", 2, "symmetric", 0.0),
    ],
)
def test_a_name_says_what_is_trained(name, backbone, epochs, kind, rate):
    config = config_of(run_of(name))
    check(config)
    assert (config.dataset.name, config.method.name) == (dataset_of(name), "ce")
    assert (config.backbone.name, config.epochs) == (backbone, epochs)
    assert (config.noise.kind, config.noise.rate) == (kind, rate)
    assert kind_of(name) == (kind if rate else "none")
    assert is_redrawn(name) == (name in ("mnist_sym40", "cifar10_sym40"))


@pytest.mark.parametrize("name", ["mnist", "mnist_sym", "mnist_sym400", "webvision_sym40", "a/b"])
def test_other_names_are_refused(name, capsys, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", feature_files.__spec__)
    with pytest.raises(SystemExit) as stop:
        main([name])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and repr(name) in said and said.count("\n") == 1


def test_a_file_is_written_for_each_finished_run(tmp_path, monkeypatch):
    summary = {"last": {"test_top1": 0.9}, "best_on_test": {}}
    home = leave(run_of("mnist_sym40"), tmp_path / "runs", summary)
    looked, written = [], []
    monkeypatch.setattr(feature_files, "look", lambda *given: looked.append(given) or "a view")
    monkeypatch.setattr(feature_files, "write", lambda *given: written.append(given))
    monkeypatch.setattr(runs, "_start", lambda *_: pytest.fail("started a run"))
    assert main(["mnist_sym40", f"--out={tmp_path / 'runs'}", f"--files={tmp_path}"]) == 0
    ((config, folder, most),) = looked
    assert (config.epochs, folder, most) == (1, home, feature_files.NUM_EXAMPLES)
    assert written == [("a view", tmp_path / "mnist_sym40.npz")]
