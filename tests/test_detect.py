import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import make_data

import spr_jax
from spr_jax import Detection, apply, find_label_errors
from spr_jax.detect import main, noisy_digits

ROOT = Path(__file__).parent.parent


def test_errors_in_the_digits_are_found():
    features, given, true = noisy_digits(rate=0.2)
    found = find_label_errors(features, given)
    assert isinstance(found, Detection)
    wrong = given != true
    for order in (found.order, np.argsort(-found.entry)):
        assert wrong[order[: wrong.sum()]].mean() > 0.9
    assert wrong[found.clean].mean() < 0.03 and wrong[~found.clean].mean() > 0.9
    assert (found.suggested == true).mean() > 0.9
    assert found.gap <= 1e-3
    half = find_label_errors(features, given, keep=0.5)
    assert half.clean.mean() == pytest.approx(0.5, abs=0.01) and not wrong[half.clean].any()
    np.testing.assert_array_equal(half.order, np.argsort(-half.entry, kind="stable"))


def test_share_of_wrong_labels_is_estimated():
    features, given, true = noisy_digits(rate=0.2)
    noise = find_label_errors(features, given).noise
    wrong = given != true
    assert noise.interval[0] < noise.rate < noise.interval[1]
    assert noise.rate == pytest.approx(wrong.mean(), abs=0.03) and noise.explained
    by_class = [wrong[given == label].mean() for label in noise.classes]
    np.testing.assert_allclose(noise.by_class, by_class, atol=0.1)
    np.testing.assert_allclose(noise.confusion.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(1 - np.diag(noise.confusion), noise.by_class, atol=1e-5)


def test_levels_are_kept_or_reported():
    features, given, true = noisy_digits(rate=0.2)
    wrong = given != true
    kept = find_label_errors(features, given, max_noise_in_clean=0.05)
    assert 0 < wrong[kept.clean].mean() + 1e-9 <= 0.05 and kept.clean.mean() > 0.5
    assert (kept.promise.level, kept.promise.of) == (0.05, "clean")
    flagged = find_label_errors(features, given, max_false_alarms=0.1)
    assert (~wrong)[~flagged.clean].mean() <= 0.1 and (~flagged.clean).mean() > 0.05
    strict = find_label_errors(features, given, max_noise_in_clean=0.001)
    assert not strict.promise.attained.any() and not strict.clean.any()
    assert (strict.promise.lowest > 0.001).all()


def test_random_labels_are_said_to_be():
    features, _, true = noisy_digits()
    random = np.random.default_rng(0).permutation(true)
    assert not find_label_errors(features, random).noise.explained


def test_right_labels_are_hardly_flagged():
    features, _, true = noisy_digits()
    found = find_label_errors(features, true)
    assert found.noise.rate < 0.02 and (~found.clean).mean() < 0.02


def test_same_call_same_answer(data):
    features, given, _ = data
    first, again = (find_label_errors(features, given, per_class=10, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.entry, again.entry)


def test_class_names_and_gaps_in_the_labels_are_the_users(data):
    features, given, _ = data
    numbers = find_label_errors(features, given)
    spread = find_label_errors(features, given * 100 + 7)
    names = np.array(["ant", "bee", "cat", "dog"])
    text = find_label_errors(features, names[given])
    objects = find_label_errors(features, names[given].astype(object))
    encoded = find_label_errors(features, names[given].astype("S"))
    numbers_as_objects = find_label_errors(features, given.astype(object))
    floats = find_label_errors(features, given.astype(np.float32))
    for other in (spread, text, objects, encoded, numbers_as_objects, floats):
        np.testing.assert_array_equal(other.entry, numbers.entry)
    np.testing.assert_array_equal(spread.suggested, numbers.suggested * 100 + 7)
    np.testing.assert_array_equal(text.suggested, names[numbers.suggested])


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e3, 1e30])
def test_scale_of_the_features_does_not_matter(data, scale):
    features, given, _ = data
    straight = find_label_errors(features, given)
    scaled = find_label_errors((features * scale).astype(np.float32), given)
    np.testing.assert_allclose(scaled.entry, straight.entry, rtol=1e-3)


