"""Small runs within the process of the tests."""

import jax
import pytest
from fakes import Small

from configs import digits_sym
from spr_jax.backbones import BACKBONES
from spr_jax.training.config import resolve


@pytest.fixture
def small(monkeypatch):
    """A resolved config of three steps per epoch; in single precision, as runs are."""
    monkeypatch.setitem(BACKBONES, "c2f2", Small)
    config = digits_sym.get_config("ce")
    config.update(epochs=2, batch_size=512, validation_share=0.1, ema=0.5)
    resolve(config)
    with jax.enable_x64(False):
        yield config
