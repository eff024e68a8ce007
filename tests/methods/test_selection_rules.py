"""Selection rules: what each calls clean, on features around class centers with wrong labels."""

import re
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_data
from jax import random

from spr_jax.methods.selection_rules import RULES, Selection
from spr_jax.registry import build, options_of
from spr_jax.solver import Options, clean_set, plan_pieces
from spr_jax.solver.label_noise import label_noise

FEATURES, GIVEN, TRUE = make_data(rate=0.4)
POOR = np.random.default_rng(0).standard_normal(FEATURES.shape)
SIZES = np.bincount(GIVEN)
IS_CORRECT = GIVEN == TRUE
KEY = random.key(0)
slow = pytest.mark.slow


def choose(name, features=FEATURES, clean=None, **options) -> Selection:
    """The selection of a rule, on the host; after all were called clean, if not told otherwise."""
    rule = build(RULES, {"name": name, **options})
    clean = np.ones(len(GIVEN), bool) if clean is None else clean
    chosen = rule.choose(features, GIVEN, KEY, clean)
    suspicion = chosen.suspicion if chosen.suspicion is None else np.asarray(chosen.suspicion)
    numbers = {name: float(value) for name, value in chosen.numbers.items()}
    assert tuple(numbers) == rule.numbers
    return Selection(np.asarray(chosen.clean), suspicion, numbers)


def precision(chosen):
    return IS_CORRECT[chosen.clean].mean()


def kept_of_class(chosen):
    return np.bincount(GIVEN[chosen.clean], minlength=4)


def assert_keeps_the_least_suspect(chosen, classes=range(4)):
    for label in classes:
        suspicion, clean = chosen.suspicion[GIVEN == label], chosen.clean[GIVEN == label]
        assert suspicion[clean].max() <= suspicion[~clean].min()


# The registry


def test_rules_document_themselves():
    for name, rule in RULES.items():
        line = rule.__doc__.splitlines()[0]
        assert 10 < len(line) < 97 and line.endswith("."), name
        values = list(options_of(rule).values())
        assert len(values) == rule.__code__.co_argcount, f"{name}: an option without a default"
        assert None not in values, f"{name}: a flag could not set an option of no type"


def test_options_of_the_same_name_have_the_same_type():
    """A config has one field for them all, and its type is known before the rule is."""
    types = {}
    for name, rule in RULES.items():
        for option, value in options_of(rule).items():
            assert types.setdefault(option, type(value)) is type(value), f"{name}.{option}"


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("share", {"keep": 0.0}),
        ("share", {"keep": 1.1}),
        ("random", {"keep": -0.1}),
        ("knockoffs", {"keep": 0.0}),
        ("knockoffs", {"level": 0.0}),
        ("knockoffs", {"level": 1.0}),
        ("knockoffs", {"least_keep": 1.0}),
        ("noise_model", {"max_error_probability": 0.0}),
        ("noise_model", {"max_error_probability": 1.1}),
        ("noise_model", {"min_correct_kept": -0.1}),
        ("noise_model", {"min_correct_kept": 1.1}),
    ],
)
def test_a_value_out_of_range_is_named(name, option):
    ((option_name, value),) = option.items()
    with pytest.raises(ValueError, match=f"^{option_name} is {re.escape(repr(value))}; expected "):
        build(RULES, {"name": name, **option})


@pytest.mark.parametrize(
    "options",
    [
        {"name": "auto"},
        {"name": "share", "within": "group"},
        {"name": "share", "ties": "none"},
        {"name": "share", "penalty": "l2"},
        {"name": "path", "penalty": "l2"},
        {"name": "knockoffs", "penalty": "l2"},
        {"name": "knockoffs", "rivals": "likely"},
        {"name": "knockoffs", "fallback": "all"},
    ],
)
def test_an_unknown_choice_is_named(options):
    *_, value = options.values()
    with pytest.raises(ValueError, match=f"Unknown name '{value}'"):
        build(RULES, options)


# A share


BY_PIECE, BY_CLASS = {"within": "piece"}, {"within": "class"}
WHOLE_DATA = {"per_class": 0}


@pytest.mark.parametrize(
    "options", [WHOLE_DATA, pytest.param(BY_PIECE, marks=slow), pytest.param(BY_CLASS, marks=slow)]
)
def test_share_keeps_correct_labels(options):
    chosen = choose("share", pca_dim=6, **options)
    assert IS_CORRECT.mean() < 0.65 and precision(chosen) > 0.8
    assert 0.45 < chosen.clean.mean() < 0.65


