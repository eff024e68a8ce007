"""Run folders of the version before 0.2, whose options had other names."""

import json
from pathlib import Path

import pytest

from configs import digits_sym
from spr_jax.methods import METHODS
from spr_jax.registry import build
from spr_jax.training.config import resolve
from spr_jax.training.old_configs import differences, modernize
from spr_jax.training.workdir import BEGUN, as_json, claim

HOME = Path(__file__).parent / "old_configs"  # config.json files that it wrote
THEN = {"divide_by_clean": False, "record_from": "train"}  # what ours did before 0.2
WHOLE = {"per_class": 0, "intercept": True}
TODAY = {  # file -> preset, method, rule of a config of the same meaning
    "auto": ("noise_model", THEN, {}),
    "class": ("paper", {}, {"within": "class", **WHOLE}),
    "knockoffs": (
        "noise_model",
        THEN,
        {"name": "knockoffs", "rivals": "confident", "classes_per_group": 100, "pca_dim": 64}
        | WHOLE,
    ),
    "eval": (
        "paper",
        {"penalty_growth": 1.1, "penalty_q": 0.5, "penalty_of": "logits", "record_from": "scan"},
        {},
    ),
}


def old(name):
    return json.loads((HOME / f"{name}.json").read_text())


def today(name):
    preset, method, rule = TODAY[name]
    config = digits_sym.get_config()
    config.preset, config.epochs = preset, old(name)["epochs"]
    config.method.update(method)
    config.method.select.update(rule)
    resolve(config)
    return config


@pytest.mark.parametrize("name", TODAY)
def test_an_old_config_means_what_one_of_today_means(name):
    mine = as_json(today(name))
    assert differences(old(name), mine) == []
    assert differences(mine, mine) == []
    assert modernize(modernize(old(name))) == modernize(old(name))
    build(METHODS, modernize(old(name))["method"])
    others = [other for other in TODAY if other != name and differences(old(other), mine) == []]
    assert others == []


@pytest.mark.parametrize("name", TODAY)
def test_another_old_value_is_a_difference(name):
    mine = as_json(today(name))
    for then, value, now in (
        ("sparse", 2.0, "penalty_weight"),
        ("growth", 1.5, "penalty_growth"),
        ("q", 0.9, "penalty_q"),
        ("sparse_on", "another", "penalty_of"),
        ("sparse_over", "another", "penalize"),
        ("by_clean", True, "divide_by_clean"),
        ("features", "another", "record_from"),
        ("pairing", "clean_noisy", "pairing"),
        ("pca_dim", 33, "select.pca_dim"),
    ):
        theirs = old(name)
        theirs["method"][then] = value
        (difference,) = differences(theirs, mine)
        assert difference[:2] == (f"method.{now}", value) and difference[2] != value


def test_an_option_that_the_old_rule_did_not_read_is_none():
    theirs = old("auto")
    theirs["method"] |= {"keep": 0.1, "level": 0.7, "knockoffs": "confident", "ties": "released"}
    assert differences(theirs, as_json(today("auto"))) == []


@pytest.mark.parametrize(
    ("method", "then", "now"),
    [
        ("sr", "every", "grow_every"),
        ("pencil", "learn", "label_epochs"),
        ("plc", "few", "min_changed"),
        ("small_loss", "sparse_over", "penalize"),
        ("oracle", "by_clean", "divide_by_clean"),
    ],
)
def test_options_of_other_methods_were_renamed_too(method, then, now):
    config = digits_sym.get_config(method)
    resolve(config)
    mine = as_json(config)
    theirs = json.loads(json.dumps(mine))
    theirs["method"][then] = theirs["method"].pop(now)
    assert differences(theirs, mine) == []
    theirs["method"][then] = "another"
    assert differences(theirs, mine) == [(f"method.{now}", "another", mine["method"][now])]


def test_runs_before_the_floor_of_the_noise_model_are_others():
    """They kept a tenth of each class; rules that never had the floor did not change."""
    for name, changed in {"auto": ["method.select.min_correct_kept"], "class": []}.items():
        theirs = old(name)
        del theirs["method"]["least_right"]
        found = differences(theirs, as_json(today(name)))
        assert [field for field, _, _ in found] == changed
    piece, mine = old("eval"), as_json(today("eval"))
    del piece["method"]["least_right"]
    assert piece["method"]["select"] == "piece" and differences(piece, mine) == []


def test_a_field_that_did_not_exist_had_its_default():
    theirs, config = old("auto"), today("auto")
    for field in ("ema", "patience", "sync_batch_stats"):
        del theirs[field]
    del theirs["method"]["pairing"], theirs["optimizer"]["schedule"], theirs["noise"]["matrix"]
    assert differences(theirs, as_json(config)) == []
    config.ema = 0.5
    assert differences(theirs, as_json(config)) == [("ema", 0.0, 0.5)]


def test_names_of_presets_do_not_matter():
    theirs, mine = old("auto"), as_json(today("auto"))
    for preset in ("exact", "noise_model", "paper", "a name of the future"):
        assert differences(theirs | {"preset": preset}, mine) == []
    assert modernize(theirs)["preset"] == "noise_model"


def test_an_old_folder_is_accepted_by_the_same_run_alone(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(old("auto")))
    (tmp_path / BEGUN).touch()
    with claim(tmp_path, today("auto")):
        pass
    assert json.loads((tmp_path / "config.json").read_text()) == old("auto")  # as it was written
    config = today("auto")
    config.method.select.max_error_probability = 0.3
    fields = "method.select.max_error_probability=0.1, and this one has 0.3"
    with pytest.raises(ValueError, match=fields), claim(tmp_path, config):
        pass
    with pytest.raises(ValueError, match="method.select.name='noise_model'.*'knockoffs'"):
        with claim(tmp_path, _with_rule("knockoffs")):
            pass


def _with_rule(name):
    config = digits_sym.get_config()
    config.method.select.name = name
    config.method.update(THEN)
    resolve(config)
    return config
