"""Preparing, reading back, checking."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from publishers import (
    COUNTS,
    animal_source,
    assert_holds,
    cifar10n_source,
    cifar_arrays,
    human_labels,
    write_cifar10,
    write_mnist,
)

from spr_jax.datasets import DATASETS, cifar10, cifar10n, mnist, prepared
from spr_jax.datasets.records import VERSION, read_records, write_records
from spr_jax.datasets.source import Examples


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    """A prepared MNIST of 60 images: its source, its data folder, what it holds."""
    home = tmp_path_factory.mktemp("ready")
    source, expected = write_mnist(home / "raw")
    folder = prepared.prepare(source, str(home / "raw"), str(home / "data"))
    assert folder == home / "data" / "spr_mnist" / VERSION
    return source, home / "data", expected


@pytest.fixture
def copy(ready, tmp_path):
    """One that a test may damage."""
    source, data_dir, expected = ready
    shutil.copytree(data_dir, tmp_path / "data")
    return source, tmp_path / "data", expected


def test_records_keep_order_and_ids(ready):
    import tensorflow_datasets as tfds

    source, data_dir, expected = ready
    folder = prepared.folder_of(source, str(data_dir))
    stored = tfds.builder_from_directory(folder).as_data_source(
        "train", decoders={"image": tfds.decode.SkipDecoding()}
    )
    ids = [record["id"] for record in stored]
    assert sorted(ids) == list(range(50)) and ids != sorted(ids)  # TFDS did shuffle
    for split, (images, labels) in expected.items():
        assert_holds(read_records(folder, split), images, labels)


def test_loading_maps_the_decoded_arrays(ready, monkeypatch):
    source, data_dir, expected = ready
    monkeypatch.setattr(prepared, "read_records", None)  # not needed any more
    splits = prepared.load(source, str(data_dir))
    for split, (images, labels) in expected.items():
        assert isinstance(splits[split].images, np.memmap)
        assert_holds(splits[split], images, labels)


@pytest.mark.slow
def test_a_second_start_imports_neither_tfds_nor_jax(ready):
    _, data_dir, _ = ready
    code = (
        "import sys; from spr_jax.datasets import DATASETS, mnist;"
        f"mnist.SOURCE = mnist.SOURCE._replace(counts={COUNTS});"
        f"print(len(DATASETS['mnist'](data_dir={str(data_dir)!r}).train.labels));"
        "sys.exit('jax' in sys.modules or 'tensorflow_datasets' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "50"), done.stderr


def test_arrays_are_decoded_again_if_they_are_gone(copy):
    source, data_dir, expected = copy
    folder = data_dir / "spr_mnist" / VERSION
    shutil.rmtree(folder / "decoded_train")
    (folder / "decoded_train.partial").mkdir()  # of a killed process
    assert_holds(prepared.load(source, str(data_dir))["train"], *expected["train"])
    assert (folder / "decoded_train").is_dir()
    assert not (folder / "decoded_train.partial").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_data_folder_that_is_read_only_is_read(copy):
    source, data_dir, expected = copy
    folder = data_dir / "spr_mnist" / VERSION
    shutil.rmtree(folder / "decoded_train")
    folder.chmod(0o555)
    assert_holds(prepared.load(source, str(data_dir))["train"], *expected["train"])
    folder.chmod(0o755)


def test_arrays_that_cannot_be_kept_are_used(copy, monkeypatch, caplog):
    source, data_dir, expected = copy
    shutil.rmtree(data_dir / "spr_mnist" / VERSION / "decoded_train")

    def refuse(folder, arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spr_jax.datasets.cache.store", refuse)
    assert_holds(prepared.load(source, str(data_dir))["train"], *expected["train"])
    assert not (data_dir / "spr_mnist" / VERSION / "decoded_train").exists()


def test_data_sets_use_tfds_data_dir(ready, monkeypatch):
    source, data_dir, _ = ready
    monkeypatch.setattr(mnist, "SOURCE", source)
    monkeypatch.setenv("TFDS_DATA_DIR", str(data_dir))
    dataset = DATASETS["mnist"]()
    assert dataset.train.images.shape == (50, 28, 28, 1)
    assert dataset.train.labels.dtype == np.int32
    assert dataset.num_classes == 10 and list(dataset.tests) == ["test"]


def test_preparing_again_does_nothing(ready):
    source, data_dir, _ = ready
    before = sorted((path, path.stat().st_mtime_ns) for path in data_dir.rglob("*.array_record*"))
    prepared.prepare(source._replace(read=None), "", str(data_dir))
    assert before == sorted((p, p.stat().st_mtime_ns) for p in data_dir.rglob("*.array_record*"))


def test_cifar10n_has_all_opinions(tmp_path, monkeypatch):
    write_cifar10(tmp_path / "raw")
    np.savez(tmp_path / "raw" / "cifar10n.npz", **human_labels())
    monkeypatch.setattr(cifar10n, "SOURCE", cifar10n_source())
    monkeypatch.setenv("SPR_RAW_DIR", str(tmp_path / "raw"))
    for name, theirs in cifar10n.OPINIONS.items():  # the first of them prepares it
        dataset = DATASETS["cifar10n"](labels=name, data_dir=str(tmp_path / "data"))
        np.testing.assert_array_equal(dataset.train.labels, human_labels()[theirs])
        np.testing.assert_array_equal(dataset.train.true_labels, human_labels()["clean_label"])


def test_a_data_set_that_tfds_prepared_is_read(tmp_path, monkeypatch):
    """Stock cifar10: another name and version, ids like train_00007 as text."""
    import tensorflow_datasets as tfds

    arrays = cifar_arrays()

    class Cifar10(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("3.0.2")

        def _info(self):
            features = {
                "id": tfds.features.Text(),
                "image": tfds.features.Image(shape=(32, 32, 3), encoding_format="png"),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(split) for split in arrays}

        def _generate_examples(self, split):
            from spr_jax.datasets.records import _png

            for k, (image, label) in enumerate(zip(*arrays[split], strict=True)):
                name = f"{split}_{k:05}"
                yield name, {"id": name, "image": _png(image), "label": int(label)}

    config = tfds.download.DownloadConfig(try_download_gcs=False)
    Cifar10(data_dir=tmp_path, file_format="array_record").download_and_prepare(
        download_config=config
    )
    monkeypatch.setattr(cifar10, "SOURCE", cifar10.SOURCE._replace(counts=COUNTS, sha256={}))
    for _ in range(2):  # decoded, then mapped
        dataset = DATASETS["cifar10"](data_dir=str(tmp_path))
        np.testing.assert_array_equal(dataset.train.images, arrays["train"][0])
        np.testing.assert_array_equal(dataset.tests["test"].labels, arrays["test"][1])
    assert (tmp_path / "cifar10" / "3.0.2" / "decoded_train").is_dir()


def test_check_accepts_what_was_prepared_and_names_what_was_changed(copy):
    source, data_dir, _ = copy
    folder = data_dir / "spr_mnist" / VERSION
    hashes = json.loads((folder / "metadata.json").read_text())["sha256"]
    known = source._replace(sha256=hashes)
    assert prepared.check(known, str(data_dir)) == folder
    with pytest.raises(ValueError, match="test split of mnist in .* is not what its publisher"):
        prepared.check(known._replace(sha256=hashes | {"test": "0"}), str(data_dir))
    array = np.load(folder / "decoded_train" / "images.npy", mmap_mode="r+")
    array[7, 3, 3] ^= 1
    array.flush()
    with pytest.raises(ValueError, match="train split of mnist in .* is not what its publisher"):
        prepared.check(known, str(data_dir))


@pytest.mark.parametrize("damage", ["cut", "noise"])
def test_check_names_damaged_records(copy, damage):
    source, data_dir, _ = copy
    (path,) = data_dir.rglob("*train.array_record*")
    content = path.read_bytes()
    noise = np.random.default_rng(0).bytes(len(content) - 1000)
    path.write_bytes(content[:5000] if damage == "cut" else content[:1000] + noise)
    with pytest.raises(ValueError, match="delete that folder and run `python -m spr_jax.prepare"):
        prepared.check(source, str(data_dir))


def test_missing_examples_in_the_records_are_counted(ready, tmp_path):
    source, data_dir, expected = ready
    splits = {
        split: Examples(images[..., None], {"label": labels})
        for split, (images, labels) in expected.items()
    }
    write_records(source, splits, tmp_path)
    folder = tmp_path / "spr_mnist" / VERSION
    info = json.loads((folder / "dataset_info.json").read_text())
    (train,) = (split for split in info["splits"] if split["name"] == "train")
    train["shardLengths"] = ["49"]
    (folder / "dataset_info.json").write_text(json.dumps(info))
    with pytest.raises(ValueError, match="Cannot read mnist in"):
        prepared.check(source, str(tmp_path))


def test_what_is_missing_comes_with_its_command(tmp_path, monkeypatch):
    monkeypatch.delenv("SPR_RAW_DIR", raising=False)
    with pytest.raises(
        ValueError, match="There is no animal10n in .*; run `python -m spr_jax.prep"
    ):
        prepared.check(animal_source(), str(tmp_path))
    with pytest.raises(ValueError) as error:
        prepared.load(animal_source(), str(tmp_path))
    assert "must be requested from its publisher" in str(error.value)
    assert f"`python -m spr_jax.prepare animal10n --raw_dir=DIR --data_dir={tmp_path}`" in str(
        error.value
    )
