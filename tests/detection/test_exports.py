"""Results for other tools, read back and compared with the detection."""

import csv
import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from detections import made_up, pets

from spr_jax.detection import exports
from spr_jax.detection.exports import EXPORTS, export
from spr_jax.detection.results import write_results

NAMES = (
    "plain.png",
    "with space/and #hash.png",
    "100 % sure?.png",
    "quote\"s and 's.png",
    "naïve 猫.png",
    "=cmd|' /C calc'!A0.png",
    "line\nbreak.png",
    "return\r.png",
    "a&b<c>.png",
    "back\\slash;semi,comma.png",
)
LABELS = ("=cmd()", 'a "cat"', "猫 & <dog>", "two\nlines")


@pytest.fixture
def judged(tmp_path):
    """Ten files with hostile names and labels, and what was found."""
    root = tmp_path / "my photos #1"
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    labels = np.array(LABELS)[np.arange(10) % 4]
    suggested = np.array(LABELS)[np.arange(10) % 3]
    wrong = np.random.default_rng(0).random(10)
    return made_up(labels, suggested, wrong), labels, root


def write(judged, name, out):
    found, labels, root = judged
    (path,) = export(found, labels, [name], out, names=NAMES, root=root)
    return path


def matches(found, index, row):
    """Tell whether a row of JSON has what was found of an example."""
    return (
        row["error_probability"] == pytest.approx(found.error_probability[index], rel=1e-5)
        and row["rank"] == found.rank[index]
        and row["suspect"] is not bool(found.clean[index])
    )


def test_fiftyone(judged, tmp_path):
    found, labels, root = judged
    content = json.loads(write(judged, "fiftyone", tmp_path / "out").read_text())
    assert content["classes"] == sorted(LABELS)
    assert list(content["labels"]) == [str(root / name) for name in NAMES]
    assert all(Path(path).is_absolute() and Path(path).exists() for path in content["labels"])
    for index, entry in enumerate(content["labels"].values()):
        assert entry["label"] == entry["attributes"]["given_label"] == labels[index]
        assert entry["attributes"]["suggested_label"] == found.suggested[index]
        assert matches(found, index, entry["attributes"])


def test_label_studio(judged, tmp_path):
    found, labels, root = judged
    path = write(judged, "labelstudio", tmp_path / "out")
    tasks = json.loads(path.read_text())
    assert [task["data"]["index"] for task in tasks] == found.order.tolist()
    config = xml.fromstring((path.parent / "config.xml").read_text())
    choices = config.find("Choices")
    assert [choice.get("value") for choice in choices] == sorted(LABELS)
    assert config.find("Image").get("value") == "$image"
    for task in tasks:
        index, data = task["data"]["index"], task["data"]
        address = urlsplit(data["image"])
        served = parse_qs(address.query, strict_parsing=True)["d"]  # as the server reads it
        assert address.path == "/data/local-files/" and not address.fragment
        assert [root.parent / name for name in served] == [root / NAMES[index]]
        assert (data["file"], data["given_label"]) == (NAMES[index], labels[index])
        assert matches(found, index, data)
        (prediction,) = task["predictions"]
        assert prediction["score"] == pytest.approx(1 - found.error_probability[index], abs=1e-5)
        (result,) = prediction["result"]
        assert result["value"] == {"choices": [found.suggested[index]]}
        assert result["from_name"] == choices.get("name")
        assert result["to_name"] == choices.get("toName") == config.find("Image").get("name")
        assert result["type"] == "choices"


def test_hugging_face(judged, tmp_path):
    found, labels, root = judged
    text = write(judged, "huggingface", tmp_path / "out").read_text()
    rows = [json.loads(line) for line in text.split("\n")[:-1]]
    assert [row["file_name"] for row in rows] == list(NAMES)
    for index, row in enumerate(rows):
        assert (row["label"], row["suggested"]) == (labels[index], found.suggested[index])
        assert matches(found, index, row)


