"""A user's images: loaded, and judged by networks that are trained on them."""

import numpy as np
import pytest
from detections import made_up
from photo_folder import Mean
from PIL import Image

from spr_jax.detection.images import train_and_detect
from spr_jax.detection.listing import load_images
from spr_jax.detection.options import DetectorOptions
from spr_jax.review.pictures import files_to_show

pytestmark = pytest.mark.usefixtures("small_networks")


def test_a_table_of_labels_has_its_own_order_and_truth(photos):
    files = ["cat/003.png", "ant/001.png", "bee/000.png", "ant/004.png"]
    (photos / "labels.csv").write_text(
        "file,label,true_label\n" + "".join(f"{file},{file[:3]},cat\n" for file in files)
    )
    images = load_images(folder=str(photos), size=16)
    assert images.dataset.train.names.tolist() == files  # none is held out
    assert images.labels.tolist() == ["cat", "ant", "bee", "ant"]
    assert images.true.tolist() == ["cat"] * 4
    pixels = np.asarray(Image.open(photos / files[1]))
    shown = files_to_show(photos, images.dataset.train.names)
    shown = np.asarray(Image.fromarray(shown[1]).resize((16, 16)))
    assert np.abs(shown.astype(int) - pixels).mean() < 20


def test_unreadable_images_are_left_out_when_asked_to(photos):
    (photos / "bee" / "bad.png").write_bytes(b"\x89PNG cut")
    images = load_images(folder=str(photos), size=16, skip_unreadable=True)
    assert len(images.labels) == len(images.dataset.train.images) == 60
    assert "bee/bad.png" not in images.dataset.train.names


def test_a_missing_folder_is_named():
    with pytest.raises(ValueError, match="'missing'"):
        load_images(folder="missing")


def test_examples_are_ordered_by_entry_if_a_fraction_is_kept(photos, tmp_path, monkeypatch):
    images, asked = load_images(folder=str(photos), size=16), []

    def judge(features, labels, **options):
        asked.append(options)
        found = made_up(labels, labels, np.linspace(0, 1, len(labels)))
        return found._replace(entry_penalty=-found.error_probability)

    monkeypatch.setattr("spr_jax.detection.images.learn_network", lambda *_, **__: Mean())
    monkeypatch.setattr("spr_jax.detection.images.find_label_errors", judge)
    given = images.dataset, images.labels, tmp_path / "training"
    kept, _ = train_and_detect(*given, options=DetectorOptions(keep=0.5, seed=3))
    usual, _ = train_and_detect(*given, folds=2)
    assert kept.order.tolist() == usual.order.tolist()[::-1] == list(range(60))
    assert [(each["keep"], each["seed"]) for each in asked] == 3 * [(0.5, 3)] + 2 * [(None, 0)]
