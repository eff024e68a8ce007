"""From a folder of images to the errors in their labels, by way of a small network."""

import csv
import json
import re
import signal

import jax
import numpy as np
import pytest
from detections import made_up, promised
from PIL import Image
from small_backbone import Small

from spr_jax import image_features, main
from spr_jax.backbones import BACKBONES
from spr_jax.cross_fit import cross_fit, folds_of, take, usual_folds
from spr_jax.datasets import DATASETS
from spr_jax.detect import main as detect
from spr_jax.detect_images import load_images
from spr_jax.image_features import config_for, features_of, fingerprint
from spr_jax.settings import SAVED
from spr_jax.types import Dataset, Split

NAMES = ("ant", "bee", "cat")
WRONG = {"ant": "bee/000.png", "cat": "ant/001.png"}  # what it is -> where it lies


class Mean:
    """What a network is to `features_of`."""

    def predict(self, images):
        return type("Output", (), {"features": 10 * images.mean(axis=(1, 2))})


jax.tree_util.register_static(Mean)


def draw(kind, generator):
    """16 x 16: a bright bar across, a bright bar down, or neither, on noise."""
    pixels = generator.integers(0, 80, (16, 16, 3))
    if kind == "ant":
        pixels[6:10] += 150
    elif kind == "bee":
        pixels[:, 6:10] += 150
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.fixture
def photos(tmp_path):
    generator, truly = np.random.default_rng(0), {file: kind for kind, file in WRONG.items()}
    for label in NAMES:
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(20):
            file = f"{label}/{number:03}.png"
            draw(truly.get(file, label), generator).save(tmp_path / "photos" / file)
    return tmp_path / "photos"


@pytest.fixture(autouse=True)
def small_networks(monkeypatch, tmp_path):
    """Trained quickly; nothing is left in the user's home."""

    def config_for(*arguments, usual=image_features.config_for, **options):
        config = usual(*arguments, **options)
        config.method.select = "none"  # all are kept; selecting takes long to compile
        return config

    monkeypatch.setattr(image_features, "config_for", config_for)
    monkeypatch.setitem(BACKBONES, "c2f2", Small)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPR_DATA_DIR", str(tmp_path / "data"))
    yield
    jax.config.update("jax_compilation_cache_dir", None)


def run(photos, *options, out="out"):
    out = photos.parent / out
    detect([f"--images={photos}", f"--out={out}", "--size=16", "--epochs=3", *options])
    with open(out / "labels.csv", newline="") as file:
        return out, list(csv.DictReader(file))


