"""`start`, the one entrance to training, as a library calls it."""

import contextlib
import json
import signal

import numpy as np
import pytest
from absl import flags
from fakes import Small

import spr_jax.training.loop
from spr_jax.backbones import BACKBONES
from spr_jax.datasets import DATASETS
from spr_jax.methods import METHODS
from spr_jax.training import Stopped, build, start, workdir
from spr_jax.training.base_config import get_config
from spr_jax.training.loop import last_network
from spr_jax.types import Dataset, Split


def make_dataset(count=48):
    """Images of three classes that differ in brightness; no registry knows them."""
    generator = np.random.default_rng(0)
    labels = np.arange(count, dtype=np.int32) % 3
    pixels = 40 + 80 * labels[:, None, None, None] + generator.integers(-30, 30, (count, 4, 4, 1))
    split = Split(pixels.astype(np.uint8), labels, labels)
    return Dataset("mine", split, {"test": split}, tuple("abc"), (0.5,), (0.5,), "none")


@pytest.fixture
def config(small):
    config = get_config("ce")
    with config.unlocked():
        config.dataset = {"name": "nowhere"}
    config.update(epochs=2, batch_size=16, eval_batch_size=16)
    config.optimizer.learning_rate = 0.3
    return config


def state_of_process():
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    registries = [dict(registry) for registry in (DATASETS, METHODS, BACKBONES)]
    return handlers, registries, set(flags.FLAGS), flags.FLAGS.is_parsed()


def test_a_data_set_at_hand_is_trained_on_and_the_process_stays_as_it_is(config, tmp_path):
    before, during, lines = state_of_process(), [], []

    def look(step):
        during.append(state_of_process())
        return False

    options = {"dataset": make_dataset(), "should_stop": look}
    summary = start(config, tmp_path / "run", report=lines.append, **options)
    assert summary["epochs"] == 2 and summary["last"]["test_top1"] > 0.6
    assert str(tmp_path / "run") in lines[0] and len(lines) == 2 + 2
    assert during == [before] * 6 and state_of_process() == before
    assert BACKBONES["c2f2"] is Small and config.dataset.name not in DATASETS
    network = last_network(config, tmp_path / "run", dataset=make_dataset())
    assert network.params["head"]["bias"].shape == (3,)


def test_a_run_that_was_stopped_resumes_by_the_same_call(config, tmp_path, monkeypatch):
    options = {"dataset": make_dataset(), "report": lambda line: None}
    with pytest.raises(Stopped):
        start(config, tmp_path, should_stop=lambda step: step == 2, **options)
    summary = start(config, tmp_path, **options)
    monkeypatch.setattr(spr_jax.training.loop, "make_run", None)  # a finished run needs none
    assert start(config, tmp_path, **options) == summary
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    config.seed = 1
    with pytest.raises(ValueError, match="seed=0, and this one has 1"):
        start(config, tmp_path, **options)


def test_mistakes_are_named_before_anything_is_written(config, tmp_path):
    with pytest.raises(ValueError, match="dataset.name is 'nowhere'"):
        start(config, tmp_path / "run")
    config.epochs = 0
    with pytest.raises(ValueError, match="epochs is 0"):
        start(config, tmp_path / "run", dataset=make_dataset())
    assert not [*tmp_path.iterdir()]


def test_a_process_may_see_the_files_that_the_first_one_is_writing(config, tmp_path, monkeypatch):
    """They are no other run's; the config appears while the folder is being looked at."""

    def look(folder):
        (folder / "config.json").write_text("{}")
        return folder

    monkeypatch.setattr(workdir, "check_folder", look)
    with workdir.claim(tmp_path, config, writes=False):
        pass


def test_data_is_loaded_by_the_first_process_first(config, monkeypatch):
    happened = []

    @contextlib.contextmanager
    def in_turn(what):
        happened.append("waited")
        yield
        happened.append("let go")

    def load():
        happened.append("loaded")
        return make_dataset()

    monkeypatch.setattr(build, "first_process_first", in_turn)
    monkeypatch.setitem(DATASETS, "nowhere", load)
    build.make_run(config)
    assert happened == ["waited", "loaded", "let go"]


def test_the_address_of_a_bucket_is_no_folder(config):
    with pytest.raises(ValueError, match="workdir is gs:/pail/run.*mount the bucket"):
        start(config, "gs://pail/run", dataset=make_dataset())
