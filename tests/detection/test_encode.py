"""Features of images from an encoder, in memory and in a folder."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from photo_folder import color_encoder
from PIL import Image

from spr_jax.detection import encode
from spr_jax.detection.encode import encode_images, encode_in_folder, sample_order
from spr_jax.detection.listing import fingerprint_of, list_images
from spr_jax.io.signals import Stopped

ROOT = Path(__file__).parents[2]


@pytest.fixture
def files(photos):
    return list_images(folder=str(photos)).dataset.train.images


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(encode, "BLOCK", 7)


def pixels_of(paths):
    return np.stack([np.asarray(Image.open(path)) for path in paths])


def test_features_are_in_the_order_of_files_and_of_arrays(files):
    encoder = color_encoder()
    pixels = pixels_of(files.paths)
    wanted = encoder.encode(pixels)
    np.testing.assert_array_equal(encode_images(list(files.paths), encoder), wanted)
    np.testing.assert_array_equal(encode_images(pixels, encoder), wanted)


@pytest.mark.parametrize("shape", [(5, 8, 8), (5, 8, 8, 1), (5, 1, 1), (5, 30, 20, 3)])
def test_arrays_of_any_size_become_squares_in_color(shape):
    seen = []
    encoder = color_encoder()._replace(encode=lambda block: (seen.append(block), block[:, 0, 0])[1])
    pixels = np.full(shape, 100, np.uint8)
    encode_images(pixels, encoder._replace(dim=3))
    np.testing.assert_array_equal(seen[0], np.full((5, 16, 16, 3), 100))


def test_large_arrays_are_cut_in_the_middle():
    pixels = np.zeros((1, 16, 48, 3), np.uint8)
    pixels[:, :, 16:32] = 200
    features = encode_images(pixels, color_encoder())
    np.testing.assert_allclose(features, 200 / 255, rtol=1e-5)


@pytest.mark.parametrize(
    "images", [np.zeros((3, 4, 4)), np.zeros((3, 4), np.uint8), np.zeros((3, 4, 4, 2), np.uint8)]
)
def test_other_arrays_are_described(images):
    with pytest.raises(ValueError, match=r"Images have the shape \(3, 4.*uint8"):
        encode_images(images, color_encoder())


def test_no_images_have_no_features():
    assert encode_images([], color_encoder()).shape == (0, 35)


def test_files_that_cannot_be_read_have_no_features(files):
    for position in (0, 31, 59):
        Path(files.paths[position]).write_bytes(b"\x89PNG cut")
    features = encode_images(files.paths, color_encoder())
    assert np.flatnonzero(np.isnan(features).any(axis=1)).tolist() == [0, 31, 59]


def test_a_folder_keeps_features_and_errors(files, tmp_path):
    home, count = tmp_path / "out" / "encoder", []
    Path(files.paths[4]).write_bytes(b"no image")
    encoder = color_encoder(count=count)
    first = encode_in_folder(files, encoder, home, key="a")
    assert sum(count) == 60 and max(count) == 7
    np.testing.assert_array_equal(first.features, encode_images(files.paths, color_encoder()))
    assert list(first.errors) == [4] and files.paths[4] in first.errors[4]
    assert {path.name for path in home.iterdir()} == {"features.npy", "features.json"}

    count.clear()
    again = encode_in_folder(files, encoder, home, key="a")
    assert count == [] and again.errors == first.errors
    np.testing.assert_array_equal(again.features, first.features)
    assert isinstance(again.features, np.memmap)


@pytest.mark.parametrize("changes", [{"key": "b"}, {"version": "2"}, {"size": 8}])
def test_features_of_anything_else_are_replaced(files, tmp_path, changes):
    count, key = [], changes.pop("key", "a")
    encode_in_folder(files, color_encoder(), tmp_path / "home", key="a")
    other = color_encoder(count=count, **changes)
    found = encode_in_folder(files, other, tmp_path / "home", key=key)
    assert sum(count) == 60 and found.features.shape == (60, other.dim)


def test_a_file_that_is_cut_off_is_computed_again(files, tmp_path):
    home, count = tmp_path / "home", []
    encode_in_folder(files, color_encoder(), home, key="a")
    for spoil in (
        lambda: (home / "features.json").write_text("{"),
        lambda: os.truncate(home / "features.npy", 1000),
        lambda: (home / "features.npy").unlink(),
    ):
        spoil()
        count.clear()
        found = encode_in_folder(files, color_encoder(count=count), home, key="a")
        assert sum(count) == 60 and np.isfinite(found.features).all()


def test_a_part_comes_first_and_is_a_sample(files, tmp_path):
    count, home = [], tmp_path / "home"
    encoder = color_encoder(count=count)
    part = encode_in_folder(files, encoder, home, key="a", at_least=14)
    rows = sample_order(60)[:14]
    assert sum(count) == 14 and len(set(rows // 20)) == 3
    wanted = encoder.encode(pixels_of(files.paths))
    np.testing.assert_array_equal(part.features[rows], wanted[rows])
    assert not (home / "features.npy").exists()
    count.clear()
    whole = encode_in_folder(files, encoder, home, key="a")
    assert sum(count) == 60 - 14
    np.testing.assert_array_equal(whole.features, wanted)


def test_a_stop_loses_at_most_a_block(files, tmp_path):
    count, home = [], tmp_path / "home"
    encoder = color_encoder(count=count)
    with pytest.raises(Stopped):
        encode_in_folder(files, encoder, home, key="a", should_stop=lambda block: block == 2)
    assert json.loads((home / "features.json").read_text())["done"] == sum(count) == 21
    whole = encode_in_folder(files, encoder, home, key="a")
    assert sum(count) == 60
    np.testing.assert_array_equal(whole.features, encode_images(files.paths, color_encoder()))


KILLED_AT = """
import os, signal, sys
from pathlib import Path
from photo_folder import color_encoder
from spr_jax.detection import encode
from spr_jax.detection.listing import list_images