def test_a_folder_becomes_a_page_and_a_stopped_command_goes_on(photos, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(main, "watch_signals", lambda: lambda step: step >= 2)
        with pytest.raises(SystemExit) as end:
            run(photos, "--folds=1")
    assert end.value.code == SAVED and "the same command goes on" in capsys.readouterr().err
    assert not (photos.parent / "out" / "labels.csv").exists()

    handler = signal.getsignal(signal.SIGINT)
    out, rows = run(photos, "--folds=1")
    assert signal.getsignal(signal.SIGINT) is handler and image_features.IN_HAND not in DATASETS
    printed = capsys.readouterr().out
    assert printed.count("epoch 1/3") == 1 and "epoch 3/3" in printed
    assert "60 examples of 3 classes" in printed
    assert [row["file"] for row in rows[:2]] == ["ant/000.png", "ant/001.png"]
    assert [row["label"] for row in rows] == [name for name in NAMES for _ in range(20)]
    suspects = sorted(rows, key=lambda row: int(row["rank"]))[:2]
    assert {row["file"]: row["suggested"] for row in suspects} == {
        file: kind for kind, file in WRONG.items()
    }
    page = (out / "report.html").read_text()
    assert page.count("UklGR") > 2  # base64 of RIFF, which begins a WebP
    assert json.loads((out / "summary.json").read_text())["examples"] == 60

    run(photos, "--folds=1", "--keep=0.5")
    assert "epoch" not in capsys.readouterr().out  # another criterion, the same network
    with pytest.raises(SystemExit):
        run(photos, "--folds=1", "--epochs=4")
    assert "epochs=3, and this one has 4; give another --out" in capsys.readouterr().err


def test_every_fold_is_judged_by_a_network_that_did_not_see_it(photos, monkeypatch):
    learned, judged = [], []

    def learn(dataset, workdir, **_):
        learned.append((workdir.name, dataset.train.names.tolist()))
        return Mean()

    def judge(features, labels, **_):
        judged.append((features, labels))
        return made_up(labels, labels, np.full(60, 0.1 * (len(judged) - 1)))

    monkeypatch.setattr("spr_jax.detect_images.learn_network", learn)
    monkeypatch.setattr("spr_jax.detect_images.find_label_errors", judge)
    _, rows = run(photos)  # three folds, as usual
    assert [name for name, _ in learned] == [f"training-fold-{k}-of-3" for k in (1, 2, 3)]
    dataset = load_images(folder=str(photos), size=16).dataset
    whole = features_of(Mean(), dataset.train.images, dataset.mean, dataset.std)
    for number, (_, seen) in enumerate(learned):
        unseen = [row for row in rows if row["file"] not in seen]
        assert len(unseen) == 20
        np.testing.assert_allclose([float(row["wrong"]) for row in unseen], 0.1 * number)
    for features, labels in judged:
        assert labels.tolist() == [row["label"] for row in rows]
        np.testing.assert_allclose(features, whole, rtol=1e-5)


def test_own_features_are_used_and_nothing_is_trained(photos, monkeypatch):
    features, given = np.random.default_rng(0).random((60, 5)), []

    def judge(features, labels, **_):
        given.append((features, labels.tolist()))
        return made_up(labels, labels, np.linspace(0, 1, len(labels)))

    monkeypatch.setattr("spr_jax.detect_images.learn_network", None)
    monkeypatch.setattr("spr_jax.detect.find_label_errors", judge)
    np.save(photos.parent / "own.npy", features)
    own = f"--features={photos.parent / 'own.npy'}"
    detect([f"--images={photos}", own, f"--out={photos.parent / 'out'}"])
    (used, labels), *_ = given
    np.testing.assert_array_equal(used, features)
    assert labels == [name for name in NAMES for _ in range(20)]
    assert "UklGR" in (photos.parent / "out" / "report.html").read_text()


def test_a_table_of_labels_has_its_own_order_and_truth(photos, monkeypatch):
    files = ["cat/003.png", "ant/001.png", "bee/000.png", "ant/004.png"]
    (photos / "labels.csv").write_text(
        "file,label,true_label\n" + "".join(f"{file},{file[:3]},cat\n" for file in files)
    )
    images = load_images(folder=str(photos), size=16)
    assert images.dataset.train.names.tolist() == files  # none is held out
    assert images.labels.tolist() == ["cat", "ant", "bee", "ant"]
    assert images.true.tolist() == ["cat"] * 4
    pixels = np.asarray(Image.open(photos / files[1]))
    shown = np.asarray(Image.fromarray(images.shown[1]).resize((16, 16)))
    assert np.abs(shown.astype(int) - pixels).mean() < 20


def broken(photos):
    (photos / "bee" / "bad.png").write_bytes(b"\x89PNG cut")


def empty_class(photos):
    (photos / "emu").mkdir()


def one_class(photos):
    for label in ("ant", "bee"):
        for path in (photos / label).iterdir():
            path.unlink()
        (photos / label).rmdir()


def three_images(photos):
    for path in sorted(photos.glob("*/*.png")):
        if path.stem != "005":
            path.unlink()


def no_images(photos):
    one_class(photos)
    for path in (photos / "cat").iterdir():
        path.unlink()
    (photos / "cat").rmdir()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (broken, "Cannot read the image .*bee/bad.png.* skip_unreadable"),
        (empty_class, "class folder .*emu holds no images; fill or remove it"),
        (one_class, "images of 1 classes; expected a folder for each of two or more"),
        (three_images, "Got 3 images to train a network on; expected at least 20"),
        (no_images, "images of 0 classes"),
    ],
)
def test_bad_folders_are_described(photos, capsys, spoil, says):
    spoil(photos)
    with pytest.raises(SystemExit) as end:
        run(photos)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert re.search(says, error.strip().split("\n")[-1])
    assert not (photos.parent / "out").exists()


