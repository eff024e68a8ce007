"""A folder of photos, and networks that are trained on it quickly."""

import pytest
from conftest import PROGRAMS
from fakes import Small
from photo_folder import draw_photos

from spr_jax.backbones import BACKBONES
from spr_jax.detection import features
from spr_jax.training import base_config


@pytest.fixture
def photos(tmp_path):
    return draw_photos(tmp_path / "photos")


@pytest.fixture
def small_networks(monkeypatch, tmp_path):
    """Train quickly, and leave nothing in the user's home."""

    def config_for(*arguments, usual=features.config_for, **options):
        config = usual(*arguments, **options)
        config.method.select.update(name="all", pca_dim=None)  # other rules compile slowly
        return config

    monkeypatch.setattr(features, "config_for", config_for)
    monkeypatch.setitem(BACKBONES, "c2f2", Small)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(base_config, "PROGRAM_CACHE", str(PROGRAMS))
