"""SPR+: which labels it trusts, by the network's features or by the inputs."""

import numpy as np
import pytest
from fakes import revise

from spr_jax.methods.spr_plus import spr_plus

C, N = 3, 120
TRUE = np.arange(N) % C
GIVEN = np.where(np.arange(N) < 30, (TRUE + 1) % C, TRUE)
WRONG = GIVEN != TRUE
FEATURES = 4 * np.eye(C)[TRUE] + 0.3 * np.random.default_rng(0).standard_normal((N, C))
UNSURE, SURE = np.zeros((N, C)), 9.0 * np.eye(C)[TRUE]


def after_epoch(method, logits, memory=None, number=0, **options):
    record = {"features": FEATURES, "logits": logits}
    memory = method.init(GIVEN, C) if memory is None else memory
    scan = lambda: {"logits": logits}  # noqa: E731
    return revise(method, memory, record, GIVEN, number=number, scan=scan, **options)


@pytest.mark.parametrize("judge_by", ["network", "inputs"])
def test_labels_that_features_explain_are_learned_from(judge_by):
    memory = after_epoch(spr_plus(judge_by=judge_by), UNSURE)
    np.testing.assert_array_equal(memory["clean"], ~WRONG)
    np.testing.assert_array_equal(memory["weights"] > 0, ~WRONG)
    np.testing.assert_array_equal(memory["labels"], GIVEN)
    assert memory["suspicion"][WRONG].min() > memory["suspicion"][~WRONG].max()
    assert memory["selection"]["estimated_noise"] == pytest.approx(0.25, abs=0.05)
    size = np.bincount(GIVEN, weights=memory["weights"])
    np.testing.assert_allclose(size, size.mean(), rtol=1e-5)


@pytest.mark.parametrize("judge_by", ["network", "inputs"])
def test_sure_predictions_turn_wrong_labels_into_examples(judge_by):
    memory = after_epoch(spr_plus(judge_by=judge_by), SURE)
    np.testing.assert_array_equal(memory["labels"], TRUE)
    assert (memory["weights"] > 0).mean() > 0.95
    assert memory["selection"]["relabeled"] == pytest.approx(0.25)
    assert not memory["clean"][WRONG].any()  # that is said of the given labels
    assert memory["suspicion"][WRONG].min() >= memory["suspicion"][~WRONG].max()


def test_inputs_are_judged_once_and_labels_start_from_the_given_ones():
    method = spr_plus(judge_by="inputs", weights="probability", balance=False)
    first = after_epoch(method, UNSURE)
    np.testing.assert_allclose(first["weights"], 1 - first["suspicion"], rtol=1e-6)
    sure = after_epoch(method, SURE, first, number=1)
    np.testing.assert_array_equal(sure["weights"], 1)
    again = after_epoch(method, UNSURE, sure, number=2)
    for name in ("labels", "weights", "trust", "suspicion"):
        np.testing.assert_array_equal(again[name], first[name])
    assert method.record_from == "inputs" and spr_plus().record_from == "scan"


def test_any_rule_selects():
    for rule in ("all", "share"):
        memory = after_epoch(spr_plus(select={"name": rule}), UNSURE, skipped=[7])
        assert memory["weights"][7] == 0
        assert (memory["weights"] > 0).sum() == (
            N - 1 if rule == "all" else pytest.approx(60, abs=3)
        )


def test_a_rule_without_probabilities_is_refused_as_weights():
    with pytest.raises(ValueError, match="weights is 'probability'; expected 'hard' with the rule"):
        spr_plus(weights="probability", select={"name": "share"})


def test_without_its_parts_it_is_training_on_the_clean_set():
    options = {"mixup": 0.0, "consistency": 0.0, "relabel_above": 1.0, "balance": False}
    method = spr_plus(strong="none", **options)
    assert method.extra is None and set(method.on_top) == {"none"}
    memory = after_epoch(method, SURE)
    np.testing.assert_array_equal(memory["weights"], ~WRONG)
    np.testing.assert_array_equal(memory["labels"], GIVEN)