def test_unreadable_images_are_left_out_when_asked_to(photos):
    broken(photos)
    images = load_images(folder=str(photos), size=16, skip_unreadable=True)
    assert len(images.labels) == 60 and len(images.shown) == 60
    assert "bee/bad.png" not in images.dataset.train.names


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--images=missing"], "There is no folder 'missing'"),
        (["--images=photos", "features.npy", "labels.npy"], "two files and --images; give one"),
        (["--images=photos", "--dataset=digits"], "--images and --dataset; give one of them"),
        (["--features=own.npy"], "--features are of images"),
        (["--folds=2"], "--folds is of training, and here nothing is trained"),
        (["--dataset=digits", "--folds=0"], "--folds is 0; expected 1 or more"),
        (["--dataset=digits", "--size=9"], "--size is of --images"),
        (["--dataset=digit"], "did you mean 'digits'?"),
        (["--dataset=folder"], "given with --images"),
        (["--self_test=0"], "share of 0.0; expected one between 0 and 0.5"),
        (["--self_test=0.5"], "share of 0.5; expected one between 0 and 0.5"),
        (["--self_test=nan"], "share of nan"),
    ],
)
def test_options_that_do_not_go_together_are_described(
    photos, monkeypatch, capsys, arguments, says
):
    monkeypatch.chdir(photos.parent)
    with pytest.raises(SystemExit) as end:
        detect(arguments)
    assert end.value.code == 2
    assert says in capsys.readouterr().err
    assert not (photos.parent / "found").exists()


def small_dataset(count=30, images=None):
    generator = np.random.default_rng(0)
    if images is None:
        images = generator.integers(0, 256, (count, 6, 5, 1)).astype(np.uint8)
    labels = np.arange(count, dtype=np.int32) % 2
    return Dataset("made", Split(images, labels), {}, ("a", "b"), (0.5,), (0.25,), "none")


@pytest.mark.parametrize("batch_size", [7, 30, 100])
def test_features_are_in_the_order_of_the_images(batch_size):
    images = small_dataset().train.images
    features = features_of(Mean(), images, (0.5,), (0.25,), batch_size=batch_size)
    wanted = 10 * (images.mean(axis=(1, 2)) / 255 - 0.5) / 0.25
    np.testing.assert_allclose(features, wanted, atol=1e-4)


def test_features_of_files_are_those_of_their_pixels(photos):
    options = {"size": 16, "test_share": 0.0, "memory_gb": 1e-9}
    streamed = DATASETS["folder"](path=str(photos), **options)
    assert not isinstance(streamed.train.images, np.ndarray)
    look = {"mean": (0.5,) * 3, "std": (0.25,) * 3, "batch_size": 7}
    pixels = features_of(Mean(), streamed.train.images[:], **look)
    np.testing.assert_allclose(features_of(Mean(), streamed.train.images, **look), pixels)


def test_training_is_sized_to_the_data():
    few, many = small_dataset(30), small_dataset(60_000, np.zeros((60_000, 1, 1, 1), np.uint8))
    low, high = image_features.EPOCHS
    assert config_for(few).epochs == high and low < config_for(many).epochs < high
    assert config_for(few, epochs=2).epochs == 2
    assert config_for(few).method.pca_dim == 2 and config_for(many).method.pca_dim == 64
    assert config_for(few).backbone.name == "c2f2" and config_for(few).preset == "exact"


