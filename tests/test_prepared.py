"""Preparing, reading back, checking; and what is left when it goes wrong."""

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from publishers import (
    COUNTS,
    animal_source,
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


def check_examples(examples, images, labels):
    np.testing.assert_array_equal(examples.images, images.reshape(examples.images.shape))
    np.testing.assert_array_equal(examples.labels["label"], labels)


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
        check_examples(read_records(folder, split), images, labels)


def test_loading_maps_the_decoded_arrays(ready, monkeypatch):
    source, data_dir, expected = ready
    monkeypatch.setattr(prepared, "read_records", None)  # not needed any more
    splits = prepared.load(source, str(data_dir))
    for split, (images, labels) in expected.items():
        assert isinstance(splits[split].images, np.memmap)
        check_examples(splits[split], images, labels)


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
    check_examples(prepared.load(source, str(data_dir))["train"], *expected["train"])
    assert (folder / "decoded_train").is_dir()
    assert not (folder / "decoded_train.partial").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_data_folder_that_is_read_only_is_read(copy):
    source, data_dir, expected = copy
    folder = data_dir / "spr_mnist" / VERSION
    shutil.rmtree(folder / "decoded_train")
    folder.chmod(0o555)
    check_examples(prepared.load(source, str(data_dir))["train"], *expected["train"])
    folder.chmod(0o755)


def test_arrays_that_cannot_be_kept_are_used(copy, monkeypatch, caplog):
    source, data_dir, expected = copy
    shutil.rmtree(data_dir / "spr_mnist" / VERSION / "decoded_train")

    def refuse(folder, arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spr_jax.datasets.cache.store", refuse)
    check_examples(prepared.load(source, str(data_dir))["train"], *expected["train"])
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
    assert "cannot be downloaded without its publisher" in str(error.value)
    assert f"`python -m spr_jax.prepare animal10n --raw_dir=DIR --data_dir={tmp_path}`" in str(
        error.value
    )


def test_no_space_is_noticed_before_writing(tmp_path, monkeypatch):
    source, _ = write_mnist(tmp_path / "raw")
    usage = shutil.disk_usage(tmp_path)._replace(free=2**16)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        ValueError, match="has 0 MiB free and 0 MiB are needed; give another folder"
    ):
        prepared.prepare(source, str(tmp_path / "raw"), str(tmp_path / "data"))
    assert prepared.folder_of(source, str(tmp_path / "data")) is None


RUN = """
import os, sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
from publishers import write_mnist
from spr_jax.datasets import prepared, records
raw = Path({raw!r}, str(os.getpid()))
source, _ = write_mnist(raw)
{setup}
prepared.prepare(source, str(raw), {data!r})
"""


def start(tmp_path, setup=""):
    raw, data = str(tmp_path / "raw"), str(tmp_path / "data")
    code = RUN.format(tests=str(Path(__file__).parent), setup=setup, raw=raw, data=data)
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
"""


def test_a_write_that_fails_leaves_nothing_half_made(tmp_path):
    process = start(tmp_path, FULL)
    error = process.communicate(timeout=100)[1]
    source, expected = write_mnist(tmp_path / "raw")
    assert process.returncode == 1
    assert "Cannot prepare mnist in" in error.splitlines()[-1], error
    assert "File too large; give another folder with --data_dir" in error.splitlines()[-1]
    assert not list((tmp_path / "data").rglob("*incomplete*"))
    assert not list((tmp_path / "data").rglob("*.partial"))
    prepared.prepare(source, str(tmp_path / "raw"), str(tmp_path / "data"))
    check_examples(prepared.load(source, str(tmp_path / "data"))["train"], *expected["train"])


SLOW = """
import time
png = records._png
records._png = lambda image: time.sleep(0.1) or png(image)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_it_can_be_run_again(tmp_path, how):
    process = start(tmp_path, SLOW)
    partial_folder = tmp_path / "data" / "spr_mnist"
    deadline = time.monotonic() + 60
    while not list(partial_folder.glob("incomplete.*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(how)
    process.communicate(timeout=60)
    source, expected = write_mnist(tmp_path / "raw")
    assert prepared.folder_of(source, str(tmp_path / "data")) is None
    prepared.prepare(source, str(tmp_path / "raw"), str(tmp_path / "data"))
    check_examples(prepared.load(source, str(tmp_path / "data"))["train"], *expected["train"])
    assert not list(partial_folder.glob("incomplete.*"))


def test_two_at_once_make_one(tmp_path):
    processes = [start(tmp_path, SLOW), start(tmp_path)]
    for process in processes:
        assert "Error" not in process.communicate(timeout=100)[1]
        assert process.returncode == 0
    source, expected = write_mnist(tmp_path / "raw")
    check_examples(prepared.load(source, str(tmp_path / "data"))["test"], *expected["test"])


@pytest.fixture
def publisher(tmp_path, monkeypatch):
    """(source, what it holds, folder of its files) of a server on this machine."""
    monkeypatch.delenv("SPR_RAW_DIR", raising=False)
    source, expected = write_mnist(tmp_path / "raw")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "raw"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"http://127.0.0.1:{server.server_port}"
        urls = {name: f"{host}/{name}" for name in source.urls}
        yield source._replace(urls=urls), expected, tmp_path / "raw"
        server.shutdown()


def test_files_are_downloaded_through_tfds(publisher, tmp_path):
    source, expected, _ = publisher
    splits = prepared.load(source, str(tmp_path / "data"))
    check_examples(splits["train"], *expected["train"])


def test_a_damaged_download_is_fetched_anew(publisher, tmp_path):
    source, expected, raw = publisher
    page = raw / "t10k-labels-idx1-ubyte.gz"
    content = page.read_bytes()
    page.write_text("<html>Please log in.</html>")
    with pytest.raises(ValueError, match="Cannot read .*t10k-labels"):
        prepared.prepare(source, "", str(tmp_path / "data"))
    page.write_bytes(content)
    prepared.prepare(source, "", str(tmp_path / "data"))
    check_examples(prepared.load(source, str(tmp_path / "data"))["test"], *expected["test"])


def test_a_publisher_that_is_away_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("SPR_RAW_DIR", raising=False)
    urls = dict.fromkeys(mnist.SOURCE.urls, "http://127.0.0.1:9/nothing")
    with pytest.raises(ValueError, match="Cannot download mnist .*; get it from http://yann"):
        prepared.prepare(mnist.SOURCE._replace(urls=urls), "", str(tmp_path / "offline"))
