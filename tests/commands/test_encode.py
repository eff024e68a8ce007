"""The command that turns images into features to train on."""

import numpy as np
import pytest
from photo_folder import color_encoder, draw_photos

from spr_jax import encode
from spr_jax.datasets import DATASETS
from spr_jax.detection import encode as blocks
from spr_jax.encoders import ENCODERS

NAME = "efficientnet_lite0"


@pytest.fixture
def photos(tmp_path, monkeypatch):
    draw_photos(tmp_path / "photos")
    monkeypatch.setitem(ENCODERS, NAME, lambda size=None: color_encoder())
    monkeypatch.setattr(blocks, "BLOCK", 7)
    return tmp_path / "photos"


def test_a_folder_becomes_a_data_set_of_vectors(photos, tmp_path, capsys):
    (photos / "bee" / "broken.png").write_bytes(b"no picture")
    out = tmp_path / "new" / "photos.npz"
    encode.main([f"--images={photos}", f"--out={out}"])
    assert "1 files cannot be read and are left out." in capsys.readouterr().out
    with np.load(out) as held:
        assert held["features"].shape[0] == len(held["labels"]) == 60
        assert held["class_names"].tolist() == ["ant", "bee", "cat"]
        assert np.isfinite(held["features"]).all()
    dataset = DATASETS["features"](path=str(out))
    assert dataset.class_names == ("ant", "bee", "cat") and dataset.name == "folder"
    assert len(dataset.train.labels) == 48
    assert [path.name for path in out.parent.iterdir()] == ["photos.npz"]


def test_a_data_set_has_its_test_images_and_true_labels(photos, tmp_path):
    out = tmp_path / "digits.npz"
    encode.main(["--dataset=digits", f"--out={out}"])
    with np.load(out) as held:
        digits = DATASETS["digits"]()
        np.testing.assert_array_equal(held["labels"], digits.train.labels)
        np.testing.assert_array_equal(held["true_labels"], digits.train.labels)
        np.testing.assert_array_equal(held["test_labels"], digits.tests["test"].labels)
        assert len(held["test_features"]) == len(held["test_labels"])
        assert held["source"] == "digits"


def test_a_stopped_command_resumes(photos, tmp_path, monkeypatch):
    done = []
    monkeypatch.setitem(ENCODERS, NAME, lambda size=None: color_encoder(count=done))
    out = tmp_path / "photos.npz"
    options = encode.parse_arguments([f"--images={photos}", f"--out={out}"])
    with pytest.raises(encode.signals.Stopped):
        encode.run(options, lambda block: block == 2)
    assert sum(done) == 21 and not out.exists()
    encode.run(options, lambda block: False)
    assert sum(done) == 60 and out.exists() and not out.with_suffix(".parts").exists()


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["--images={photos}", "--out={tmp}/x.npy"], "expected a file that ends in .npz"),
        (["--images={tmp}/nothing", "--out={tmp}/x.npz"], "nothing"),
        (["--dataset=cifar11", "--out={tmp}/x.npz"], "did you mean 'cifar10'?"),
        (
            ["--dataset=digits", "--encoder=efficientnet_lite9", "--out={tmp}/x.npz"],
            "efficientnet_lite",
        ),
    ],
)
def test_what_cannot_be_encoded_is_named_in_a_sentence(
    photos, tmp_path, capsys, arguments, sentence
):
    with pytest.raises(SystemExit) as stopped:
        encode.main([each.format(photos=photos, tmp=tmp_path) for each in arguments])
    assert stopped.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert sentence in lines[-1] and not (tmp_path / "x.npz").exists()
