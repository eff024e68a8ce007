"""Encoders by name."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spr_jax.encoders import load_encoder
from spr_jax.encoders.encoder import in_batches


def test_a_misspelt_name_is_corrected():
    with pytest.raises(ValueError, match="'eficientnet_lite0'; did you mean 'efficientnet_lite0'"):
        load_encoder("eficientnet_lite0")


def test_an_unknown_name_lists_all_choices():
    with pytest.raises(ValueError, match="auto.*efficientnet_lite2.*onnx:FILE.*scratch"):
        load_encoder("zzz")


@pytest.mark.parametrize("count", [0, 1, 4, 6, 9])
def test_any_number_of_images_in_batches_of_one_size(count):
    images = np.arange(count * 12, dtype=np.uint8).reshape(count, 2, 2, 3)
    seen = []

    def double(batch):
        seen.append(len(batch))
        return 2.0 * batch[:, 0, 0]

    np.testing.assert_array_equal(in_batches(double, 4, images), 2.0 * images[:, 0, 0])
    assert set(seen) == {4}


@pytest.mark.slow
def test_encoders_need_neither_torch_nor_training_packages():
    code = """
import sys
sys.modules.update(dict.fromkeys(("torch", "flax", "orbax", "tensorflow_datasets", "grain", "PIL")))
from spr_jax.encoders import load_encoder
print(load_encoder("efficientnet_lite0", size=32).dim)
"""
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("1280\n", 0), run.stderr
