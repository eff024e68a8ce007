"""metrics.jsonl after a run that was broken off, and the line for people."""

import json

import pytest

from spr_jax.metrics import Log, line_of, read_rows


def row(epoch):
    return {"epoch": epoch, "loss": 1 / (epoch + 3)}


@pytest.fixture
def broken_off(tmp_path):
    """Three rows and the beginning of a fourth."""
    log = Log(tmp_path)
    for epoch in range(3):
        log.write(row(epoch))
    log.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 3, "lo')
    return tmp_path


def test_rows_come_back_as_they_were(broken_off):
    assert read_rows(broken_off / "metrics.jsonl") == [row(0), row(1), row(2)]
    assert list((broken_off / "events").iterdir())


def test_there_are_no_rows_without_a_file(tmp_path):
    assert read_rows(tmp_path / "metrics.jsonl") == []


def test_a_resumed_log_drops_later_rows_and_a_cut_line(broken_off):
    log = Log(broken_off, epoch=2)
    assert log.rows == [row(0), row(1)]
    log.write(row(2))
    log.close()
    lines = (broken_off / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [row(0), row(1), row(2)]


def test_other_processes_know_the_rows_and_write_nothing(broken_off):
    before = sorted(broken_off.rglob("*")), (broken_off / "metrics.jsonl").read_text()
    log = Log(broken_off, epoch=2, writes=False)
    log.write(row(2))
    log.close()
    assert log.rows == [row(0), row(1), row(2)]
    assert before == (sorted(broken_off.rglob("*")), (broken_off / "metrics.jsonl").read_text())


def test_a_line_is_readable():
    seconds = {"seconds_train": 12.34, "seconds_select": 0.5, "seconds_test": 1}
    found = {"test_top1": 0.98765, "test_top5": 1.0, "validation_top1": 0.5}
    selection = {"clean_share": 0.5, "label_precision": 0.999}
    assert line_of({**row(8), **found, **selection, **seconds}, epochs=20) == (
        "epoch  9/20  loss 0.0909  test 98.77 %  validation 50.00 %  kept 50.0 %, 99.90 % right  "
        "train 12.3, select 0.5, test 1.0 s"
    )
    assert line_of({**row(0), **seconds}, epochs=5) == (
        "epoch 1/5  loss 0.3333  train 12.3, select 0.5, test 1.0 s"
    )
