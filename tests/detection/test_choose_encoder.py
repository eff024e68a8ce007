"""The choice between an encoder and networks trained on the images, without the truth."""

import json

import numpy as np
import pytest
from conftest import make_data
from photo_folder import color_encoder, draw_photos

from spr_jax.detection import choose_encoder as choosing
from spr_jax.detection.choose_encoder import SCRATCH, choose_encoder, predictability
from spr_jax.detection.listing import Images, list_images
from spr_jax.io.signals import Stopped
from spr_jax.types import Dataset, Split

pytestmark = pytest.mark.usefixtures("small_networks")


def bars(count=300, seed=0, places=1):
    """Images of a bright row or a bright column, a tenth of the labels wrong.

    In one place any network tells them apart; in many it needs more images than these.
    """
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 60, (count, 12, 12, 3))
    kind = generator.integers(0, 2, count)
    for image, down in zip(pixels, kind, strict=True):
        place = generator.integers(0, places)
        if down:
            image[:, place : place + 3] += 150
        else:
            image[place : place + 3] += 150
    labels = np.where(generator.random(count) < 0.1, 1 - kind, kind).astype(np.int32)
    split = Split(pixels.astype(np.uint8), labels)
    dataset = Dataset("bars", split, {}, ("row", "column"), (0.3,) * 3, (0.25,) * 3, "none")
    return Images(dataset, np.array(dataset.class_names)[labels], None)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(choosing, "LEAST", 100)
    monkeypatch.setattr(choosing, "VISITS", 2000)


def blind():
    """An encoder that sees nothing of what the labels are about."""
    return color_encoder()._replace(dim=3, encode=lambda images: images[:, 0, 0].astype(np.float32))


def seeing():
    """An encoder that sees the true class wherever the bar is, and noise."""

    def encode(images):
        pixels = images.astype(np.float32).mean(axis=3)
        rows, columns = pixels.mean(axis=2).std(axis=1), pixels.mean(axis=1).std(axis=1)
        return np.stack([rows - columns, pixels[:, 0, 0]], axis=1)

    return color_encoder()._replace(dim=2, encode=encode)


@pytest.mark.slow
def test_the_features_that_predict_the_labels_better_are_taken(tmp_path):
    candidates = {SCRATCH: (blind(), 1), "efficientnet_lite0": (seeing(), 9)}
    for expected, (encoder, places) in candidates.items():
        home, images = tmp_path / expected, bars(places=places)
        choice = choose_encoder(images, encoder, home, key="bars")
        assert choice.encoder == expected, choice
        numbers = sorted(choice.likelihood.values())
        assert f"{numbers[1]:.3f} by its" in choice.reason and f"{numbers[0]:.3f}" in choice.reason
        assert numbers[0] < numbers[1] < 0
        assert [path.name for path in home.iterdir() if path.is_dir()] == ["efficientnet_lite0"]


def test_a_choice_is_made_once(tmp_path, monkeypatch):
    images = bars()
    asked = []

    def from_scratch(images, learned, judged, workdir, should_stop):
        asked.append((learned, judged))
        return np.random.default_rng(0).standard_normal((len(judged), 4))

    monkeypatch.setattr(choosing, "_features_from_scratch", from_scratch)
    count = []
    encoder = seeing()
    counted = encoder._replace(
        encode=lambda block: (count.append(len(block)), encoder.encode(block))[1]
    )
    first = choose_encoder(images, counted, tmp_path, key="bars")
    (learned, judged), *_ = asked
    assert not set(learned) & set(judged) and len(learned) + len(judged) == 300
    assert sum(count) == len(judged) == 120  # the rest only if the encoder is taken
    assert choose_encoder(images, counted, tmp_path, key="bars") == first and len(asked) == 1
    assert json.loads((tmp_path / "choice.json").read_text())["encoder"] == first.encoder

    flipped = images._replace(labels=images.labels[::-1])
    choose_encoder(flipped, counted, tmp_path, key="bars")
    choose_encoder(images, counted._replace(version="2"), tmp_path, key="bars")
    assert len(asked) == 3
    (tmp_path / "choice.json").write_text("{")
    assert choose_encoder(images, counted, tmp_path, key="bars") == first


def test_few_images_take_the_encoder(photos, tmp_path):
    images = list_images(folder=str(photos))
    choice = choose_encoder(images, color_encoder(), tmp_path / "home", key="a")
    assert choice.encoder == "efficientnet_lite0" and "60 images are too few" in choice.reason
    assert not (tmp_path / "home").exists()


@pytest.mark.slow
def test_an_interrupted_choice_resumes_and_leaves_nothing_behind(tmp_path):
    images = bars()
    steps = []

    def stop(step):
        steps.append(step)
        return len(steps) == 8

    with pytest.raises(Stopped):
        choose_encoder(images, blind(), tmp_path, key="bars", should_stop=stop)
    assert len(list(tmp_path.glob("sample-*"))) == 1 and not (tmp_path / "choice.json").exists()
    other = bars(seed=1)
    choose_encoder(other, blind(), tmp_path, key="others")
    assert not list(tmp_path.glob("sample-*"))


@pytest.mark.slow
def test_a_sample_leaves_out_what_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(choosing, "LEAST", 50)
    photos = draw_photos(tmp_path / "photos")
    for name in ("ant/003.png", "bee/007.png", "cat/011.png", "cat/012.png"):
        (photos / name).write_bytes(b"no image")
    images = list_images(folder=str(photos), size=16)
    choice = choose_encoder(images, color_encoder(), tmp_path / "home", key="a")
    assert set(choice.likelihood) == {"efficientnet_lite0", SCRATCH}
    assert all(np.isfinite(value) for value in choice.likelihood.values())


@pytest.mark.parametrize("d", [5, 90])  # fewer and more features than examples
def test_each_label_is_predicted_from_all_others(d, monkeypatch):
    """Leave one out, by as many regressions as there are examples."""
    features, codes, _ = make_data(60, d, 3)
    monkeypatch.setattr(choosing, "PENALTIES", np.array([0.1]))
    monkeypatch.setattr(choosing, "SCALES", (4,))
    centred, targets = features - features.mean(axis=0), np.eye(3)[codes]
    values = np.linalg.svd(centred, compute_uv=False) ** 2
    penalty = 0.1 * values[values > 1e-9].mean()
    # An intercept that is not penalized: another column, of ones.
    design = np.column_stack([centred, np.ones(60)])
    weight = np.diag([penalty] * d + [0])
    total = 0
    for row in range(60):
        rest = np.delete(np.arange(60), row)
        gram = design[rest].T @ design[rest] + weight
        scores = 4 * design[row] @ np.linalg.solve(gram, design[rest].T @ targets[rest])
        total += scores[codes[row]] - np.log(np.exp(scores).sum())
    np.testing.assert_allclose(predictability(features, codes), total / 60, rtol=1e-8)


def test_predictability_orders_features():
    features, codes, true = make_data(300, 20, 4, rate=0.2)
    noise = np.random.default_rng(1).standard_normal((300, 20))
    worse = predictability(features + 2 * noise, codes)
    nothing = predictability(noise, codes)
    assert predictability(features, codes) > worse + 0.05 > nothing
    assert abs(nothing + np.log(4)) < 0.1
    constant = predictability(np.ones((300, 3), np.float32), codes)
    assert np.isfinite(constant) and constant <= nothing + 0.05
