"""Mistakes are named before anything is run, and no run writes into another's folder."""

import json

import pytest

from configs import digits_sym, features
from spr_jax.training import workdir
from spr_jax.training.config import check, resolve


@pytest.fixture
def config():
    config = digits_sym.get_config()
    resolve(config)
    return config


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("dataset.name", "digit", "dataset.name is 'digit'; did you mean 'digits'?"),
        ("backbone.name", "c2f3", "backbone.name is 'c2f3'; did you mean 'c2f2'?"),
        ("method.name", "sprr", "method.name is 'sprr'; did you mean 'spr'?"),
        ("noise.kind", "symetric", "noise.kind is 'symetric'; did you mean 'symmetric'?"),
        ("noise.rate", 1.0, "noise.rate is 1.0"),
        ("dtype", "float16", "dtype is 'float16'"),
        ("optimizer.schedule", "linear", "schedule is 'linear'.*'constant', 'cosine', 'triangle'"),
        ("augmentation", "crop_flop", "augmentation is 'crop_flop'; did you mean 'crop_flip'?"),
        ("tta", "mirrors", "tta is 'mirrors'; did you mean 'mirror'?"),
        ("epochs", 0, "epochs is 0; expected 1"),
        ("checkpoint.every", 0, "checkpoint.every is 0; expected 1"),
        ("checkpoint.keep", -1, "checkpoint.keep is -1; expected 1"),
        ("batch_size", 33, "batch_size is 33; .* 2 devices"),
        ("eval_batch_size", 33, "eval_batch_size is 33; .* 2 devices"),
        ("ema", 1.0, "ema is 1.0"),
        ("validation_share", -0.1, "validation_share is -0.1"),
        ("patience", 3, "patience is 3 and validation_share is 0"),
    ],
)
def test_what_cannot_work_is_named(config, field, value, says):
    check(config)
    config.update_from_flattened_dict({field: value})
    with pytest.raises(ValueError, match=says):
        check(config)


def test_a_data_set_at_hand_needs_no_name(config):
    config.dataset.name = "mine"
    check(config, has_dataset=True)
    config.batch_size = 33
    with pytest.raises(ValueError, match="batch_size is 33"):
        check(config, has_dataset=True)


def claim(home, config, begin=True, **options):
    """As a run would, to the end or, if it does not begin, until its data fails to load."""
    with workdir.claim(home, config, **options):
        if begin:
            (home / "noise.npz").touch()


def test_the_same_config_may_come_again(config, tmp_path):
    home = tmp_path / "some" / "run"
    for _ in range(2):
        claim(home, config)
    assert json.loads((home / "config.json").read_text())["noise"]["rate"] == 0.4
    assert {"commit", "machine", "versions"} == set(json.loads((home / "origin.json").read_text()))


def test_another_config_is_refused_by_its_first_field(config, tmp_path):
    claim(tmp_path, config)
    config.noise.rate, config.optimizer.momentum = 0.6, 0.5
    with pytest.raises(ValueError, match="noise.rate=0.4, and this one has 0.6"):
        claim(tmp_path, config)
    assert json.loads((tmp_path / "config.json").read_text())["noise"]["rate"] == 0.4


def test_another_method_is_refused(config, tmp_path):
    claim(tmp_path, config)
    other = digits_sym.get_config("ce")
    resolve(other)
    with pytest.raises(ValueError, match=f"{tmp_path} .*method.name='spr', and .* has 'ce'"):
        claim(tmp_path, other)


def test_what_changes_no_result_may_differ(config, tmp_path):
    with config.unlocked():
        config.dataset.data_dir = "here"
    claim(tmp_path, config)
    config.dataset.data_dir, config.workers, config.compilation_cache = "there", 3, ""
    config.checkpoint.keep = 5
    claim(tmp_path, config)


def test_a_run_that_did_not_begin_may_be_corrected(config, tmp_path):
    claim(tmp_path, config, begin=False)
    config.noise.rate = 0.6
    claim(tmp_path, config)
    assert json.loads((tmp_path / "config.json").read_text())["noise"]["rate"] == 0.6


def test_a_folder_of_something_else_is_refused(config, tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match=f"{tmp_path} is not empty and holds no run"):
        claim(tmp_path, config)
    with pytest.raises(ValueError, match="thesis.tex is not a folder"):
        claim(tmp_path / "thesis.tex", config)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_claim_that_was_interrupted_is_made_again(config, tmp_path):
    (tmp_path / ".config.json.x1y2").write_text('{"ep')  # what `replace_file` left
    claim(tmp_path, config, begin=False)
    (tmp_path / "origin.json").unlink()
    claim(tmp_path, config)
    assert (tmp_path / "origin.json").exists()


def test_other_processes_check_and_write_nothing(config, tmp_path):
    claim(tmp_path / "run", config, writes=False, begin=False)
    assert not (tmp_path / "run").exists()
    claim(tmp_path / "run", config)
    config.seed = 1
    with pytest.raises(ValueError, match="seed=0, and this one has 1"):
        claim(tmp_path / "run", config, writes=False)


def test_a_folder_has_one_run_at_a_time(config, tmp_path):
    with workdir.claim(tmp_path, config):
        config.seed = 1
        with pytest.raises(ValueError, match="Another process is running in"):
            claim(tmp_path, config)
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 0
    claim(tmp_path, config)


def test_a_backbone_that_makes_no_network_is_named_before_anything_is_opened():
    config = features.get_config()
    resolve(config)
    check(config)
    config.backbone.width = 0
    with pytest.raises(ValueError, match=r"backbone\.width is 0; expected 1 or more"):
        check(config)
