"""The table on frozen features: its runs, and what it says of its setting."""

from argparse import Namespace

import pytest

from experiments import table1_features as study_of
from experiments.harness.runs import load_config
from spr_jax.methods import METHODS
from spr_jax.training.config import resolve


def options(**changed):
    usual = {"noise": None, "methods": None, "seeds": 2, "data_dir": "D", "small": False}
    return Namespace(**usual | changed)


def test_every_method_and_noise_has_a_cell():
    cells = study_of.cells(options())
    assert len(cells) == (len(METHODS) + 1) * 10 and all(len(runs) == 2 for runs in cells.values())
    run = cells["cifar10", "spr, ours", "worst"][1]
    fields = dict(run.overrides)
    assert run.seed == 1 and fields["dataset.labels"] == "worst.npy"
    assert fields["dataset.data_dir"] == "D" and fields["noise.kind"] == "human"
    small = study_of.cells(options(small=True))
    assert {row for _, row, _ in small} == {"ce", "spr, ours", "spr, paper"} and len(small) == 3


@pytest.mark.parametrize("preset, weights", [("noise_model", "probability"), ("paper", "hard")])
def test_presets_decide_how_vectors_are_learned_from(preset, weights):
    config = load_config("configs/cifar10_features.py", "spr")
    config.preset = preset
    resolve(config)
    assert config.method.weights == weights and config.method.mixing == "mixup"
    assert ("lift" in config.method.select) == (preset == "noise_model")
    assert config.method.record_from == ("inputs" if preset == "noise_model" else "train")


def test_the_setting_is_said_plainly():
    text = study_of.remarks(options())
    assert "nothing here can be compared with the paper's Table 1" in text
