"""The latest methods on digits with 40 % wrong labels: what they learn, and their exact resume."""

import jax
import pytest
from fakes import Small
from run_folders import assert_identical, found_in

from configs import digits_sym
from spr_jax.backbones import BACKBONES
from spr_jax.io.signals import Stopped
from spr_jax.training import loop
from spr_jax.training.config import resolve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The classes"),
]

QUIET = {"report": lambda line: None}
METHODS = "topofilter iter_nld rog d2l incv divide_mix elr sop ssr spr_plus".split()
STOP = 7 * 23 + 11  # steps, within the eighth of twenty epochs


@pytest.fixture(autouse=True)
def single_precision():
    with jax.enable_x64(False):
        yield


def config_for(method):
    config = digits_sym.get_config(method)
    resolve(config)
    return config


def accuracy(method, home):
    """The test accuracy after the last epoch."""
    return loop.train(config_for(method), home / method, **QUIET)["last"]["test_top1"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    with jax.enable_x64(False):
        return accuracy("ce", tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("method", METHODS)
def test_it_learns_more_than_plain_training(method, plain, tmp_path):
    """A network that memorizes labels; one of 32 units hardly does."""
    assert accuracy(method, tmp_path) > plain + 0.02


@pytest.mark.parametrize("method", METHODS)
def test_it_resumes_exactly(method, tmp_path, monkeypatch):
    monkeypatch.setitem(BACKBONES, "c2f2", Small)
    config = config_for(method)
    loop.train(config, tmp_path / "whole", **QUIET)
    with pytest.raises(Stopped):
        loop.train(config, tmp_path / "broken", should_stop=lambda step: step == STOP, **QUIET)
    loop.train(config, tmp_path / "broken", **QUIET)
    assert_identical(found_in(tmp_path / "broken"), found_in(tmp_path / "whole"))
