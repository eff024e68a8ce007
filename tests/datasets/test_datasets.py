"""Every loader on small files in its publisher's layout."""

import gzip
import pickle
import zipfile

import numpy as np
import pytest
from PIL import Image
from publishers import (
    COUNTS,
    animal_source,
    cifar10n_source,
    cifar_arrays,
    cifar_md5,
    human_labels,
    make_images,
    write_cifar10,
    write_mnist,
)

from spr_jax.datasets import DATASETS, animal10n, cifar10, cifar10n, mnist
from spr_jax.datasets.source import check_examples
from spr_jax.registry import defaults


def check_splits(splits, expected):
    for name, (images, labels) in expected.items():
        np.testing.assert_array_equal(
            splits[name].images, images.reshape(splits[name].images.shape)
        )
        np.testing.assert_array_equal(splits[name].labels["label"], labels)


def test_digits_are_embedded():
    dataset = DATASETS["digits"]()
    assert dataset.train.images.shape == (1438, 8, 8, 1)
    assert len(dataset.tests["test"].labels) == 359
    assert np.bincount(dataset.train.labels).min() > 100
    scaled = dataset.train.images / 255
    assert scaled.mean() == pytest.approx(dataset.mean[0], abs=0.001)
    assert scaled.std() == pytest.approx(dataset.std[0], abs=0.001)


def test_every_data_set_has_one_line_and_options():
    for name, load in DATASETS.items():
        assert len(load.__doc__.splitlines()[0]) > 20
        assert defaults(DATASETS, name)["name"] == name


def test_mnist_reads_idx(tmp_path):
    source, expected = write_mnist(tmp_path)
    check_splits(source.read(tmp_path), expected)


def test_mnist_reads_unpacked_idx(tmp_path):
    source, expected = write_mnist(tmp_path / "MNIST" / "raw")
    for path in (tmp_path / "MNIST" / "raw").iterdir():
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    check_splits(source.read(tmp_path), expected)


def test_mnist_names_a_missing_a_cut_and_a_wrong_file(tmp_path):
    source, _ = write_mnist(tmp_path)
    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(ValueError, match="There is no t10k-labels-idx1-ubyte.gz .* in"):
        source.read(tmp_path)
    path.write_bytes(content[:-12])
    with pytest.raises(ValueError, match="Cannot read .*t10k-labels.* download it again"):
        source.read(tmp_path)
    path.write_bytes(b"no gzip")
    with pytest.raises(ValueError, match="Cannot read .*t10k-labels"):
        source.read(tmp_path)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="train-images.* has the md5 .*; expected 6bbc9ace"):
        mnist.read(tmp_path)


@pytest.mark.parametrize("python", [False, True])
@pytest.mark.parametrize("archive", [False, True])
def test_cifar10_reads_both_versions_packed_or_not(tmp_path, python, archive):
    source = write_cifar10(tmp_path, python=python, archive=archive)
    check_splits(source.read(tmp_path), cifar_arrays())


@pytest.mark.parametrize("python", [False, True])
def test_cifar10_reads_the_folder_itself(tmp_path, python):
    source = write_cifar10(tmp_path, python=python)
    (home,) = tmp_path.iterdir()
    check_splits(source.read(home), cifar_arrays())


def test_cifar10_names_what_is_wrong(tmp_path):
    source = write_cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin"
    with pytest.raises(ValueError, match="data_batch_1 .* has the md5 .*; expected 5dd7e06a"):
        cifar10.read(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="data_batch_3 of CIFAR-10 in .* has the md5"):
        source.read(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match="There is no data_batch_3 of CIFAR-10"):
        source.read(tmp_path)
    with pytest.raises(ValueError, match="There is no cifar-10-batches-bin .or cifar-10-binary"):
        source.read(tmp_path / "cifar-10-batches-bin" / "nowhere")


def test_cifar10_names_a_cut_archive(tmp_path):
    source = write_cifar10(tmp_path, archive=True)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:50_000])
    with pytest.raises(ValueError, match="Cannot read CIFAR-10 in .*tar.gz: .*download it again"):
        source.read(tmp_path)


class Harmful:
    def __reduce__(self):
        return (print, ("run",))


def test_a_pickle_that_would_run_code_is_refused(tmp_path, capsys):
    source = write_cifar10(tmp_path, python=True)
    harmful = pickle.dumps({"labels": Harmful(), "data": 0})
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").write_bytes(harmful)
    with pytest.raises(ValueError, match="asks for builtins.print"):
        source.read(tmp_path)
    assert "run" not in capsys.readouterr().out


def write_npz(folder, columns):
    np.savez(folder / "cifar10n.npz", **columns)


