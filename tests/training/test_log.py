"""metrics.jsonl after an interruption, the line for people, and the files of the clean set."""

import csv
import json

import numpy as np
import pytest

from spr_jax.training.log import Log, line_of, read_rows, write_selection
from spr_jax.types import Dataset, Split


def row(epoch):
    return {"epoch": epoch, "loss": 1 / (epoch + 3)}


@pytest.fixture
def interrupted(tmp_path):
    """Three rows and the beginning of a fourth."""
    log = Log(tmp_path)
    for epoch in range(3):
        log.write(row(epoch))
    log.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 3, "lo')
    return tmp_path


def test_rows_come_back_as_they_were(interrupted):
    assert read_rows(interrupted / "metrics.jsonl") == [row(0), row(1), row(2)]
    assert list((interrupted / "events").iterdir())


def test_there_are_no_rows_without_a_file(tmp_path):
    assert read_rows(tmp_path / "metrics.jsonl") == []


def test_a_resumed_log_drops_later_rows_and_a_cut_line(interrupted):
    log = Log(interrupted, epoch=2)
    assert log.rows == [row(0), row(1)]
    log.write(row(2))
    log.close()
    lines = (interrupted / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [row(0), row(1), row(2)]


def test_other_processes_know_the_rows_and_write_nothing(interrupted):
    before = sorted(interrupted.rglob("*")), (interrupted / "metrics.jsonl").read_text()
    log = Log(interrupted, epoch=2, writes=False)
    log.write(row(2))
    log.close()
    assert log.rows == [row(0), row(1), row(2)]
    assert before == (sorted(interrupted.rglob("*")), (interrupted / "metrics.jsonl").read_text())


def test_a_line_is_readable():
    seconds = {"seconds_train": 12.34, "seconds_select": 0.5, "seconds_test": 1}
    found = {"test_top1": 0.98765, "test_top5": 1.0, "validation_top1": 0.5}
    selection = {"clean_share": 0.5, "label_precision": 0.999}
    assert line_of({**row(8), **found, **selection, **seconds}, epochs=20) == (
        "epoch  9/20  loss 0.0909  test 98.77 %  validation 50.00 %  kept 50.0 %, 99.90 % correct  "
        "train 12.3, select 0.5, test 1.0 s"
    )
    assert line_of({**row(0), **seconds}, epochs=5) == (
        "epoch 1/5  loss 0.3333  train 12.3, select 0.5, test 1.0 s"
    )


def make_dataset(names=None):
    labels = np.array([0, 1, 1])
    train = Split(np.zeros((3, 2, 2, 1), np.uint8), labels, None, names)
    return Dataset("mine", train, {}, ("cat", "dog"), (0.5,), (0.5,), "none")


MEMORY = {
    "clean": np.array([True, False, True]),
    "suspicion": np.array([0.1, 0.9, 0.3], np.float32),
    "selection": {"estimated_noise": 0.3},
}


def test_the_selection_is_written_with_its_place_in_the_data_set(tmp_path):
    write_selection(tmp_path, make_dataset(), np.array([4, 5, 8]), MEMORY)
    with np.load(tmp_path / "clean.npz") as stored:
        assert set(stored) == {"index", "clean", "suspicion"}
        np.testing.assert_array_equal(stored["index"], [4, 5, 8])
        np.testing.assert_array_equal(stored["clean"], MEMORY["clean"])
        np.testing.assert_array_equal(stored["suspicion"], MEMORY["suspicion"])
    assert not (tmp_path / "clean.csv").exists()


def test_files_of_the_user_are_listed_with_the_most_suspect_first(tmp_path):
    dataset = make_dataset(np.array(["a.png", "b.png", "c.png"]))
    write_selection(tmp_path, dataset, np.arange(3), MEMORY)
    rows = list(csv.DictReader((tmp_path / "clean.csv").read_text().splitlines()))
    assert [(row["file"], row["label"], row["clean"]) for row in rows] == [
        ("b.png", "dog", "False"),
        ("c.png", "dog", "True"),
        ("a.png", "cat", "True"),
    ]
    write_selection(tmp_path, dataset, np.arange(3), {"clean": MEMORY["clean"]})  # no ranking
    rows = list(csv.DictReader((tmp_path / "clean.csv").read_text().splitlines()))
    assert [row["file"] for row in rows] == ["b.png", "a.png", "c.png"]


def test_a_method_without_a_selection_writes_none(tmp_path):
    write_selection(tmp_path, make_dataset(), np.arange(3), {"seen": np.zeros(3)})
    assert not [*tmp_path.iterdir()]
