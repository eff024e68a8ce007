"""Options out of range are refused before any data is loaded, by name and with their value."""

import re

import pytest

from spr_jax.methods import METHODS
from spr_jax.registry import build

OUT_OF_RANGE = [
    ("focal", {"gamma": -1.0}),
    ("gce", {"q": 0.0}),
    ("gce", {"q": 1.5}),
    ("gce", {"q": float("nan")}),
    ("gce", {"truncate": 1.0}),
    ("gce", {"prune_from": 0}),
    ("gce", {"prune_every": 0}),
    ("sce", {"log_zero": 4.0}),
    ("apl", {"active": "ce"}),
    ("apl", {"passive": "ce"}),
    ("apl", {"gamma": -0.5}),
    ("bootstrap", {"kind": "sof"}),
    ("bootstrap", {"beta": 1.1}),
    ("dropout", {"rate": 1.0}),
    ("dropout", {"rate": -0.1}),
    ("nested", {"sigma": 0.0}),
    ("nct", {"sigma": 0.0}),
    ("nct", {"forget_rate": 1.0}),
    ("nct", {"warmup": -1}),
    ("nct", {"learning_rate": -1.0}),
    ("forward", {"estimate_epochs": 0}),
    ("forward", {"percentile": 0.0}),
    ("sr", {"base": "mae"}),
    ("sr", {"temperature": 0.0}),
    ("sr", {"power": 0.0}),
    ("sr", {"weight": -1.0}),
    ("sr", {"growth": 0.0}),
    ("sr", {"grow_every": 0}),
    ("sr", {"q": 2.0}),
    ("nlnl", {"stages": "selpl"}),
    ("nlnl", {"stage_epochs": 0}),
    ("nlnl", {"negatives": 0}),
    ("nlnl", {"gamma": 1.5}),
    ("mentornet", {"forget_rate": 1.0}),
    ("co_teaching", {"forget_rate": -0.1}),
    ("co_teaching", {"ramp": -1}),
    ("co_teaching_plus", {"warmup": -1}),
    ("decoupling", {"warmup": -1}),
    ("decoupling", {"floor": 0.0}),
    ("pencil", {"alpha": -1.0}),
    ("pencil", {"label_epochs": -1}),
    ("plc", {"window": 0}),
    ("plc", {"threshold": 0.95}),
    ("plc", {"highest": 1.1}),
    ("selfie", {"noise_rate": 1.0}),
    ("selfie", {"warmup": 14}),
    ("selfie", {"restarts": -1}),
    ("elr", {"weight": -1.0}),
    ("elr", {"momentum": 1.0}),
    ("topofilter", {"warmup": -1}),
    ("topofilter", {"filter_every": 0}),
    ("topofilter", {"graph_neighbors": 0}),
    ("topofilter", {"vote_neighbors": 0}),
    ("topofilter", {"agreement": 1.1}),
    ("iter_nld", {"warmup": 0}),
    ("iter_nld", {"detect_every": 0}),
    ("iter_nld", {"noisy_share": 1.0}),
    ("iter_nld", {"neighbors": 0.0}),
    ("iter_nld", {"contrast": -1.0}),
    ("d2l", {"warmup": 0}),
    ("d2l", {"window": 1}),
    ("d2l", {"horizon": 0}),
    ("rog", {"keep": 0.0}),
    ("rog", {"rounds": -1}),
    ("incv", {"iterations": 0}),
    ("incv", {"fold_epochs": 0}),
    ("incv", {"top": 0}),
    ("incv", {"ramp": 0}),
    ("incv", {"add_from": -1}),
    ("spr", {"cutmix": 1.1}),
    ("divide_mix", {"warmup": 0}),
    ("divide_mix", {"threshold": 1.0}),
    ("divide_mix", {"temperature": 0.0}),
    ("divide_mix", {"mixup": 0.0}),
    ("divide_mix", {"unlabeled_weight": -1.0}),
    ("divide_mix", {"ramp": 0}),
    ("sop", {"u_rate": -1.0}),
    ("sop", {"consistency": -1.0}),
    ("ssr", {"neighbors": 0}),
    ("ssr", {"voters": 0}),
    ("ssr", {"agreement": 1.5}),
    ("spr_plus", {"mixup": -1.0}),
    ("ssr", {"relabel_above": 0.0}),
    ("ssr", {"mixup": -1.0}),
    ("ssr", {"consistency": -1.0}),
    ("small_loss", {"keep": 0.0}),
    ("small_loss", {"keep": 1.1}),
    ("oracle", {"cutmix": -0.1}),
]
UNKNOWN = [
    ("pencil", {"compatibility": "papers"}),
    ("spr", {"pairing": "clean"}),
    ("spr", {"penalty_of": "features"}),
    ("spr", {"penalize": "noisy"}),
    ("spr", {"record_from": "eval"}),
    ("sop", {"strong": "blur"}),
    ("ssr", {"strong": "blur"}),
    ("spr_plus", {"judge_by": "features"}),
    ("spr_plus", {"weights": "soft"}),
    ("small_loss", {"pairing": "clean"}),
    ("oracle", {"penalize": "noisy"}),
]


@pytest.mark.parametrize(("method", "option"), OUT_OF_RANGE)
def test_a_value_out_of_range_is_named(method, option):
    ((name, value),) = option.items()
    with pytest.raises(ValueError, match=f"^{name} is {re.escape(repr(value))}; expected "):
        build(METHODS, {"name": method, **option})


@pytest.mark.parametrize(
    ("method", "option", "named"),
    [
        ("sce", {"beta": -1.0}, "alpha, beta is (0.1, -1.0)"),
        ("apl", {"alpha": -1.0}, "alpha, beta is (-1.0, 1.0)"),
    ],
)
def test_weights_below_zero_are_named_together(method, option, named):
    with pytest.raises(ValueError, match=re.escape(named)):
        build(METHODS, {"name": method, **option})


def test_limits_that_depend_on_another_option_are_named():
    with pytest.raises(ValueError, match="highest=0.9"):
        build(METHODS, {"name": "plc", "threshold": 0.95})
    with pytest.raises(ValueError, match="history of 15"):
        build(METHODS, {"name": "selfie", "warmup": 14})


@pytest.mark.parametrize(("method", "option"), UNKNOWN)
def test_an_unknown_choice_is_named(method, option):
    (value,) = option.values()
    with pytest.raises(ValueError, match=f"Unknown name '{value}'"):
        build(METHODS, {"name": method, **option})


def test_an_unknown_option_comes_with_the_nearest():
    with pytest.raises(ValueError, match="'betta'.*'beta'"):
        build(METHODS, {"name": "bootstrap", "betta": 1.0})
