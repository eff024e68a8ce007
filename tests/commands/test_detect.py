"""The detector as a command, on files of features and labels."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import make_data
from detections import made_up

from spr_jax import apply, find_label_errors
from spr_jax.detect import main, parse_arguments
from spr_jax.detection.options import DetectorOptions

ROOT = Path(__file__).parents[2]
GOOD = np.random.default_rng(0).random((6, 4)), np.array([0, 0, 0, 1, 1, 1])


@pytest.fixture
def quick_detector(monkeypatch):
    """Stand in for the detector, which takes long to compile; it finds half of the labels wrong."""

    def find(features, labels, **options):
        assert set(options) == set(DetectorOptions._fields) and len(features) == len(labels)
        return made_up(labels, labels, np.linspace(0, 1, len(labels)))

    monkeypatch.setattr("spr_jax.detect.find_label_errors", find)


def read_table(out):
    with open(out / "labels.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_options_reach_the_detector(tmp_path, monkeypatch, capsys):
    asked = {}

    def find(features, labels, **options):
        asked.update(options, features=features)
        return made_up(labels, labels, np.linspace(0, 1, len(labels)))

    monkeypatch.setattr("spr_jax.detect.find_label_errors", find)
    main([f"--out={tmp_path}", "--keep=0.7", "--per_class=10", "--pca_dim=5", "--seed=3"])
    assert asked.pop("features").shape == (1797, 64)  # the digits
    options = {"keep": 0.7, "per_class": 10, "pca_dim": 5, "seed": 3, "progress": False}
    assert asked == DetectorOptions(**options)._asdict()
    assert "1,797 examples of 10 classes" in capsys.readouterr().out
    assert "UklGR" in (tmp_path / "report.html").read_text()  # the digits as WebP


@pytest.mark.slow
def test_command_writes_what_it_found(tmp_path, capsys):
    features, given, _ = make_data(200)
    names = np.array(["ant", "bee", "=cat()", "dog\x1b[31m"])
    np.save(tmp_path / "features.npy", features)
    np.save(tmp_path / "labels.npy", names[given])
    out = tmp_path / "deep" / "out"
    main([str(tmp_path / "features.npy"), str(tmp_path / "labels.npy"), f"--out={out}", "--top=3"])
    printed = capsys.readouterr().out
    assert "200 examples of 4 classes" in printed and "% of the labels are wrong" in printed
    assert "\x1b" not in printed  # names are text, not terminal commands

    found = find_label_errors(features, names[given])  # the same program
    rows = read_table(out)
    columns = "index label suspect error_probability entry_penalty rank suggested "
    columns += "is_label_issue label_quality given_label predicted_label"
    assert list(rows[0]) == columns.split()
    assert [row["label"] for row in rows] == names[given].tolist()
    assert [row["suspect"] == "1" for row in rows] == (~found.clean).tolist()
    assert [row["suggested"] for row in rows] == found.suggested.tolist()
    for name, rtol in (("entry_penalty", 1e-5), ("error_probability", 1e-4)):
        written = [float(row[name]) for row in rows]
        np.testing.assert_allclose(written, getattr(found, name), rtol=rtol)
    ranks = np.array([int(row["rank"]) for row in rows])
    np.testing.assert_array_equal(np.argsort(ranks), found.order)
    assert str(found.order[0]) in printed

    summary = json.loads((out / "summary.json").read_text())
    assert summary["examples"] == 200
    assert summary["suspect"] == sum(row["suspect"] for row in summary["classes"])
    assert (
        summary["duality_gap"] == found.duality_gap and summary["wrong_share"] == found.noise.rate
    )
    assert summary["features_explain_labels"] and summary["classes"][0]["label"] == "=cat()"
    files = ["labels.csv", "report.html", "summary.json"]
    assert sorted(path.name for path in out.iterdir()) == files


def test_names_of_the_examples_lead_from_the_command_to_its_corrections(tmp_path, quick_detector):
    features, given, _ = make_data(200)
    np.save(tmp_path / "features.npy", features)
    names = [f"photos/{place}.png" for place in range(200)]
    with open(tmp_path / "labels.csv", "w", newline="") as file:
        csv.writer(file).writerows([("file", "label"), *zip(names, given, strict=True)])
    main([str(tmp_path / "features.npy"), str(tmp_path / "labels.csv"), f"--out={tmp_path}/out"])
    assert [row["file"] for row in read_table(tmp_path / "out")] == names

    page = (tmp_path / "out" / "report.html").read_text()
    assert names[0] in page and names[-1] in page
    answer = f"id,label,corrected\n{names[7]},{given[7]},{(given[7] + 1) % 4}\n"
    (tmp_path / "corrections.csv").write_text(answer)
    (tmp_path / "fixed").mkdir()
    fixed = tmp_path / "fixed" / "labels.csv"
    corrections, found = (str(tmp_path / name) for name in ("corrections.csv", "out/labels.csv"))
    apply.main([corrections, found, f"--out={fixed}"])
    mended = [int(row["label"]) for row in read_table(fixed.parent)]
    assert np.flatnonzero(mended != given).tolist() == [7] and mended[7] == (given[7] + 1) % 4


def test_a_table_and_its_exports(tmp_path, monkeypatch, capsys, quick_detector):
    features, given, _ = make_data(50)
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    files = [f"photos/{place} #1.png" for place in range(50)]
    for file in files:
        Path(file).touch()
    columns = zip(files, features[:, 0], 1000 * features[:, 1], files, given, strict=True)
    with open("table.csv", "w", newline="") as file:
        csv.writer(file).writerows([("photo", "x", "y", "note", "kind"), *columns])
    main(["table.csv", "--label=kind", "--id=photo", "--export=fiftyone,labelstudio,cleanlab"])
    printed = capsys.readouterr().out
    assert "Features: 2 numbers (x, y); not numbers, left out: note." in printed
    assert f"Exported {Path('found/fiftyone/labels.json')}" in printed
    assert [row["file"] for row in read_table(Path("found"))] == files
    exported = json.loads(Path("found/fiftyone/labels.json").read_text())
    assert list(exported["labels"]) == [str(tmp_path / file) for file in files]
    assert len(json.loads(Path("found/labelstudio/tasks.json").read_text())) == 50


@pytest.mark.slow
def test_command_names_the_classes_that_cannot_keep_a_level(tmp_path, capsys):
    main([f"--out={tmp_path}", "--max_noise_in_clean=0.005"])
    printed = capsys.readouterr().out
    summary = json.loads((tmp_path / "summary.json").read_text())
    missed = [row for row in summary["classes"] if not row["attained"]]
    assert summary["asked"] == {"level": 0.005, "kind": "clean"} and missed
    assert f"{len(missed)} of 10 classes" in printed
    lowest = f"{100 * missed[0]['lowest_level']:.1f} %"
    assert f"{missed[0]['label']} (not below {lowest})" in printed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.npy", "labels.npy"], "missing.npy"),
        (["features.npy", "short.npy"], "6 rows of features but 2 labels"),
        (["features.npy", "labels.npy", "--keep=2"], "keep is 2.0"),
        (["features.npy"], "labels"),
        (["features.npy", "labels.npy", "--export=fiftytwo"], "did you mean 'fiftyone'?"),
        (["features.npy", "labels.npy", "--export=cleanlab,fiftyone"], "needs image files"),
        (["table.csv", "--label=lable"], "no column 'lable'; did you mean 'label'?"),
        (["table.csv", "--label=label", "--features_columns=x,why"], "no column 'why'"),
        (["table.csv", "labels.npy", "--label=label"], "--label names a column of one table"),
        (["--label=label"], "--label names a column of one table"),
        (["features.npy", "labels.npy", "--id=x"], "--id name columns"),
        (["features.npy", "--label=label"], ".csv or .parquet"),
        (["features.npy", "labels.npy", "--top=-1"], "--top is -1"),
        (["features.npy", "labels.npy", "--out=labels.npy"], "labels.npy"),
    ],
)
def test_command_ends_with_code_2_and_one_sentence(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    np.save("features.npy", GOOD[0])
    np.save("labels.npy", GOOD[1])
    np.save("short.npy", GOOD[1][:2])
    Path("table.csv").write_text("x,y,label\n1,2,a\n3,4,b\n")
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert says in error
    assert "python -m spr_jax.detect: " in error and "Traceback" not in error
    assert not Path("found").exists()


@pytest.mark.slow
def test_results_are_written_even_if_nobody_reads_the_summary(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    command = f"{sys.executable} -m spr_jax.detect --out={tmp_path / 'out'} | head -n 1"
    subprocess.run(command, shell=True, env=environment, capture_output=True, timeout=120)
    assert len(read_table(tmp_path / "out")) == 1797


def test_command_says_when_the_disk_is_full(tmp_path, monkeypatch, capsys, quick_detector):
    features, given, _ = make_data(200)
    monkeypatch.chdir(tmp_path)
    np.save("features.npy", features)
    np.save("labels.npy", given)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(SystemExit) as end:
        main(["features.npy", "labels.npy"])
    assert end.value.code == 2
    assert "No space left on device" in capsys.readouterr().err
    assert not list(Path("found").iterdir())


@pytest.mark.slow
def test_command_as_a_process_without_arguments(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "spr_jax.detect"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "1,797 examples of 10 classes" in done.stdout
    assert len(read_table(tmp_path / "found")) == 1797


def test_the_program_is_called_what_the_user_typed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/spr-detect"])
    with pytest.raises(SystemExit):
        parse_arguments(["--top=-1"])
    error = capsys.readouterr().err
    assert error.startswith("usage: spr-detect ") and "spr-detect: error: --top is -1" in error


def test_features_larger_than_memory_stay_in_their_files(
    tmp_path, monkeypatch, capsys, quick_detector
):
    features, labels = GOOD
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, part in enumerate(np.split(features, 2)):
        np.save(parts / f"{number}.npy", part)
    np.save(tmp_path / "labels.npy", labels)
    arguments = [str(parts), str(tmp_path / "labels.npy"), f"--out={tmp_path / 'found'}"]
    main(arguments)  # a small folder is read
    assert (tmp_path / "found" / "report.html").exists()

    monkeypatch.setattr("spr_jax.detection.find.IN_MEMORY", 0)
    monkeypatch.setattr("spr_jax.detection.results.ROWS", 4)
    arguments[-1] = f"--out={tmp_path / 'large'}"
    main(arguments)
    assert "no review page" in capsys.readouterr().out
    assert [row["index"] for row in read_table(tmp_path / "large")] == list("012345")
    assert not (tmp_path / "large" / "report.html").exists()

    (parts / "1.npy").unlink()
    np.save(parts / "1.npy", features[:, :3])
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "1.npy has 3 columns" in capsys.readouterr().err


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path, monkeypatch, capsys, quick_detector):
    features, labels = GOOD
    np.save(tmp_path / "features.npy", features)
    np.save(tmp_path / "labels.npy", labels)

    def full(columns):
        yield (0,) * len(columns)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spr_jax.detection.results._cells", full)
    out = tmp_path / "found"
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path / "features.npy"), str(tmp_path / "labels.npy"), f"--out={out}"])
    assert stopped.value.code == 2 and not list(out.iterdir())
    assert "No space left on device" in capsys.readouterr().err