@pytest.mark.parametrize("scale", [1e-300, 1e30])
def test_double_precision_is_brought_to_scale_before_it_is_rounded(data, scale):
    features, given, _ = data
    straight = find_label_errors(features, given)
    moved = find_label_errors((features + 1e6) * scale, given)
    np.testing.assert_allclose(moved.entry, straight.entry, rtol=1e-3)


def test_classes_of_unequal_size():
    features, given, true = make_data(2000, 16, 4, rate=0.05, separation=2.0)
    rare = (true >= 2) & (np.arange(2000) % 15 > 0)
    features, given, true = features[~rare], given[~rare], true[~rare]
    found = find_label_errors(features, given)
    wrong = given != true
    assert wrong[np.argsort(-found.entry)[: wrong.sum()]].mean() > 0.95
    assert (found.suggested == true).mean() > 0.98


@pytest.mark.parametrize("dtype", [np.float16, np.uint8, np.int64, bool])
def test_any_numbers_are_features(data, dtype):
    features, given, _ = data
    assert np.isfinite(find_label_errors(features.astype(dtype), given).entry).all()


GOOD = np.random.default_rng(0).random((6, 4)), np.array([0, 0, 0, 1, 1, 1])


def with_value(value):
    features = GOOD[0].copy()
    features[[2, 4], 1] = value
    return features


@pytest.mark.parametrize(
    ("features", "labels", "says"),
    [
        (GOOD[0], GOOD[1][:5], "6 rows of features but 5 labels"),
        (with_value(np.nan), GOOD[1], "2 rows .* NaN or infinite .* first at index 2"),
        (with_value(-np.inf), GOOD[1], "2 rows .* NaN or infinite .* first at index 2"),
        (with_value(1e300), GOOD[1], "2 rows .* first at index 2"),
        (GOOD[0], GOOD[1] + 0.5, "6 labels are not integers, the first is 0.5 at index 0"),
        (GOOD[0], np.array([0, 1, 0, 1, np.nan, 0]), "1 labels are not integers"),
        (GOOD[0], GOOD[1] - 1, "3 labels are negative, the first is -1 at index 0"),
        (GOOD[0], GOOD[1] * 0, "All labels are 0; expected at least two classes"),
        (GOOD[0], np.array([None] * 6), "type object; expected integers or class names"),
        (GOOD[0][:0], GOOD[1][:0], "empty, of shape .0, 4."),
        (GOOD[0][:, :0], GOOD[1], "empty, of shape .6, 0."),
        (GOOD[0][0], GOOD[1], "shape .4,.; expected .examples, features."),
        (GOOD[0].astype(str), GOOD[1], "type <U.*; expected numbers"),
        (GOOD[0], GOOD[1][:, None], "Labels have the shape .6, 1."),
        (GOOD[0], GOOD[1] * 1e300, "3 labels are not integers"),
        ([[1.0, 2.0], [3.0]], [0, 1], "Features are not one array"),
    ],
)
def test_bad_arrays_are_described(features, labels, says):
    with pytest.raises(ValueError, match=says):
        find_label_errors(features, labels)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"keep": 0}, "keep is 0; expected a share between 0 and 1"),
        ({"keep": 1.0}, "keep is 1.0; expected a share between 0 and 1"),
        ({"keep": float("nan")}, "keep is nan"),
        ({"per_class": 0}, "per_class is 0; expected 1 or more"),
        ({"pca_dim": -3}, "pca_dim is -3; expected 1 or more"),
        ({"classes_per_group": 1}, "classes_per_group is 1; expected 2 or more"),
        ({"per_class": 2.5}, "per_class is 2.5; expected 1 or more"),
        ({"keep": "0.5"}, "keep is '0.5'; expected a share"),
        ({"keep": np.array([0.5, 0.5])}, "keep is array"),
        ({"max_noise_in_clean": 0.0}, "max_noise_in_clean is 0.0; expected a share between"),
        ({"max_false_alarms": 1}, "max_false_alarms is 1; expected a share between"),
        ({"keep": 0.5, "max_false_alarms": 0.1}, "max_false_alarms=0.1 and keep=0.5; give one"),
        ({"seed": -1}, "seed is -1; expected an integer from 0"),
        ({"seed": 10**30}, "seed is 10+; expected an integer from 0"),
    ],
)
def test_bad_options_are_described(option, says):
    with pytest.raises(ValueError, match=says):
        find_label_errors(*GOOD, **option)


