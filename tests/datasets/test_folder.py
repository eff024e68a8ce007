"""One's own images in their three layouts, and what people get wrong."""

import numpy as np
import pytest
from PIL import Image

from spr_jax.datasets import DATASETS, folder
from spr_jax.datasets.images import ImageFiles


def paint(path, value, size=(12, 9), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", size, (value, value, value)).convert(mode)
    image.save(path, **({"quality": 95} if path.suffix == ".jpg" else {}))


@pytest.fixture
def photos(tmp_path):
    """Three classes told apart by their brightness: a PNG, a JPEG, a grey and a palette image."""
    for label, value in {"cat": 40, "dog": 120, "owl": 200}.items():
        for k in range(5):
            home = tmp_path / "photos" / label
            paint(home / f"{k}.png", value)
            paint(home / f"{k}.jpg", value)
            paint(home / f"grey {k}.png", value, mode="L")
            paint(home / f"palette{k}.gif", value, mode="P")
    return tmp_path / "photos"


@pytest.fixture
def load(tmp_path):
    def load(path, **options):
        return DATASETS["folder"](path=str(path), data_dir=str(tmp_path / "data"), **options)

    return load


def test_class_folders(photos, load):
    dataset = load(photos, size=8)
    assert dataset.class_names == ("cat", "dog", "owl")
    assert dataset.train.images.shape == (54, 8, 8, 3)
    test = dataset.tests["test"]
    assert np.bincount(test.labels).tolist() == [2, 2, 2]
    for split in (dataset.train, test):
        brightness = split.images.mean(axis=(1, 2, 3))
        np.testing.assert_allclose(brightness, 40 + 80 * split.labels, atol=6)
        assert split.true_labels is None


def test_the_same_images_are_held_out_every_time(photos, load, tmp_path):
    first, again = load(photos, size=8), load(photos, size=8)
    np.testing.assert_array_equal(first.train.images, again.train.images)
    listing = folder._list(photos, 0.1)
    (held_out,) = np.nonzero(listing.test)
    assert len(held_out) == 6 and folder._list(photos, 0.0).test.sum() == 0


def test_train_and_test_folders(photos, load):
    for split in ("train", "test"):
        (photos / split).mkdir()
    for label in ("cat", "dog", "owl"):
        (photos / label).rename(photos / "train" / label)
    paint(photos / "test" / "dog" / "x.png", 120)
    dataset = load(photos, size=8)
    assert len(dataset.train.labels) == 60
    assert dataset.tests["test"].labels.tolist() == [1]


def write_table(photos, rows, head="file,label"):
    (photos / "labels.csv").write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")


def test_a_table_of_labels_decides(photos, load):
    rows = ["cat/0.png,katze,hund", '"dog/grey 1.png",hund,hund', "owl/2.jpg,katze,katze"]
    write_table(photos, rows, "file,label,true_label")
    dataset = load(photos, size=8)
    assert dataset.class_names == ("hund", "katze")
    assert dataset.train.labels.tolist() == [1, 0, 1]
    assert dataset.train.true_labels.tolist() == [0, 0, 1]
    assert dataset.tests == {}
    np.testing.assert_allclose(dataset.train.images.mean(axis=(1, 2, 3)), [40, 120, 200], atol=6)


def test_images_are_decoded_once_until_one_changes(photos, load, monkeypatch):
    first = load(photos, size=8)
    monkeypatch.setattr(folder, "decode_all", None)
    np.testing.assert_array_equal(load(photos, size=8).train.images, first.train.images)
    monkeypatch.undo()
    paint(photos / "cat" / "0.png", 90)
    changed = load(photos, size=8)
    assert (changed.train.images != first.train.images).any() or (
        changed.tests["test"].images != first.tests["test"].images
    ).any()


def test_large_folders_are_streamed(photos, load):
    dataset = load(photos, size=8, memory_gb=1e-6)
    assert isinstance(dataset.train.images, ImageFiles)
    assert dataset.train.images.shape == (54, 8, 8, 3)
    assert dataset.augmentation == "flip"
    brightness = dataset.train.images[:].mean(axis=(1, 2, 3))
    np.testing.assert_allclose(brightness, 40 + 80 * dataset.train.labels, atol=6)


@pytest.mark.parametrize("memory_gb", [4.0, 1e-6])
def test_unreadable_images_are_named_and_skipped_when_asked_to(photos, load, memory_gb):
    (photos / "dog" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut")
    with pytest.raises(
        ValueError, match="Cannot read the image .*dog/broken.jpg.* skip_unreadable"
    ):
        load(photos, size=8, memory_gb=memory_gb)
    dataset = load(photos, size=8, memory_gb=memory_gb, skip_unreadable=True)
    assert len(dataset.train.labels) + len(dataset.tests["test"].labels) == 60


def test_an_empty_class_folder_is_named(photos, load):
    (photos / "emu").mkdir()
    (photos / "emu" / "notes.txt").write_text("none yet")
    with pytest.raises(ValueError, match="class folder .*emu holds no images; fill or remove it"):
        load(photos)


def test_a_folder_that_is_none_is_described(tmp_path, load, photos):
    with pytest.raises(ValueError, match="no folder ''; path must be a folder"):
        load("")
    with pytest.raises(ValueError, match="There is no folder '.*nowhere'"):
        load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has images of 0 classes; expected a folder for each"):
        load(tmp_path / "empty")
    paint(tmp_path / "one" / "cat" / "1.png", 3)
    with pytest.raises(ValueError, match="has images of 1 classes"):
        load(tmp_path / "one")
    with pytest.raises(ValueError, match="test_share is 1.5; expected"):
        load(photos, test_share=1.5)


@pytest.mark.parametrize(
    ("rows", "head", "says"),
    [
        ([], "file,label", "has 0 rows and the columns"),
        (["cat/0.png,cat"], "path,label", "columns .'path', 'label'.; expected .*'file'"),
        (["cat/0.png,cat", "cat/99.png,cat"], "file,label", "Line 3 of .* .'cat/99.png', 'cat'."),
        (["cat/0.png,"], "file,label", "Line 2 of .* has .'cat/0.png', ''.; expected a file in"),
        (["cat/0.png,cat,"], "file,label,true_label", "Line 2 of .* its true label if there is"),
        (["cat/0.png,cat"], "file,label,true_label", "Line 2 of .* None"),
    ],
)
def test_a_bad_table_is_described(photos, load, rows, head, says):
    write_table(photos, rows, head)
    with pytest.raises(ValueError, match=says):
        load(photos)


def test_class_names_are_text(photos, load):
    """Whatever a folder is called."""
    (photos / "cat").rename(photos / "<b>ça & 'x'")
    dataset = load(photos, size=8)
    assert "<b>ça & 'x'" in dataset.class_names


def test_a_class_may_be_called_train(photos, load):
    (photos / "owl").rename(photos / "train")
    assert load(photos, size=8).class_names == ("cat", "dog", "train")


def test_without_a_test_folder_some_of_train_is_held_out(photos, load):
    (photos / "train").mkdir()
    for label in ("cat", "dog", "owl"):
        (photos / label).rename(photos / "train" / label)
    assert len(load(photos, size=8).tests["test"].labels) == 6


def test_the_test_set_has_true_labels_where_they_are_known(photos, load):
    rows = [f"cat/{k}.{end},dog,cat" for k in range(5) for end in ("png", "jpg")]
    rows += [f"dog/{k}.{end},cat,dog" for k in range(5) for end in ("png", "jpg")]
    write_table(photos, rows, "file,label,true_label")
    dataset = load(photos, size=8, test_share=0.3)
    test = dataset.tests["test"]
    np.testing.assert_allclose(test.images.mean(axis=(1, 2, 3)), 40 + 80 * test.labels, atol=6)
    assert (dataset.train.labels != dataset.train.true_labels).all()


def test_names_lead_back_to_the_files(photos, load):
    train = load(photos, size=8).train
    for name, label in zip(train.names, train.labels, strict=True):
        assert (photos / name).is_file()
        assert name.startswith(("cat/", "dog/", "owl/")[label])


def test_two_sizes_are_kept_beside_each_other(photos, load, monkeypatch):
    for size in (8, 10):
        load(photos, size=size)
    monkeypatch.setattr(folder, "decode_all", None)
    for size in (8, 10):
        assert load(photos, size=size).train.images.shape[1] == size
