"""Methods of several stages: schedules, memory, fresh networks, resuming between two of them."""

import jax.numpy as jnp
import numpy as np
import pytest
from run_folders import assert_identical, found_in

from spr_jax.devices import replicate
from spr_jax.io.signals import Stopped
from spr_jax.methods import METHODS, Stage
from spr_jax.training import build, loop
from spr_jax.training.checkpoint import Checkpoints
from spr_jax.training.epoch import Progress
from spr_jax.training.log import read_rows

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
        Stage(looking, epochs=1, learning_rate=0.003),
        Stage(plain, restart=True),
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
    np.testing.assert_allclose(rates, [rate, 0.75 * rate, 0.003, rate, 0.5 * rate], rtol=1e-5)
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
