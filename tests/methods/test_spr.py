"""SPR as a method: which step it takes, and what it remembers after an epoch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_data
from fakes import make_batch, make_linear, revise, take_step

from spr_jax.methods.selection_rules import RULES
from spr_jax.methods.spr import spr
from spr_jax.registry import options_of
from spr_jax.solver import CleanSet, Options

SHARE = {"name": "share", "pca_dim": 6}
WHOLE = SHARE | {"per_class": 0}

# Which step


@pytest.mark.parametrize("cutmix", [0.0, 0.2, 0.5, 1.0])
def test_second_step_is_chosen_after_the_first_epoch_where_the_draw_is_below_cutmix(cutmix):
    choose = spr(cutmix=cutmix).choose_step
    draws = [step / 1000 for step in range(1000)]
    for epoch in (0, 1, 7):
        assert [choose(epoch, draw) for draw in draws] == [
            int(epoch > 0 and draw < cutmix) for draw in draws
        ]
    assert np.mean([choose(1, draw) for draw in draws]) == cutmix


@pytest.mark.parametrize("cutmix", [0.5, 1.0])
def test_first_epoch_is_supervised(cutmix):
    method, images = spr(cutmix=cutmix), np.ones((4, 2, 2, 1))
    assert method.choose_step(0, 0.0) == 0
    batch = make_batch(images, np.arange(4) % 2, images)
    step = take_step(method, (make_linear(2, images),), batch, kind=method.choose_step(0, 0.0))
    assert step.networks[0].batch_stats["passes"] == 1


def test_without_cutmix_there_is_one_step_and_one_view():
    assert len(spr(cutmix=0.0).steps) == spr(cutmix=0.0).num_views == 1
    assert len(spr(cutmix=0.1).steps) == spr(cutmix=0.1).num_views == 2


def test_log_shows_lambda():
    shown = spr(penalty_weight=1.5, penalty_growth=1.1).describe({}, 5)
    assert shown == {"sparse_weight": pytest.approx(1.5 * 1.1**5)}


def test_features_of_an_eval_pass_come_from_a_scan():
    assert spr().record_from == "train"
    assert spr(record_from="scan").record_from == "scan"


# After an epoch


def make_epoch():
    """Features in the order of the data, given and true labels, positions in visiting order."""
    features, given, true = make_data(rate=0.4)
    return features, given, true, np.random.default_rng(1).permutation(len(given))


def select(features, given, select=SHARE, memory=None, skipped=(), position=None, **options):
    """Memory after an epoch that recorded these features."""
    method = spr(select=select, **options)
    memory = method.init(given, 4) if memory is None else memory
    record = {"features": np.where(np.isin(np.arange(len(given)), skipped)[:, None], 0, features)}
    return revise(method, memory, record, given, skipped=skipped, position=position)


def precision(memory, given, true):
    return (given == true)[memory["clean"]].mean()


def test_clean_labels_are_right():
    features, given, true, _ = make_epoch()
    assert (given == true).mean() < 0.65
    memory = select(features, given)
    assert precision(memory, given, true) > 0.8
    assert 0.45 < memory["clean"].mean() < 0.65


def test_memory_before_the_first_revision_calls_all_clean():
    memory = spr(select={"name": "noise_model"}).init(np.arange(8) % 4, 4)
    assert memory["clean"].all() and not memory["suspicion"].any()
    assert memory["selection"] == {"estimated_noise": 0, "expected_wrong_in_clean": 0}


def test_a_rule_without_a_ranking_leaves_the_last_one():
    features, given, _, _ = make_epoch()
    memory = select(features, given)
    after = select(features, given, {"name": "all"}, memory)
    assert after["clean"].all()
    np.testing.assert_array_equal(after["suspicion"], memory["suspicion"])


@pytest.mark.slow
def test_clean_set_follows_the_order_of_the_data():
    features, given, _, _ = make_epoch()
    order = np.random.default_rng(7).permutation(len(given))
    straight = select(features, given, WHOLE)
    permuted = select(features[order], given[order], WHOLE)
    np.testing.assert_array_equal(permuted["clean"], straight["clean"][order])


def test_clean_set_does_not_depend_on_the_visiting_order():
    features, given, _, position = make_epoch()
    one, two = (select(features, given, position=each) for each in (position, position[::-1]))
    np.testing.assert_array_equal(one["clean"], two["clean"])


def test_examples_not_visited_are_not_clean():
    features, given, true, position = make_epoch()
    skipped = np.flatnonzero(position >= 360)
    found = select(features, given, skipped=skipped, position=position)
    assert not found["clean"][skipped].any()
    assert precision(found, given, true) > 0.8


def test_visit_order_defect_takes_positions_for_indices():
    features, given, true, position = make_epoch()
    right = select(features, given, position=position)
    wrong = select(features, given, position=position, visit_order_defect=True)
    for example, place in enumerate(position):
        assert wrong["clean"][place] == right["clean"][example]
    base_rate = (given == true).mean()  # so it marks examples at random
    assert abs(precision(wrong, given, true) - base_rate) < 0.1


def test_solver_is_given_the_last_clean_set_and_all_options(monkeypatch):
    given = {}

    def solve(features, labels, key, clean, keep, **static):
        given.update(static, labels=labels, clean=clean, keep=keep)
        return CleanSet(clean, *jnp.zeros(3))

    monkeypatch.setattr("spr_jax.methods.selection_rules.clean_set", solve)
    features, labels, _, _ = make_epoch()
    memory = jax.device_get(spr().init(labels, 4)) | {"clean": np.arange(400) % 3 == 0}
    options = {"pca_dim": 7, "intercept": True, "ties": "released", "num_penalties": 30}
    rule = {"name": "share", "keep": 0.4, "per_class": 5, "classes_per_group": 2}
    select(features, labels, rule | options | {"within": "class", "penalty": "l1"}, memory)
    np.testing.assert_array_equal(given["clean"], memory["clean"])
    np.testing.assert_array_equal(given["labels"], labels)
    assert given["keep"] == 0.4
    assert given["options"] == Options(**options, select="class", penalty="l1")
    assert (given["plan"].per_class, given["plan"].classes_per_group) == (5, 2)


# Options of the rule


def test_rule_of_the_paper_is_the_default():
    assert dict(options_of(spr)["select"]) == {"name": "share"}
    assert options_of(RULES["share"])["within"] == "piece"


@pytest.mark.parametrize(
    "rule, name",
    [
        ({"name": "noise_model", "level": 0.1}, "level"),
        ({"name": "share", "max_error_probability": 0.1}, "max_error_probability"),
        ({"name": "path", "keep": 0.5}, "keep"),
        ({"name": "all", "keep": 0.5}, "keep"),
    ],
)
def test_an_option_of_another_rule_is_refused(rule, name):
    with pytest.raises(ValueError, match=f"Unknown option '{name}'"):
        spr(select=rule)


# By the likelihood of the labels

BY_LIKELIHOOD = {"weights": "likelihood", "cutmix": 0.0, "penalty_weight": 0.0}
MODEL = {"name": "noise_model", "pca_dim": 6}


def test_the_likelihood_is_cross_entropy_of_all_labels_until_there_are_transitions():
    images, labels = np.random.default_rng(0).normal(size=(8, 2, 2, 1)), np.arange(8) % 4
    batch, networks = make_batch(images, labels), (make_linear(4, images),)
    found = take_step(spr(select=MODEL, **BY_LIKELIHOOD), networks, batch)
    log_p = jax.nn.log_softmax(networks[0].forward(batch.images, None)[0].logits)
    np.testing.assert_allclose(found.loss, -np.mean(log_p[np.arange(8), labels]), rtol=1e-6)


def test_transitions_are_those_of_the_noise_and_all_labels_count():
    features, given, true, _ = make_epoch()
    memory = select(features, given, MODEL, **BY_LIKELIHOOD)
    drawn = np.zeros((4, 4))
    np.add.at(drawn, (true, given), 1 / np.bincount(true)[true])
    np.testing.assert_allclose(memory["transition"].sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(memory["transition"], drawn, atol=0.08)
    assert not memory["clean"].all()

    images = features[:, None, None, :]
    batch, networks = make_batch(images, given), (make_linear(4, images),)
    found = take_step(spr(select=MODEL, **BY_LIKELIHOOD), networks, batch, memory)
    p = jax.nn.softmax(networks[0].forward(batch.images, None)[0].logits)
    likelihood = np.sum(p * memory["transition"].T[given], axis=1)
    np.testing.assert_allclose(found.loss, -np.mean(np.log(likelihood)), rtol=1e-5)


def test_a_class_without_labels_keeps_its_place_among_the_transitions():
    features, given, _, _ = make_epoch()
    method = spr(select=MODEL, **BY_LIKELIHOOD)
    memory = revise(method, method.init(given, 5), {"features": features}, given)
    np.testing.assert_allclose(memory["transition"][4], [0, 0, 0, 0, 1])
    assert memory["transition"][0, 0] < 0.9


def test_a_rule_that_does_not_model_the_noise_has_no_likelihood():
    with pytest.raises(ValueError, match="weights is 'likelihood'.*'share'"):
        spr(select=SHARE, **BY_LIKELIHOOD)
