"""Methods of several stages: schedules, memory, fresh networks, resuming between two of them."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_folders import assert_identical, found_in

from spr_jax.devices import replicate
from spr_jax.io.signals import Stopped
from spr_jax.methods import METHODS, Stage
from spr_jax.training import build, loop
from spr_jax.training.checkpoint import Checkpoints
from spr_jax.training.config import resolve
from spr_jax.training.epoch import Progress
from spr_jax.training.log import read_rows
from spr_jax.training.stages import schedule_stages

QUIET = {"report": lambda line: None}


def staged():
    """Plain training; a look at the labels with a rate of its own; fresh networks for the rest."""
    plain = METHODS["ce"]()

    def init(name):
        def init(labels, num_classes):
            return {name: jnp.zeros(len(labels), jnp.float32), "clean": jnp.asarray(labels) > 2}

        return init

    def count(memory, epoch, key):
        return memory | {"seen": memory["seen"] + 1}

    def recorded(networks, batch, memory, key):
        loss, (networks, _) = plain.steps[0](networks, batch, memory, key)
        return loss, (networks, {"labels": batch.labels})

    def keep(memory, epoch, key):
        labels = np.asarray(epoch.record["labels"], np.float32)
        np.testing.assert_array_equal(labels, epoch.labels)
        return memory | {"labels": memory["seen"] + labels}

    looking = plain._replace(init=init("labels"), steps=(recorded,), revise=keep)
    return (
        Stage(plain._replace(init=init("seen"), revise=count), epochs=2),
        Stage(looking, epochs=1, schedule=lambda done, usual: 0.003),
        Stage(plain, restart="fresh"),
    )


@pytest.fixture
def config(small, monkeypatch):
    monkeypatch.setitem(METHODS, "staged", staged)
    with small.unlocked():
        small.method, small.epochs = {"name": "staged"}, 5
    return small


@pytest.mark.slow
def test_stages_follow_each_other_and_resume_exactly(config, tmp_path):
    loop.train(config, tmp_path / "whole", **QUIET)

    def stop(step):  # 3 per epoch; without saving, at the beginning of stages
        if step in lost:
            lost.remove(step)
            raise Stopped
        return step in (2, 8, 11)

    lost = [7, 10]
    for _ in range(5):
        with pytest.raises(Stopped):
            loop.train(config, tmp_path / "broken", should_stop=stop, **QUIET)
    loop.train(config, tmp_path / "broken", **QUIET)
    assert not lost
    whole = found_in(tmp_path / "whole")
    assert_identical(found_in(tmp_path / "broken"), whole)
    rates = [row["learning_rate"] for row in read_rows(tmp_path / "whole" / "metrics.jsonl")]
    rate = config.optimizer.learning_rate
    np.testing.assert_allclose(rates, [rate, 0.5 * rate, 0.003, rate, 0.5 * rate], rtol=1e-5)
    losses = [row["loss"] for row in read_rows(tmp_path / "whole" / "metrics.jsonl")]
    assert losses[3] > losses[1]  # fresh
    checkpoints = Checkpoints(tmp_path / "whole" / "checkpoints")
    assert checkpoints.latest()["epoch"] == 5
    checkpoints.close()


def test_stages_hand_their_memory_on(config):
    run = build.make_run(config)
    memory = {"seen": np.full(5, 2.0)}
    state = replicate(build.init_state(config, run))
    progress = Progress(2, state, memory, {}, {})
    entered = loop.enter_stage(config, run, progress)
    np.testing.assert_array_equal(entered.memory["seen"], memory["seen"])
    assert not entered.memory["labels"].any() and "labels" in entered.buffers
    assert entered.state is state
    assert loop.enter_stage(config, run, entered._replace(epoch=3)).state is not state


def test_a_stage_that_was_entered_is_not_entered_again(config):
    run = build.make_run(config)
    for epoch, losses in ((0, ()), (2, (np.float32(1),)), (4, ())):
        progress = Progress(epoch, None, {"seen": 3}, {}, {}, losses)
        assert loop.enter_stage(config, run, progress) is progress


def test_stages_longer_than_the_run_are_named(config):
    config.epochs = 3
    with pytest.raises(ValueError, match="2 stages of staged take 3 epochs and the run has 3"):
        build.make_run(config)


def rates_of(experiment, method):
    """Learning rate at the beginning of every epoch, as it is run."""
    config = importlib.import_module(f"configs.{experiment}").get_config(method)
    resolve(config)
    stages = schedule_stages(config, METHODS[method](**options_in(config)), 10)
    found = []
    for epoch in range(config.epochs):
        stage = [stage for stage in stages if stage.first <= epoch][-1]
        found.append(float(stage.schedule((epoch - stage.optimizer_since) * 10)))
    return np.array(found)


def options_in(config):
    return {name: value for name, value in config.method.items() if name != "name"}


def test_pencil_learns_labels_at_a_constant_rate():
    """As its authors train on CIFAR-10."""
    rates = rates_of("cifar10_sym", "pencil")
    expected = np.repeat([0.06, 0.2, 0.02, 0.002], [200, 40, 40, 40])
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


def test_nct_ends_its_first_stage_before_the_networks_teach():
    rates = rates_of("animal10n", "nct")
    assert rates[0] == pytest.approx(0.1) and rates[99] < 1e-4
    assert (np.diff(rates[:100]) < 0).all()
    np.testing.assert_allclose(rates[100:], np.repeat([0.004, 0.0008], [5, 25]), rtol=1e-5)


def test_the_runs_schedule_spans_stages_between_those_with_their_own(config):
    plain = METHODS["ce"]()
    stages = (
        Stage(plain, 2),
        Stage(plain, 2),
        Stage(plain, 1, schedule=lambda done, usual: usual / 7),
        Stage(plain, 2),
        Stage(plain, 2, fresh_optimizer=True),
    )
    config.epochs, config.optimizer.learning_rate = 10, 1.0
    scheduled = schedule_stages(config, stages, 3)
    rates = []
    for epoch in range(10):
        stage = [stage for stage in scheduled if stage.first <= epoch][-1]
        steps = 3 * (epoch - stage.optimizer_since) + np.arange(3)
        rates.append([float(stage.schedule(step)) for step in steps])
    cosine = lambda epochs: 0.5 * (1 + np.cos(np.pi * np.arange(epochs) / epochs))  # noqa: E731
    expected = np.concatenate([cosine(4), [1 / 7], cosine(2), cosine(3)])
    np.testing.assert_allclose(rates, np.repeat(expected[:, None], 3, 1), rtol=1e-5, atol=1e-7)
    assert [stage.optimizer_since for stage in scheduled] == [0, 0, 0, 0, 7]


@pytest.mark.parametrize("how", ["fresh", "same", ""])
def test_a_stage_restarts_as_it_says(config, how, monkeypatch):
    """With other networks, with those of the beginning, or with a fresh optimizer alone."""
    plain = METHODS["ce"]()
    stages = (Stage(plain, 1), Stage(plain, restart=how, fresh_optimizer=True))
    monkeypatch.setitem(METHODS, "staged", lambda: stages)
    run = build.make_run(config)
    begun = loop.begin(config, run)
    moved = jax.tree.map(lambda leaf: leaf + 1, begun.state)
    entered = loop.enter_stage(config, run, begun._replace(epoch=1, state=moved)).state
    moments = jax.tree.leaves(entered.opt_states)
    assert all(not np.asarray(leaf).any() for leaf in moments) and moments

    def kernel(state):
        return np.asarray(state.networks[0].params["head"]["kernel"])

    assert np.array_equal(kernel(entered), kernel(begun.state)) == (how == "same")
    assert np.array_equal(kernel(entered), kernel(moved)) == (how == "")
    restored = build.init_state(config, run, 1).networks[0].params["head"]["kernel"]
    assert np.array_equal(restored, kernel(begun.state)[0]) == (how == "same")


def test_an_unknown_restart_is_named(config):
    with pytest.raises(ValueError, match="'sam'; did you mean 'same'"):
        schedule_stages(config, (Stage(METHODS["ce"](), 1), Stage(METHODS["ce"](), 0, "sam")), 3)
