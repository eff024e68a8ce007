"""The table on frozen features: its runs, and what it says of its setting."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from experiments import other_classifiers
from experiments import table1_features as study_of
from experiments.harness.runs import Result, config_of, load_config
from experiments.harness.study import Found
from spr_jax.methods import METHODS
from spr_jax.training.config import resolve


def options(**changed):
    usual = {"noise": None, "methods": None, "seeds": 2, "data_dir": "D", "small": False}
    return Namespace(**usual | changed)


def test_every_method_and_noise_has_a_cell():
    cells = study_of.cells(options())
    assert len(cells) == (len(METHODS) + 1) * 10 and all(len(runs) == 2 for runs in cells.values())
    run = cells[study_of.DATASET, "spr, ours", "worst"][1]
    fields = dict(run.overrides)
    assert run.seed == 1 and fields["dataset.labels"] == "worst.npy"
    assert fields["dataset.data_dir"] == "D" and fields["noise.kind"] == "human"
    small = study_of.cells(options(small=True))
    assert {row for _, row, _ in small} == {"ce", "spr, ours", "spr, paper"} and len(small) == 3


def test_methods_are_told_the_published_rate_of_peoples_labels():
    cells = study_of.cells(options(data_dir="D"))
    told = {
        (row, noise): config_of(cells[study_of.DATASET, row, noise][0]).method[option]
        for row, option in (("co_teaching", "forget_rate"), ("selfie", "noise_rate"))
        for noise in ("aggre", "worst", "sym-0.6")
    }
    assert [*told.values()] == [0.0903, 0.4021, 0.6] * 2


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


class Majority:
    """Predicts the most frequent label."""

    def fit(self, vectors, labels):
        self.label = np.bincount(labels).argmax()
        return self

    def score(self, vectors, labels):
        return np.mean(labels == self.label)


def test_other_classifiers_are_measured_once_and_shown(tmp_path, monkeypatch, capsys):
    """On the labels of the runs, one result for each seed."""
    vectors, labels = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 2
    tests = {"test_features": vectors[:10], "test_labels": np.repeat([0, 1], [7, 3])}
    held = {"features": vectors, "labels": labels, "true_labels": labels}
    np.savez(tmp_path / "cifar10.npz", **held, **tests)
    fitted = []
    monkeypatch.setattr(
        other_classifiers,
        "CLASSIFIERS",
        {"majority": lambda seed: fitted.append(seed) or Majority()},
    )
    arguments = options(data_dir=str(tmp_path), small=True, methods=["ce"], out=tmp_path)
    cells = study_of.cells(arguments)
    assert other_classifiers.render(cells, arguments) == ""
    for _ in range(2):
        other_classifiers.measure(cells, arguments)
    assert fitted == [0, 1]
    shown = other_classifiers.render(cells, arguments)
    assert "| classifier | sym-0.4 |" in shown and "| majority | " in shown
    values = other_classifiers.results_of(cells, arguments)["majority", "sym-0.4"]
    assert len(values) == 2 and set(np.round(values)) <= {30, 70}


def cell(*accuracies):
    summaries = [
        {"last": {"test_top1": a}, "best_on_test": {"test_top1": {"test_top1": a}}}
        for a in accuracies
    ]
    return Found([], [Result("finished", Path(), summary) for summary in summaries])


def test_the_verdict_compares_with_the_best_other_and_the_oracle():
    found = {
        ("data", "spr, ours", "sym-0.4"): cell(0.8, 0.9),
        ("data", "ce", "sym-0.4"): cell(0.8),
        ("data", "gce", "sym-0.4"): cell(0.84),
        ("data", "oracle", "sym-0.4"): cell(0.9),
        ("data", "spr, ours", "worst"): cell(0.7),
        ("data", "ce", "worst"): cell(0.71),
        ("data", "gce", "worst"): cell(),
        ("data", "spr, ours", "aggre"): cell(0.7),
        ("data", "ce", "aggre"): cell(),
    }
    said = study_of.verdict(found)
    assert "In 1 of 2 label sets `spr, ours` is at or above" in said
    assert "- sym-0.4: 85.00, +1.00 against gce, -5.00 against oracle." in said
    assert "- worst: 70.00, -1.00 against ce." in said and "aggre" not in said
    assert study_of.verdict({("data", "ce", "worst"): cell(0.5)}) == ""