encode.BLOCK = 7
encoder, blocks = color_encoder(), []

def encode_or_die(images):
    blocks.append(len(images))
    if len(blocks) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return encoder.encode(images)

files = list_images(folder=sys.argv[1]).dataset.train.images
encode.encode_in_folder(
    files, encoder._replace(encode=encode_or_die), Path(sys.argv[2]), key="a"
)
print(len(blocks))
"""


@pytest.mark.slow
def test_a_killed_process_is_resumed_with_the_same_features(photos, files, tmp_path):
    def start(at_block):
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
        command = [sys.executable, "-c", KILLED_AT, photos, tmp_path / "home", at_block]
        return subprocess.run(
            [*map(str, command)], env=environment, cwd=ROOT, capture_output=True, text=True
        )

    assert start(4).returncode == start(2).returncode == -signal.SIGKILL
    done = start(100)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 9 - 3 - 1  # blocks in all, finished at first, finished then
    count = []
    kept = encode_in_folder(files, color_encoder(count=count), tmp_path / "home", key="a")
    assert count == []
    np.testing.assert_array_equal(kept.features, encode_images(files.paths, color_encoder()))


def test_the_fingerprint_follows_the_files(photos):
    marks = [fingerprint_of(list_images(folder=str(photos)).dataset)]
    os.utime(photos / "ant" / "003.png", (1, 1))
    marks.append(fingerprint_of(list_images(folder=str(photos)).dataset))
    (photos / "ant" / "003.png").rename(photos / "ant" / "0003.png")
    marks.append(fingerprint_of(list_images(folder=str(photos)).dataset))
    assert len(set(marks)) == 3
    assert fingerprint_of(list_images(folder=str(photos)).dataset) == marks[-1]


def test_the_fingerprint_follows_the_pixels():
    digits = list_images(name="digits").dataset
    brighter = digits._replace(train=digits.train._replace(images=digits.train.images + 1))
    assert fingerprint_of(digits) != fingerprint_of(brighter)
