"""Runs on image files that are decoded while they train."""

import numpy as np
import pytest
from PIL import Image
from run_folders import assert_identical, found_in

from spr_jax.io.signals import Stopped
from spr_jax.training import loop
from spr_jax.training.base_config import get_config
from spr_jax.training.build import make_run
from spr_jax.training.config import resolve

QUIET = {"report": lambda line: None}


@pytest.fixture
def streamed(small, tmp_path):
    """Photos too large for the memory, told apart by their brightness."""
    generator = np.random.default_rng(0)
    for label, value in {"cat": 40, "dog": 120, "owl": 200}.items():
        folder = tmp_path / "photos" / label
        folder.mkdir(parents=True)
        for number in range(12):
            pixels = value + generator.integers(-30, 30, (12, 10, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    config = get_config("spr", dataset="folder")
    config.update(epochs=2, batch_size=8, eval_batch_size=8)
    config.dataset.update(path=str(tmp_path / "photos"), size=8, test_share=0.2)
    config.dataset.update(memory_gb=1e-6, data_dir=str(tmp_path / "data"))
    config.method.update(cutmix=0.5, record_from="scan")
    config.method.select.update(name="noise_model", pca_dim=10)
    resolve(config)
    return config


@pytest.mark.slow
def test_streamed_images_train_and_resume_exactly(streamed, tmp_path):
    """With CutMix and a scan: every kind of randomness, every use of the files."""
    assert make_run(streamed).is_streamed
    loop.train(streamed, tmp_path / "whole", **QUIET)
    for last in (2, 7):  # of 8 steps, 4 per epoch
        with pytest.raises(Stopped):
            loop.train(streamed, tmp_path / "broken", should_stop=lambda s, e=last: s == e, **QUIET)
    loop.train(streamed, tmp_path / "broken", **QUIET)
    assert_identical(found_in(tmp_path / "broken"), found_in(tmp_path / "whole"))