def test_a_run_is_of_one_data_set():
    dataset = small_dataset()
    labels = dataset.train.labels.copy()
    labels[3] = 1 - labels[3]
    relabelled = dataset._replace(train=dataset.train._replace(labels=labels))
    named = dataset._replace(train=dataset.train._replace(names=np.arange(30).astype(str)))
    marks = {fingerprint(each) for each in (dataset, relabelled, named, small_dataset(28))}
    assert len(marks) == 4 and fingerprint(small_dataset()) in marks


def test_folds_hold_every_class_evenly():
    labels = np.random.default_rng(0).permutation(np.repeat(["a", "b", "c"], [30, 31, 5]))
    fold = folds_of(labels, 3)
    counts = np.array([[np.sum(labels[fold == k] == name) for name in "abc"] for k in range(3)])
    assert counts.max(axis=0).tolist() == [10, 11, 2] and counts.min(axis=0).tolist() == [10, 10, 1]
    assert np.bincount(fold).tolist() == [22, 22, 22]
    assert (folds_of(labels, 3, seed=1) != fold).any()
    assert usual_folds(labels) == 3 and usual_folds(np.array(["a", "b", "b", "b"])) == 1
    with pytest.raises(ValueError, match="The class c has 5 examples; expected at least 6"):
        folds_of(labels, 6)


def test_what_networks_found_is_put_together_in_the_order_of_the_examples():
    generator = np.random.default_rng(0)
    given = generator.permutation(np.repeat(["a", "b", "c"], [40, 21, 9]))
    fold = folds_of(given, 2)
    wrong = generator.random((2, 70)).astype(np.float32) / 2  # by network
    wrong[fold, np.arange(70)] += 0.3  # more where it did not learn
    suggested = generator.choice(["a", "b", "c"], (2, 70))
    attained = np.array([[True, True, False], [True, False, False]])

    def find(number):
        part = promised(made_up(given, suggested[number], wrong[number]), 0.1, "clean")
        off = np.array([[0.5, 0.4, 0.1], [0.3, 0.5, 0.2], [0.5, 0, 0.5]])
        promise = part.promise._replace(
            attained=attained[number], lowest=np.array([0.1 * number, 0.2, 0.3])
        )
        noise = part.noise._replace(confusion=off)
        return part._replace(promise=promise, gap=0.1 * number, noise=noise, entry=-wrong[number])

    found = cross_fit(given, fold, find)
    own = wrong[fold, np.arange(70)]
    np.testing.assert_array_equal(found.wrong, own)
    np.testing.assert_array_equal(found.entry, -own)
    by_entry = cross_fit(given, fold, find, by_entry=True)
    np.testing.assert_array_equal(by_entry.order, np.argsort(own, kind="stable"))
    np.testing.assert_array_equal(found.clean, own <= 0.5)
    np.testing.assert_array_equal(found.suggested, suggested[fold, np.arange(70)])
    np.testing.assert_array_equal(found.order, np.argsort(-own, kind="stable"))
    assert found.gap == pytest.approx(0.1)
    assert found.promise.attained.tolist() == [True, False, False]
    np.testing.assert_allclose(found.promise.lowest, [0.1, 0.2, 0.3])

    noise = found.noise
    assert noise.rate == pytest.approx(own.mean())
    assert noise.interval == pytest.approx((own.mean() - 0.02, own.mean() + 0.02), abs=1e-5)
    np.testing.assert_allclose(noise.by_class, [own[given == label].mean() for label in "abc"])
    width = np.diff(noise.by_class_interval, axis=1)[:, 0]
    np.testing.assert_allclose(width, 0.1, atol=1e-5)
    np.testing.assert_allclose(noise.confusion.sum(axis=1), 1)
    np.testing.assert_allclose(np.diag(noise.confusion), 1 - noise.by_class)
    assert noise.confusion[0, 1] == pytest.approx(4 * noise.confusion[0, 2])


def test_take_leaves_no_column_behind(photos):
    split = load_images(folder=str(photos), size=16).dataset.train
    some = take(split, np.array([5, 2]))
    assert some.names.tolist() == [split.names[5], split.names[2]]
    np.testing.assert_array_equal(some.images, split.images[[5, 2]])
    assert some.true_labels is None