def write_torch(folder, columns):
    """Write as torch.save does: a zip with the pickle in a folder."""
    with zipfile.ZipFile(folder / "CIFAR-10_human.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(columns, protocol=2))
        archive.writestr("archive/version", "3\n")


def write_table(folder, columns):
    """In the order in which TFDS shuffles the images."""
    order = np.random.default_rng(0).permutation(COUNTS["train"])
    np.save(folder / "image_order_c10.npy", order)
    rows = np.stack(list(columns.values()), axis=1)[order]
    text = "\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)])
    (folder / "CIFAR-10_human_annotations.csv").write_text(text)


@pytest.mark.parametrize("write", [write_npz, write_torch, write_table])
def test_cifar10n_reads_human_labels(tmp_path, write):
    write_cifar10(tmp_path)
    write(tmp_path, human_labels())
    splits = cifar10n_source().read(tmp_path)
    check_splits(splits, cifar_arrays())
    for ours, theirs in cifar10n.OPINIONS.items():
        np.testing.assert_array_equal(splits["train"].labels[ours], human_labels()[theirs])


def test_cifar10n_labels_of_another_order_are_refused(tmp_path):
    write_cifar10(tmp_path)
    write_npz(tmp_path, {name: column[::-1] for name, column in human_labels().items()})
    with pytest.raises(ValueError, match="human labels in .* not in the order of the images"):
        cifar10n.read(tmp_path, cifar_md5())


def test_cifar10n_names_a_file_without_the_columns(tmp_path):
    write_cifar10(tmp_path)
    write_torch(tmp_path, {"clean_label": human_labels()["clean_label"]})
    with pytest.raises(ValueError, match="Cannot read .*CIFAR-10_human.pt: 'aggre_label'"):
        cifar10n.read(tmp_path, cifar_md5())


def test_cifar10n_opinion_is_an_option():
    with pytest.raises(ValueError, match="Unknown name 'worse'; did you mean 'worst'"):
        DATASETS["cifar10n"](labels="worse")


def write_animals(folder):
    """Names begin with the label; listings come in any order."""
    expected = {}
    for split, home in {"train": "training", "test": "testing"}.items():
        (folder / home).mkdir(parents=True)
        images, labels = make_images(COUNTS[split], 64, 64, 3)
        for k, (image, label) in enumerate(zip(images, labels, strict=True)):
            Image.fromarray(image).save(folder / home / f"{label}_{k:05}.png")
        order = np.argsort([f"{label}_{k:05}" for k, label in enumerate(labels)])
        expected[split] = images[order], labels[order]
    return expected


def test_animal10n_reads_folders(tmp_path):
    expected = write_animals(tmp_path)
    check_splits(animal10n.read(tmp_path), expected)


def test_animal10n_reads_binary_batches(tmp_path):
    images, labels = make_images(60, 3, 64, 64)
    records = np.zeros(60, animal10n.RECORD)
    records["id"], records["label"], records["planes"] = np.arange(60), labels, images
    for k in range(10):  # data_batch_10 comes after data_batch_9
        records[5 * k : 5 * k + 5].tofile(tmp_path / f"data_batch_{k + 1}.bin")
    records[50:].tofile(tmp_path / "test_batch.bin")
    images = images.transpose(0, 2, 3, 1)
    expected = {"train": (images[:50], labels[:50]), "test": (images[50:], labels[50:])}
    check_splits(animal10n.read(tmp_path), expected)
    (tmp_path / "data_batch_4.bin").write_bytes(b"cut")
    with pytest.raises(ValueError, match="data_batch_4.bin has 3 bytes"):
        animal10n.read(tmp_path)


@pytest.mark.parametrize("name", ["x_1.png", "12_1.png", "_1.png"])
def test_animal10n_names_an_image_without_a_label(tmp_path, name):
    write_animals(tmp_path)
    Image.new("RGB", (64, 64)).save(tmp_path / "training" / name)
    with pytest.raises(ValueError, match=f"{name} .*begins with a label"):
        animal10n.read(tmp_path)


def test_animal10n_names_an_image_of_another_size(tmp_path):
    write_animals(tmp_path)
    Image.new("RGB", (64, 63)).save(tmp_path / "training" / "1_x.png")
    with pytest.raises(ValueError, match="1_x.png is 64x63 pixels; expected 64x64"):
        animal10n.read(tmp_path)


def test_animal10n_labels_out_of_range_are_described(tmp_path):
    records = np.zeros(60, animal10n.RECORD)
    records["label"][3] = 12
    records[:50].tofile(tmp_path / "data_batch_1.bin")
    records[50:].tofile(tmp_path / "test_batch.bin")
    examples = animal10n.read(tmp_path)["train"]
    with pytest.raises(ValueError, match="'label' from 0 to 12; expected 50 from 0 to 9"):
        check_examples(animal_source(), "train", examples)


def test_missing_examples_are_counted(tmp_path):
    write_animals(tmp_path)
    with pytest.raises(ValueError, match="has 50 examples; expected 50000"):
        check_examples(animal10n.SOURCE, "train", animal10n.read(tmp_path)["train"])
