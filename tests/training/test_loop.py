"""A run within this process: resuming, diverging, stopping early, and what it leaves behind."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_folders import assert_identical, found_in
from tiny_run import color_dataset

from configs import cifar10_fast, digits_sym
from spr_jax.io.signals import Stopped
from spr_jax.methods import METHODS
from spr_jax.training import loop
from spr_jax.training.build import init_state, make_run
from spr_jax.training.checkpoint import Checkpoints
from spr_jax.training.config import resolve
from spr_jax.training.log import read_rows

QUIET = {"report": lambda line: None}


def never(*_, **__):
    raise AssertionError("This must not be called.")


def test_a_run_stopped_in_an_epoch_and_between_two_resumes_exactly(small, tmp_path):
    """By a checkpoint in the middle of an epoch, and without one since its beginning."""
    loop.train(small, tmp_path / "whole", **QUIET)
    with pytest.raises(Stopped):
        loop.train(small, tmp_path / "broken", should_stop=lambda step: step == 2, **QUIET)
    assert not (tmp_path / "broken" / "metrics.jsonl").read_text()

    def crash(step):
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.train(small, tmp_path / "broken", should_stop=crash, **QUIET)
    loop.train(small, tmp_path / "broken", **QUIET)
    assert_identical(found_in(tmp_path / "broken"), found_in(tmp_path / "whole"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["divide_mix", "sop", "spr_plus", "ssr"])
def test_what_a_method_keeps_is_there_after_a_resume(small, name, tmp_path):
    """Peers, terms of examples, labels, and heads next to the network."""
    config = digits_sym.get_config(name)
    config.update(epochs=3, batch_size=512, ema=0.5)
    config.method.update({"warmup": 1} if name == "divide_mix" else {})
    resolve(config)
    loop.train(config, tmp_path / "whole", **QUIET)
    for step in (2, 4):
        with pytest.raises(Stopped):
            stop = lambda now, step=step: now == step  # noqa: E731
            loop.train(config, tmp_path / "broken", should_stop=stop, **QUIET)
    loop.train(config, tmp_path / "broken", **QUIET)
    assert_identical(found_in(tmp_path / "broken"), found_in(tmp_path / "whole"))


def test_options_of_fast_training_resume_exactly(tmp_path):
    """The rate changes by step, flips alternate by epoch, the first layer is frozen."""
    config, dataset = cifar10_fast.get_config("ce"), color_dataset()
    config.update(epochs=2, batch_size=8, eval_batch_size=8, tta="mirror_shift")
    config.backbone.widths, config.optimizer.warmup_epochs = (4, 4, 4), 0.5
    config.optimizer.decoupled_decay = True
    resolve(config)
    with jax.enable_x64(False):
        loop.train(config, tmp_path / "whole", dataset=dataset, **QUIET)
        with pytest.raises(Stopped):
            stop = lambda step: step == 4  # noqa: E731
            loop.train(config, tmp_path / "broken", dataset=dataset, should_stop=stop, **QUIET)
        loop.train(config, tmp_path / "broken", dataset=dataset, **QUIET)
        whole, begun = found_in(tmp_path / "whole"), init_state(config, make_run(config, dataset))
        assert_identical(found_in(tmp_path / "broken"), whole)
        network = loop.last_network(config, tmp_path / "broken", dataset=dataset)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),  # of an average
        network.constants,
        begun.networks[0].constants,
    )


def test_a_finished_run_is_neither_trained_nor_restored(small, tmp_path, monkeypatch):
    small.epochs, lines = 1, []
    summary = loop.train(small, tmp_path, **QUIET)
    for name in ("make_run", "Checkpoints", "restore", "begin"):
        monkeypatch.setattr(loop, name, never)
    assert loop.train(small, tmp_path, report=lines.append) == summary
    assert len(lines) == 1 and "finished" in lines[0]


def test_not_a_number_leaves_the_last_good_checkpoint(small, tmp_path, monkeypatch):
    method = METHODS["ce"]()

    def poisoned(networks, batch, memory, key):
        loss, rest = method.steps[0](networks, batch, memory, key)
        return jnp.where(batch.epoch == 1, jnp.nan, 1) * loss, rest

    monkeypatch.setitem(METHODS, "ce", lambda: method._replace(steps=(poisoned,)))
    with pytest.raises(FloatingPointError, match="loss is nan in step 1 of epoch 2"):
        loop.train(small, tmp_path, **QUIET)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.latest()["epoch"] == 1 and checkpoints.manager.all_steps() == [3]
    checkpoints.close()
    assert [row["epoch"] for row in read_rows(tmp_path / "metrics.jsonl")] == [0]


def test_weights_that_are_not_numbers_are_not_saved(small, tmp_path):
    small.batch_size, small.optimizer.learning_rate = 2048, 1e30  # an epoch is one step
    with pytest.raises(FloatingPointError, match="norm of the weights is inf in step 1 of epoch 1"):
        loop.train(small, tmp_path, **QUIET)
    assert not [*(tmp_path / "checkpoints").iterdir()]


def test_a_summary_says_how_its_epochs_were_chosen(small, tmp_path):
    small.epochs, lines = 3, []
    summary = loop.train(small, tmp_path, report=lines.append)
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    assert lines[0].startswith("Label noise: symmetric")
    assert summary["epochs"] == len(lines[1:]) == 3 and summary["last"] == rows[-1]
    best = {name: max(rows, key=lambda row: row[name]) for name in ("validation_top1", "test_top1")}
    assert summary["best_on_validation"] == best["validation_top1"]
    epoch, top1 = best["test_top1"]["epoch"], best["test_top1"]["test_top1"]
    assert summary["best_on_test"] == {"test_top1": {"epoch": epoch, "test_top1": top1}}
    assert summary["seconds_train"] == pytest.approx(sum(row["seconds_train"] for row in rows))


@pytest.mark.slow
def test_patience_ends_a_run_that_gets_no_better(small, tmp_path):
    small.update(epochs=9, patience=2, optimizer={"learning_rate": 0.0}, ema=0.0)
    summary = loop.train(small, tmp_path, **QUIET)
    # Without steps the accuracy changes only as the statistics of the batches settle.
    accuracies = [row["validation_top1"] for row in read_rows(tmp_path / "metrics.jsonl")]
    assert len(accuracies) < 9 and np.argmax(accuracies) == len(accuracies) - 3
    assert summary["best_on_validation"]["epoch"] == len(accuracies) - 3


@pytest.mark.slow
def test_devices_with_statistics_of_their_own_train_differently_but_well(small, tmp_path):
    small.batch_size = 64
    shared = loop.train(small, tmp_path / "shared", **QUIET)
    small.sync_batch_stats = False
    own = loop.train(small, tmp_path / "own", **QUIET)
    assert abs(own["last"]["loss"] - shared["last"]["loss"]) > 1e-4
    assert own["last"]["test_top1"] == pytest.approx(shared["last"]["test_top1"], abs=0.1)
    assert own["last"]["test_top1"] > 0.7 and shared["last"]["test_top1"] > 0.7


def test_the_last_network_is_the_one_of_the_checkpoint(small, tmp_path):
    """The running average, if there is one; also in the middle of an epoch."""
    run = make_run(small)
    untrained = jax.device_get(init_state(small, run).networks[0].params)
    for last in (2, 6):
        stop = {"should_stop": lambda step, last=last: step == last < 6}
        try:
            loop.train(small, tmp_path, **stop, **QUIET)
        except Stopped:
            assert last == 2
        checkpoints = Checkpoints(tmp_path / "checkpoints")
        saved = checkpoints.restore({"state": init_state(small, run)})["state"]
        checkpoints.close()
        assert saved.step == last
        found = loop.last_network(small, tmp_path)
        for leaf, expected, first in zip(
            *map(jax.tree.leaves, (found.params, saved.average[0].params, untrained)), strict=True
        ):
            np.testing.assert_array_equal(leaf, expected)
            assert (np.asarray(leaf) != first).any()


def test_there_is_no_last_network_before_a_checkpoint(small, tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path / 'nothing'} holds no checkpoint"):
        loop.last_network(small, tmp_path / "nothing")
    assert not [*tmp_path.iterdir()]  # a run can still begin there

    def crash(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.train(small, tmp_path / "begun", should_stop=crash, **QUIET)
    with pytest.raises(ValueError, match="holds no checkpoint"):
        loop.last_network(small, tmp_path / "begun")


def test_the_last_network_needs_nothing_of_the_memory(small, tmp_path, monkeypatch):
    """As in a checkpoint of an earlier version, which remembered something else."""
    small.epochs = 1
    loop.train(small, tmp_path, **QUIET)
    expected = loop.last_network(small, tmp_path)
    remembering = METHODS["ce"]()._replace(init=lambda labels, num_classes: {"seen": labels})
    monkeypatch.setitem(METHODS, "ce", lambda: remembering)
    found = loop.last_network(small, tmp_path)
    for leaf, same in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(leaf, same)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    with pytest.raises(ValueError, match="nothing at .*seen"):  # a run does need it
        loop.restore(small, make_run(small), checkpoints)
    checkpoints.close()


def test_what_is_predicted_beside_is_logged_beside(small, tmp_path, monkeypatch):
    """In the row of metrics; it chooses no best epoch and is not in the printed line."""
    method = METHODS["ce"]()
    worse = {"of_nothing": lambda networks, memory, images: jnp.zeros((len(images), 10))}
    monkeypatch.setitem(METHODS, "ce", lambda: method._replace(predict_beside=worse))
    small.epochs, lines = 1, []
    summary = loop.train(small, tmp_path, report=lines.append)
    (row,) = read_rows(tmp_path / "metrics.jsonl")
    tests, validation = row["test_top1_of_nothing"], row["validation_top1_of_nothing"]
    assert 0.05 < tests < 0.15 and 0.05 < validation < 0.15 and tests < row["test_top1"]
    assert set(summary["best_on_test"]) == {"test_top1"} and "of_nothing" not in lines[-1]