@pytest.mark.parametrize("options", [WHOLE_DATA, pytest.param(BY_CLASS, marks=slow)])
def test_share_of_each_class_is_as_asked(options):
    """Whole data is one piece, so that its share is that of the class."""
    chosen = choose("share", pca_dim=6, keep=0.3, **options)
    np.testing.assert_array_equal(kept_of_class(chosen), np.floor(0.3 * SIZES + 1e-3))
    assert_keeps_the_least_suspect(chosen)


@slow
def test_share_within_pieces_is_kept_of_each_piece():
    """Pieces of ten per class keep three; smaller classes are over-sampled, and keep more."""
    chosen = choose("share", pca_dim=6, keep=0.3)
    pieces = -(-SIZES.max() // 10)
    assert (kept_of_class(chosen) >= np.floor(0.3 * SIZES)).all()
    assert (kept_of_class(chosen) <= 3 * pieces).all()
    assert kept_of_class(chosen)[SIZES.argmin()] > 0.3 * SIZES.min()


# The noise model


def fix_noise(monkeypatch, rate, wrong=None):
    """Let the noise model say this: rates of all and of each class, errors of each example."""
    noise = SimpleNamespace(rate=jnp.asarray(rate), wrong=wrong, confusion=jnp.eye(len(rate) - 1))
    monkeypatch.setattr("spr_jax.methods.selection_rules.label_noise", lambda *_, **__: noise)


def test_noise_model_keeps_small_error_probabilities_and_the_surest_of_each_class(monkeypatch):
    wrong = np.where(GIVEN == 0, 0.5, 0.0) + np.linspace(0.01, 0.4, len(GIVEN))
    fix_noise(monkeypatch, [0.3, 0.8, 0.2, 0.2, 0.2], jnp.asarray(wrong))
    chosen = choose("noise_model", max_error_probability=0.3, min_correct_kept=0.5)
    surest = GIVEN == 0  # none of them is below 0.3
    surest[np.flatnonzero(surest)[int(0.5 * 0.2 * SIZES[0] + 1e-3) :]] = False
    np.testing.assert_array_equal(chosen.clean, (wrong < 0.3) | surest)
    np.testing.assert_allclose(chosen.suspicion, wrong)
    assert chosen.numbers == {
        "estimated_noise": pytest.approx(0.3),
        "expected_wrong_in_clean": pytest.approx(wrong[chosen.clean].mean()),
    }


@slow
def test_noise_model_keeps_what_is_probably_correct():
    chosen = choose("noise_model", pca_dim=6)
    assert precision(chosen) > 0.9 and chosen.clean[IS_CORRECT].mean() > 0.8
    estimated, expected = (
        chosen.numbers[name] for name in ("estimated_noise", "expected_wrong_in_clean")
    )
    assert estimated == pytest.approx(1 - IS_CORRECT.mean(), abs=0.08)
    assert expected == pytest.approx(1 - precision(chosen), abs=0.06)


@slow
@pytest.mark.parametrize("features", [FEATURES, POOR], ids=["good", "poor"])
def test_noise_model_keeps_a_fraction_of_what_is_probably_correct(features):
    few, most, all_correct = (
        choose(
            "noise_model", features, pca_dim=6, max_error_probability=1e-6, min_correct_kept=share
        )
        for share in (0.0, 0.5, 1.0)
    )
    wrong = np.bincount(GIVEN, few.suspicion) / SIZES  # suspicion: probability of an error
    for share, chosen in ((0.5, most), (1, all_correct)):
        assert (abs(kept_of_class(chosen) - share * (1 - wrong) * SIZES) <= 1).all()
        assert_keeps_the_least_suspect(chosen)
    assert (few.clean <= most.clean).all() and (most.clean <= all_correct.clean).all()


@slow
def test_good_features_need_no_least_fraction():
    without, by_default = (
        choose("noise_model", pca_dim=6, **options).clean
        for options in ({"min_correct_kept": 0.0}, {})
    )
    assert (without == by_default).mean() > 0.99


# The whole-data path


def whole_data_entry(**options):
    plan, options = plan_pieces(GIVEN), Options(pca_dim=6, intercept=True, **options)
    return clean_set(FEATURES, GIVEN, KEY, plan=plan, options=options).entry_penalty


def test_path_keeps_the_correct_share_of_each_class_and_at_least_one(monkeypatch):
    fix_noise(monkeypatch, [0.5, 0.0, 0.251, 0.999, 1.0])
    chosen = choose("path", pca_dim=6)
    expected = [SIZES[0], np.floor(0.749 * SIZES[1]), 1, 1]
    np.testing.assert_array_equal(kept_of_class(chosen), expected)
    assert chosen.numbers == {"estimated_noise": 0.5}
    assert_keeps_the_least_suspect(chosen, [1, 2, 3])


@slow
@pytest.mark.parametrize("options", [{}, {"penalty": "l1", "num_penalties": 40}])
def test_path_ranks_by_the_entry_of_the_whole_data(options):
    chosen = choose("path", pca_dim=6, **options)
    np.testing.assert_allclose(chosen.suspicion, whole_data_entry(**options), rtol=1e-4)
    assert_keeps_the_least_suspect(chosen)
    assert precision(chosen) > 0.85


@slow
def test_path_keeps_the_share_of_each_class_that_the_noise_model_calls_correct():
    noise = label_noise(FEATURES, GIVEN, num_classes=4, pca_dim=6, intervals=False, lift=False)
    rates, chosen = np.asarray(noise.rate), choose("path", pca_dim=6)
    assert chosen.numbers == {"estimated_noise": pytest.approx(rates[0], abs=1e-6)}
    expected = np.floor((1 - rates[1:]) * SIZES + 1e-3)
    np.testing.assert_array_equal(kept_of_class(chosen), np.maximum(expected, 1))


# Knockoffs

WHOLE = {"pca_dim": 6, "per_class": 0, "intercept": True}


def test_knockoffs_keep_what_the_level_allows_and_a_least_share(monkeypatch):
    entry, allowed = jnp.linspace(0.1, 1, len(GIVEN)), np.arange(len(GIVEN)) % 7 == 0
    asked = {}

    def knockoff_set(features, labels, key, clean, keep, level, *, trial, **how):
        asked.update(trial._asdict(), level=level)
        return SimpleNamespace(clean=jnp.asarray(allowed), attained=jnp.array([1.0, 0, 0, 0]))

    rules = "spr_jax.methods.selection_rules"
    monkeypatch.setattr(f"{rules}.clean_set", lambda *_, **__: SimpleNamespace(entry_penalty=entry))
    monkeypatch.setattr(f"{rules}.knockoff_set", knockoff_set)
    options = {"rivals": "confident", "fallback": "none", "keep": 0.4, "scale_level": True}
    chosen = choose("knockoffs", level=0.2, least_keep=0.1, **options)
    least = np.zeros(len(GIVEN), bool)
    for label in range(4):
        least[np.flatnonzero(GIVEN == label)[: int(0.1 * SIZES[label] + 1e-3)]] = True
    np.testing.assert_array_equal(chosen.clean, allowed | least)
    np.testing.assert_allclose(chosen.suspicion, entry)
    assert chosen.numbers == {"classes_attained": 0.25}
    assert (asked["level"], asked["knockoffs"], asked["fallback"]) == (0.2, "confident", "none")
    assert asked["share"] == 0.4 and asked["scale_level"]


@slow
def test_knockoffs_keep_a_level_or_fall_back():
    rule = {"least_keep": 0.05, **WHOLE}
    kept = choose("knockoffs", level=0.3, **rule)
    assert precision(kept) > 0.7 and kept.numbers["classes_attained"] > 0
    none, share = (
        choose("knockoffs", level=1e-6, fallback=name, **rule) for name in ("none", "share")
    )
    assert none.numbers == share.numbers == {"classes_attained": 0}
    assert none.clean.mean() < 0.06 and share.clean.mean() > 0.3


@slow
def test_knockoffs_leave_a_least_share_of_poor_features():
    chosen = choose("knockoffs", POOR, least_keep=0.2, fallback="none", level=0.01, **WHOLE)
    shares = kept_of_class(chosen) / SIZES
    assert (shares > 0.18).all() and shares.mean() < 0.5


# Ablations


def test_all_keeps_every_label():
    chosen = choose("all")
    assert chosen.clean.all() and chosen.suspicion is None


def test_random_keeps_a_share_of_any_labels():
    chosen = choose("random", keep=0.3)
    assert chosen.clean.mean() == pytest.approx(0.3, abs=0.07) and chosen.suspicion is None
    assert precision(chosen) == pytest.approx(IS_CORRECT.mean(), abs=0.12)
