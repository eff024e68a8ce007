"""Methods that return to the networks of the epoch before: which these are, and an exact resume."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.jax_utils import unreplicate
from run_folders import assert_identical, found_in

from spr_jax.io.signals import Stopped
from spr_jax.methods import METHODS, Stage
from spr_jax.training import build, loop
from spr_jax.training.epoch import data_on_devices
from spr_jax.training.step import make_program

QUIET = {"report": lambda line: None}
BACK_AFTER = 2  # epochs, counted from one


def returning():
    """Plain training that returns once."""

    def init(labels, num_classes):
        return {"epochs": jnp.int32(0)}

    def count(memory, epoch, key):
        return {"epochs": np.int32(memory["epochs"] + 1)}

    return METHODS["ce"]()._replace(
        init=init, revise=count, goes_back=lambda memory: memory["epochs"] == BACK_AFTER
    )


@pytest.fixture
def config(small, monkeypatch):
    monkeypatch.setitem(METHODS, "returning", returning)
    with small.unlocked():
        small.method, small.epochs = {"name": "returning"}, 3
    return small


def states(config, run):
    """The state at the beginning and after every epoch, on the host, and the rows of the log."""
    progress, data, stage = loop.begin(config, run), data_on_devices(run), None
    found, rows = [jax.device_get(unreplicate(progress.state))], []
    while progress.epoch < config.epochs:
        if stage is not run.stage_at(progress.epoch):
            stage = run.stage_at(progress.epoch)
            progress = loop.enter_stage(config, run, progress)
            program = make_program(run, stage)
        progress, row = loop.one_epoch(
            config, run, program, progress, data, lambda step: False, shown=False
        )
        found.append(jax.device_get(unreplicate(progress.state)))
        rows.append(row)
    return found, rows, progress


def assert_equal(first, second):
    jax.tree.map(np.testing.assert_array_equal, first, second)


def differ(first, second):
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return any((one != other).any() for one, other in pairs)


def test_networks_and_their_average_return_and_are_evaluated(config):
    found, rows, progress = states(config, build.make_run(config))
    assert_equal(found[2].networks, found[1].networks)
    assert_equal(found[2].average, found[1].average)
    assert differ(found[1].networks, found[0].networks)
    assert differ(found[3].networks, found[2].networks)
    assert found[2].step == 2 * found[1].step  # the optimizer goes on
    assert differ(found[2].opt_states, found[1].opt_states)
    assert rows[1]["test_top1"] == rows[0]["test_top1"]
    assert_equal(progress.earlier, (found[3].networks, found[3].average))


def test_a_stage_returns_to_the_networks_it_began_with(config, monkeypatch):
    monkeypatch.setattr(f"{__name__}.BACK_AFTER", 1)
    plain = METHODS["ce"]()
    monkeypatch.setitem(
        METHODS, "staged", lambda: (Stage(plain, 2), Stage(returning(), fresh_optimizer=True))
    )
    config.method.name = "staged"
    run = build.make_run(config)
    found, _, _ = states(config, run)
    assert differ(found[2].networks, found[1].networks)
    assert_equal(found[3].networks, found[2].networks)


def test_nothing_is_kept_for_other_methods(config):
    config.method.name = "ce"
    assert loop.begin(config, build.make_run(config)).earlier == ()


@pytest.mark.slow
def test_a_run_that_returns_resumes_exactly(config, tmp_path):
    """Stopped in every epoch, or lost at the first step of one, of three each."""
    loop.train(config, tmp_path / "whole", **QUIET)
    for name, saved, lost in (("within", [1, 5, 8], []), ("between", [2], [4, 7])):

        def stop(step, saved=saved, lost=lost):
            if step in lost:
                lost.remove(step)
                raise Stopped
            return step in saved

        for _ in saved + lost:
            with pytest.raises(Stopped):
                loop.train(config, tmp_path / name, should_stop=stop, **QUIET)
        loop.train(config, tmp_path / name, **QUIET)
        assert_identical(found_in(tmp_path / name), found_in(tmp_path / "whole"))