def read_table(out):
    with open(out / "labels.csv", newline="") as file:
        return list(csv.DictReader(file))


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

    found = find_label_errors(features, names[given])
    rows = read_table(out)
    assert list(rows[0]) == ["index", "label", "suspect", "wrong", "entry", "rank", "suggested"]
    assert [row["label"] for row in rows] == names[given].tolist()
    assert [row["suspect"] == "1" for row in rows] == (~found.clean).tolist()
    assert [row["suggested"] for row in rows] == found.suggested.tolist()
    np.testing.assert_allclose([float(row["entry"]) for row in rows], found.entry, rtol=1e-5)
    np.testing.assert_allclose([float(row["wrong"]) for row in rows], found.wrong, rtol=1e-4)
    ranks = np.array([int(row["rank"]) for row in rows])
    np.testing.assert_array_equal(np.argsort(ranks), found.order)
    assert str(found.order[0]) in printed

    summary = json.loads((out / "summary.json").read_text())
    assert summary["examples"] == 200
    assert summary["suspect"] == sum(row["suspect"] for row in summary["classes"])
    assert summary["gap"] == found.gap and summary["wrong_share"] == found.noise.rate
    assert summary["features_explain_labels"] and summary["classes"][0]["label"] == "=cat()"
    files = ["labels.csv", "report.html", "summary.json"]
    assert sorted(path.name for path in out.iterdir()) == files


def test_names_of_the_examples_lead_from_the_command_to_its_corrections(tmp_path):
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


def test_command_names_the_classes_that_cannot_keep_a_level(tmp_path, capsys):
    main([f"--out={tmp_path}", "--max_noise_in_clean=0.02"])
    printed = capsys.readouterr().out
    summary = json.loads((tmp_path / "summary.json").read_text())
    missed = [row for row in summary["classes"] if not row["attained"]]
    assert summary["asked"] == {"level": 0.02, "of": "clean"} and missed
    assert f"{len(missed)} of 10 classes cannot keep this" in printed
    assert f"{missed[0]['label']} (not below {100 * missed[0]['lowest_level']:.1f} %)" in printed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.npy", "labels.npy"], "missing.npy"),
        (["features.npy", "short.npy"], "6 rows of features but 2 labels"),
        (["features.npy", "labels.npy", "--keep=2"], "keep is 2.0"),
        (["features.npy"], "no file of labels"),
        (["features.npy", "labels.npy", "--top=-1"], "--top is -1"),
        (["features.npy", "labels.npy", "--out=labels.npy"], "labels.npy is not a folder"),
    ],
)
def test_command_ends_with_code_2_and_one_sentence(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    np.save("features.npy", GOOD[0])
    np.save("labels.npy", GOOD[1])
    np.save("short.npy", GOOD[1][:2])
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error
    assert not Path("found").exists()


def test_results_are_written_even_if_nobody_reads_the_summary(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    command = f"{sys.executable} -m spr_jax.detect --out={tmp_path / 'out'} | head -n 1"
    subprocess.run(command, shell=True, env=environment, capture_output=True, timeout=120)
    assert len(read_table(tmp_path / "out")) == 1797


def test_command_says_when_the_disk_is_full(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(SystemExit) as end:
        main([f"--out={tmp_path}"])
    assert end.value.code == 2
    assert "No space left on device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


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


def test_public_names_are_imported_lazily():
    code = "import sys, spr_jax; assert 'jax' not in sys.modules; spr_jax.find_label_errors"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        spr_jax.nothing  # noqa: B018