def test_cleanlab(judged, tmp_path):
    found, labels, _ = judged
    with open(write(judged, "cleanlab", tmp_path / "out"), newline="") as file:
        rows = list(csv.DictReader(file))
    columns = ["is_label_issue", "label_quality", "given_label", "predicted_label"]
    assert list(rows[0]) == columns
    assert [row["is_label_issue"] == "True" for row in rows] == (~found.clean).tolist()
    assert [row["given_label"] for row in rows] == labels.tolist()
    assert [row["predicted_label"] for row in rows] == found.suggested.tolist()
    quality = [float(row["label_quality"]) for row in rows]
    np.testing.assert_allclose(quality, 1 - found.error_probability, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")  # cleanlab and scikit-learn warn
def test_columns_are_those_of_cleanlab():
    cleanlab = pytest.importorskip("cleanlab.classification")
    linear_model = pytest.importorskip("sklearn.linear_model")
    features, given, found, _ = pets()
    codes = np.unique(given, return_inverse=True)[1]
    rival = cleanlab.CleanLearning(linear_model.LogisticRegression(), seed=0)
    theirs = rival.find_label_issues(features, codes)
    assert set(found.as_cleanlab(given)) == set(theirs.columns)


def test_parquet(judged, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    found, labels, _ = judged
    table = parquet.read_table(write(judged, "parquet", tmp_path / "out")).to_pydict()
    assert table["file"] == list(NAMES) and table["label"] == labels.tolist()
    assert table["is_label_issue"] == table["suspect"] == (~found.clean).tolist()
    np.testing.assert_array_equal(table["error_probability"], found.error_probability)
    np.testing.assert_array_equal(table["rank"], found.rank)
    write_results(found, labels, np.array(NAMES), {}, tmp_path)
    with open(tmp_path / "labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(table)
    assert [row["file"] for row in rows] == list(NAMES)  # text, whatever it looks like


def test_integers_and_no_names(tmp_path):
    _, given, found, _ = pets()
    codes = np.unique(given, return_inverse=True)[1]
    found = found._replace(suggested=np.unique(found.suggested, return_inverse=True)[1])
    (path,) = export(found, codes.tolist(), ["cleanlab"], tmp_path)
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["given_label"]) for row in rows] == codes.tolist()


@pytest.mark.parametrize("name", ["fiftyone", "labelstudio", "huggingface"])
def test_what_needs_files_is_refused_without(judged, tmp_path, name):
    found, labels, root = judged
    out = tmp_path / "out"
    refused = [
        (None, None, "only features"),
        (NAMES, None, "only features"),
        (["no.png", *NAMES[1:9], "nor.png"], root, "2 of 10 are not in .*'no.png'"),
        (["../x.png", *NAMES[1:]], root, "1 of 10 are not in"),
        ([str(root / NAMES[0]), *NAMES[1:]], root, "1 of 10 are not in"),
    ]
    (root.parent / "x.png").write_bytes(b"")
    for names, place, says in refused:
        with pytest.raises(ValueError, match=f"export {name} needs image files.*{says}"):
            export(found, labels, ["cleanlab", name], out, names=names, root=place)
    assert not out.exists()


def test_unknown_names_are_refused(judged, tmp_path):
    with pytest.raises(ValueError, match="'fiftytwo'; did you mean 'fiftyone'?"):
        write(judged, "fiftytwo", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named(judged, tmp_path, monkeypatch):
    monkeypatch.setattr(exports.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="parquet needs pyarrow, .* pip install pyarrow"):
        write(judged, "parquet", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_control_characters_do_not_fit_into_xml(judged, tmp_path):
    found, labels, root = judged
    labels = np.where(labels == LABELS[0], "dog\x1b[31m", labels)
    with pytest.raises(ValueError, match=r"'dog\\x1b\[31m' has a control character"):
        write((found, labels, root), "labelstudio", tmp_path / "out")
    write((found, labels, root), "fiftyone", tmp_path / "out")


@pytest.mark.parametrize("name", EXPORTS)
def test_files_appear_whole_or_not_at_all(judged, tmp_path, monkeypatch, name):
    if name == "parquet":
        pytest.importorskip("pyarrow")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        write(judged, name, tmp_path / "out")
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_other_packages_are_not_needed(judged, tmp_path, monkeypatch):
    for package in ("fiftyone", "label_studio", "datasets", "cleanlab", "pandas", "pyarrow"):
        monkeypatch.setitem(sys.modules, package, None)
    for name in set(EXPORTS) - {"parquet"}:
        assert write(judged, name, tmp_path / "out").exists()
