"""WebVision's lists and images, and ImageNet's validation set in both of its layouts."""

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from spr_jax.datasets import DATASETS, webvision

SYNSETS = ["n01440764 tench, Tinca tinca", "n01443537 goldfish", "n01484850 great white shark"]


def paint(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (30, 20), (value, value, value)).save(path, quality=95)


@pytest.fixture
def raw(tmp_path):
    """Three classes, of which two are asked for; an image's brightness is its class."""
    root = tmp_path / "raw"
    lists = {"train_filelist_google.txt": [], "val_filelist.txt": []}
    for k in range(9):
        name = f"google/q000{k % 3 + 1}/image {k}.jpg"
        paint(root / name, 50 + 100 * (k % 3) // 2)
        lists["train_filelist_google.txt"].append(f"{name} {k % 3}")
    for k in range(6):
        paint(root / "val_images_256" / f"val{k:06}.jpg", 50 + 100 * (k % 3) // 2)
        lists["val_filelist.txt"].append(f"val{k:06}.jpg {k % 3}")
    (root / "info").mkdir()
    (root / "info" / "synsets.txt").write_text("\n".join(SYNSETS))
    for name, lines in lists.items():
        (root / "info" / name).write_text("\n".join(lines) + "\n")
    return root


def prepare(raw, **options):
    webvision.prepare(str(raw), str(raw.parent / "data"), num_classes=2, **options)
    return DATASETS["webvision"](data_dir=str(raw.parent / "data"))


def check_split(split, count):
    assert split.images.shape == (count, 299, 299, 3)
    brightness = split.images[:].mean(axis=(1, 2, 3))
    np.testing.assert_allclose(brightness, 50 + 50 * split.labels, atol=3)


def test_lists_are_cut_to_the_first_classes(raw):
    dataset = prepare(raw)
    check_split(dataset.train, 6)
    check_split(dataset.tests["webvision"], 4)
    assert dataset.class_names == ("tench", "goldfish")
    assert dataset.train.true_labels is None and list(dataset.tests) == ["webvision"]


def test_imagenet_in_class_folders(raw, tmp_path):
    for k, line in enumerate(SYNSETS):
        paint(tmp_path / "imagenet" / line.split()[0] / f"{k}.JPEG", 50 + 50 * k)
    dataset = prepare(raw, imagenet_dir=str(tmp_path / "imagenet"))
    assert list(dataset.tests) == ["webvision", "imagenet"]
    check_split(dataset.tests["imagenet"], 2)


def test_imagenet_with_the_lists_of_its_devkit(raw, tmp_path):
    """Its class numbers are others than WebVision's: 1 goldfish, 2 shark, 3 tench."""
    home = tmp_path / "imagenet"
    names = {1: SYNSETS[1], 2: SYNSETS[2], 3: SYNSETS[0]}
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O")]
    rows = np.array([(k, line.split()[0]) for k, line in names.items()], kinds)
    truth = [3, 1, 2, 1]
    for k, number in enumerate(truth, start=1):
        paint(home / f"ILSVRC2012_val_{k:08}.JPEG", {3: 50, 1: 100, 2: 150}[number])
    savemat(home / "meta.mat", {"synsets": rows})
    (home / "ILSVRC2012_validation_ground_truth.txt").write_text("\n".join(map(str, truth)))
    dataset = prepare(raw, imagenet_dir=str(home))
    assert dataset.tests["imagenet"].labels.tolist() == [0, 1, 1]
    check_split(dataset.tests["imagenet"], 3)
    (home / "ILSVRC2012_val_00000001.JPEG").unlink()
    with pytest.raises(ValueError, match="has 3 validation images and 4 labels"):
        prepare(raw, imagenet_dir=str(home))


def test_missing_images_are_named_and_left_out_when_asked_to(raw):
    (raw / "google" / "q0001" / "image 3.jpg").unlink()
    with pytest.raises(ValueError, match="Cannot read the image .*image 3.jpg.* skip_unreadable"):
        prepare(raw)
    with pytest.raises(ValueError, match="There is no WebVision in"):
        DATASETS["webvision"](data_dir=str(raw.parent / "data"))
    assert len(prepare(raw, skip_unreadable=True).train.labels) == 5


def test_check_finds_images_that_went_missing(raw):
    prepare(raw)
    assert webvision.check(str(raw.parent / "data")).is_dir()
    (raw / "val_images_256" / "val000001.jpg").unlink()
    with pytest.raises(ValueError, match="Cannot read the image .*val000001.jpg"):
        webvision.check(str(raw.parent / "data"))


def test_bad_folders_and_lists_are_described(raw, tmp_path):
    with pytest.raises(ValueError, match="run `python -m spr_jax.prepare webvision --raw_dir=DIR"):
        DATASETS["webvision"](data_dir=str(tmp_path))
    missing = "no folder ''; WebVision must be requested.* as raw_dir"
    with pytest.raises(ValueError, match=missing):
        webvision.prepare("", str(tmp_path))
    with pytest.raises(ValueError, match="There is no info/synsets.txt in"):
        webvision.prepare(str(tmp_path), str(tmp_path))
    with pytest.raises(ValueError, match=r"has no images of the classes \[3, 4\]"):
        webvision.prepare(str(raw), str(tmp_path), num_classes=5)
    (raw / "info" / "val_filelist.txt").write_text("val000001.jpg one\n")
    with pytest.raises(ValueError, match="has the line 'val000001.jpg one'; expected FILE LABEL"):
        prepare(raw)
