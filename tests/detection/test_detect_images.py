"""The detector as a command, on a folder of images, by way of a small network."""

import contextlib
import csv
import json
import re
import signal

import numpy as np
import pytest
from detections import made_up
from photo_folder import NAMES, WRONG, Mean

from spr_jax.datasets import DATASETS
from spr_jax.detect import main as detect
from spr_jax.detection.features import features_of
from spr_jax.detection.listing import load_images
from spr_jax.io.signals import SAVED

pytestmark = pytest.mark.usefixtures("small_networks")


def run(photos, *options, out="out"):
    out = photos.parent / out
    how = ["--encoder=scratch", "--size=16", "--epochs=3"]
    detect([f"--images={photos}", f"--out={out}", *how, *options])
    with open(out / "labels.csv", newline="") as file:
        return out, list(csv.DictReader(file))


@pytest.mark.slow
def test_a_folder_becomes_a_page_and_a_stopped_command_resumes(photos, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        stop = contextlib.nullcontext(lambda step: step >= 2)
        patch.setattr("spr_jax.io.signals.stop_on_signals", lambda: stop)
        with pytest.raises(SystemExit) as end:
            run(photos, "--folds=1")
    assert end.value.code == SAVED and "same command" in capsys.readouterr().err
    assert not (photos.parent / "out" / "labels.csv").exists()

    handler, known = signal.getsignal(signal.SIGINT), set(DATASETS)
    out, rows = run(photos, "--folds=1")
    assert signal.getsignal(signal.SIGINT) is handler and set(DATASETS) == known
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
    assert re.search("epochs=3.* 4", capsys.readouterr().err)


def test_every_fold_is_judged_by_a_network_that_did_not_see_it(photos, monkeypatch):
    learned, judged = [], []

    def learn(dataset, workdir, **_):
        learned.append((workdir.name, dataset.train.names.tolist()))
        return Mean()

    def judge(features, labels, **_):
        judged.append((features, labels))
        return made_up(labels, labels, np.full(60, 0.1 * (len(judged) - 1)))

    monkeypatch.setattr("spr_jax.detection.images.learn_network", learn)
    monkeypatch.setattr("spr_jax.detection.images.find_label_errors", judge)
    _, rows = run(photos)  # three folds, as usual
    assert [name for name, _ in learned] == [f"training-fold-{k}-of-3" for k in (1, 2, 3)]
    dataset = load_images(folder=str(photos), size=16).dataset
    whole = features_of(Mean(), dataset.train.images, dataset.mean, dataset.std)
    for number, (_, seen) in enumerate(learned):
        unseen = [row for row in rows if row["file"] not in seen]
        assert len(unseen) == 20
        np.testing.assert_allclose(
            [float(row["error_probability"]) for row in unseen], 0.1 * number
        )
    for features, labels in judged:
        assert labels.tolist() == [row["label"] for row in rows]
        np.testing.assert_allclose(features, whole, rtol=1e-5)


def test_own_features_are_used_and_nothing_is_trained(photos, monkeypatch):
    features, given = np.random.default_rng(0).random((60, 5)), []

    def judge(features, labels, **_):
        given.append((features, labels.tolist()))
        return made_up(labels, labels, np.linspace(0, 1, len(labels)))

    monkeypatch.setattr("spr_jax.detection.images.learn_network", None)
    monkeypatch.setattr("spr_jax.detect.find_label_errors", judge)
    np.save(photos.parent / "own.npy", features)
    own = f"--features={photos.parent / 'own.npy'}"
    detect([f"--images={photos}", own, f"--out={photos.parent / 'out'}"])
    (used, labels), *_ = given
    np.testing.assert_array_equal(used, features)
    assert labels == [name for name in NAMES for _ in range(20)]
    assert "UklGR" in (photos.parent / "out" / "report.html").read_text()


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


def ten_images(photos):
    for path in sorted(photos.glob("*/*.png"))[10:-5]:
        path.unlink()
    for path in sorted(photos.glob("*/*.png"))[:5]:
        path.unlink()
    (photos / "bee").rmdir()


def no_images(photos):
    one_class(photos)
    for path in (photos / "cat").iterdir():
        path.unlink()
    (photos / "cat").rmdir()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (empty_class, "emu .*no images"),
        (one_class, "1 class"),
        (three_images, "3 images .* two images in each of two"),
        (ten_images, "10 images .* 20"),
        (no_images, "0 classes"),
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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--images=missing"], "'missing'"),
        (["--images=photos", "features.npy", "labels.npy"], "two files and --images"),
        (["--images=photos", "--dataset=digits"], "--images and --dataset"),
        (["--features=own.npy"], "--features needs --images"),
        (["--folds=2"], "--folds"),
        (["--dataset=digits", "--encoder=scratch", "--folds=0"], "--folds is 0"),
        (["--dataset=digits", "--encoder=scratch", "--size=9"], "--size .*--images"),
        (["--images=photos", "--epochs=3"], "--epochs .* --encoder=scratch only"),
        (
            ["--images=photos", "--encoder=efficientnet_lite0", "--folds=2"],
            "--folds .*scratch only",
        ),
        (["--encoder=scratch"], "--encoder applies to images"),
        (["--images=photos", "--features=own.npy", "--encoder=auto"], "--encoder .* drop it"),
        (["--images=photos", "--encoder=efficientnet_lite00"], "did you mean 'efficientnet_lite0'"),
        (["--images=photos", "--encoder=onnx:none.onnx"], "none.onnx"),
        (["--dataset=digit"], "'digits'"),
        (["--dataset=folder"], "--dataset is folder.*--images"),
        (["--self_test=0"], "self_test is 0.0; .* 0 and 0.5"),
        (["--self_test=0.5"], "self_test is 0.5; .* 0 and 0.5"),
        (["--self_test=nan"], "self_test is nan"),
    ],
)
def test_options_that_do_not_go_together_are_described(
    photos, monkeypatch, capsys, arguments, says
):
    monkeypatch.chdir(photos.parent)
    with pytest.raises(SystemExit) as end:
        detect(arguments)
    assert end.value.code == 2
    assert re.search(says, capsys.readouterr().err)
    assert not (photos.parent / "found").exists()


def test_a_criterion_out_of_range_is_refused_before_any_work(tmp_path, capsys):
    out = tmp_path / "found"
    with pytest.raises(SystemExit) as exit:
        detect(["--dataset=digits", "--keep=1.5", f"--out={out}"])
    assert exit.value.code == 2 and not out.exists()
    assert "keep is 1.5; expected a fraction" in capsys.readouterr().err
