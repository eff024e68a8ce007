"""Corrections of a review, applied to a label file."""

import re

import pytest

from spr_jax.apply import main
from spr_jax.io.arrays import read_labels


def apply(folder, corrections, labels, out="fixed.csv"):
    """The bytes of the corrected file; newlines and marks are part of what must stay."""
    (folder / "corrections.csv").write_bytes(corrections.encode())
    (folder / "labels.csv").write_bytes(labels.encode())
    paths = [str(folder / name) for name in ("corrections.csv", "labels.csv")]
    main([*paths, f"--out={folder / out}"])
    assert (folder / "labels.csv").read_bytes() == labels.encode()
    return (folder / out).read_bytes().decode()


def test_positions_are_corrected_in_a_single_column(tmp_path, capsys):
    corrections = "id,label,corrected\n2,1,7\n0,3,3\n"
    assert apply(tmp_path, corrections, "3\n5\n1\n1\n") == "3\n5\n7\n1\n"
    said = capsys.readouterr().out
    assert said.startswith("Changed 1 of 4 labels and confirmed 1; wrote ")
    assert said.endswith("New in this file: 7.\n")
    assert read_labels(tmp_path / "fixed.csv").tolist() == [3, 5, 7, 1]


def test_everything_else_stays_byte_for_byte(tmp_path):
    labels = (
        "\ufefffile,note,label,true_label\r\n"
        'a.png,"quoted, needlessly",cat,dog\r\n'
        "\r\n"
        'b/../c.png,"two\r\nlines",cat,cat\r\n'
        './d.png,  spaces ,"dog",cat'
    )
    corrections = "corrected,id,label\ndog,a.png,cat\ncat,d.png,dog\n"
    fixed = apply(tmp_path, corrections, labels)
    assert fixed == labels.replace(
        'a.png,"quoted, needlessly",cat', 'a.png,"quoted, needlessly",dog'
    ).replace('./d.png,  spaces ,"dog",cat', "./d.png,  spaces ,cat,cat")


def test_positions_do_for_a_table_with_files_too(tmp_path):
    labels = "file,label\na.png,cat\nb.png,dog\n"
    assert "b.png,cat\n" in apply(tmp_path, "id,label,corrected\n1,dog,cat\n", labels)


def test_labels_are_compared_as_the_detector_read_them(tmp_path):
    fixed = apply(tmp_path, "id,label,corrected\n0,3,1\n1,1.0,3\n", "label\n3.0\n1.0\n")
    assert fixed == "label\n1\n3\n"


def test_guarded_formulas_are_undone(tmp_path):
    corrections = "id,label,corrected\n'=1+2.png,'+x,''-y\n'tis.png,'+x,z\n"
    labels = "file,label\n=1+2.png,+x\n'tis.png,+x\n"
    assert apply(tmp_path, corrections, labels) == "file,label\n=1+2.png,'-y\n'tis.png,z\n"


def test_results_of_an_earlier_version_can_be_corrected(tmp_path):
    """The columns that version 0.1.0 wrote to labels.csv."""
    head = "index,file,label,suspect,wrong,entry,rank,suggested\n"
    rows = "0,a.png,cat,1,0.98,1.2,1,dog\n", "1,b.png,dog,0,0.01,0.3,2,dog\n"
    fixed = apply(tmp_path, "id,label,corrected\na.png,cat,dog\n", head + "".join(rows))
    assert fixed == head + rows[0].replace("cat", "dog") + rows[1]


def test_the_same_answer_twice_is_one(tmp_path):
    assert apply(tmp_path, "id,label,corrected\n0,1,2\n0,1,2\n", "1\n2\n") == "2\n2\n"


@pytest.mark.parametrize(
    ("corrections", "labels", "says"),
    [
        ("id,label,corrected\n0,1,2\n0,1,3\n", "1\n2\n", "two answers for 0: .* 1 to 2.* 1 to 3"),
        ("id,label,corrected\n0,1,2\n0,1,1\n", "1\n2\n", "two answers for 0: .* 1 to 2.* 1 to 1"),
        ("id,label,corrected\n2,1,2\n", "1\n2\n", "first is 2; .* 0 to 1"),
        ("id,label,corrected\n-1,2,1\n", "1\n2\n", "first is -1; .* 0 to 1"),
        ("id,label,corrected\n01,2,1\n", "1\n2\n", "first is 01; .* 0 to 1"),
        ("id,label,corrected\na,1,2\nc,1,2\n", "file,label\na,1\nb,2\n", "first is c; .* files"),
        ("id,label,corrected\na,1,2\n", "file,label\na,1\na,1\n", "a in several lines"),
        ("id,label,corrected\n0,5,2\n", "1\n2\n", "label 1 for 0.* 5"),
        ("id,label,corrected,by\n0,1,2,me\n", "1\n2\n", "columns .*'by'.* id, label, corrected"),
        ("id,corrected\n0,2\n", "1\n2\n", "columns .* id, label, corrected"),
        ("", "1\n2\n", "columns .* id, label, corrected"),
        ("id,label,corrected\n0,1\n", "1\n2\n", r"line \['0', '1'\]"),
        ("id,label,corrected\n0,1,\n", "1\n2\n", r"line \['0', '1', ''\]"),
        ("id,label,corrected\n0,1,2\n", "a,b\n1,2\n", "'label'"),
        ("id,label,corrected\n0,1,2\n", "", "labels.csv .*no rows"),
    ],
)
def test_what_cannot_be_applied_is_refused(tmp_path, capsys, corrections, labels, says):
    with pytest.raises(SystemExit) as stopped:
        apply(tmp_path, corrections, labels)
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("python -m spr_jax.apply: ") and said.count("\n") == 1
    assert re.search(says, said), said
    assert not (tmp_path / "fixed.csv").exists()


@pytest.mark.parametrize("out", ["labels.csv", "corrections.csv", "sub/../labels.csv"])
def test_inputs_are_never_overwritten(tmp_path, capsys, out):
    (tmp_path / "sub").mkdir()
    with pytest.raises(SystemExit):
        apply(tmp_path, "id,label,corrected\n0,1,2\n", "1\n2\n", out)
    assert f"out is {tmp_path}" in capsys.readouterr().err
    assert (tmp_path / "labels.csv").read_text() == "1\n2\n"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [("gone.csv", None, "No such file"), ("bad.csv", b"\xff\xfe", "UTF-8")],
)
def test_unreadable_files_are_named(tmp_path, capsys, name, content, says):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    good = tmp_path / "good.csv"
    good.write_text("id,label,corrected\n")
    for pair in ((path, good), (good, path)):
        with pytest.raises(SystemExit):
            main([*map(str, pair), f"--out={tmp_path / 'fixed.csv'}"])
        said = capsys.readouterr().err
        assert says in said and str(path) in said


def test_arrays_cannot_be_corrected(tmp_path, capsys):
    (tmp_path / "corrections.csv").write_text("id,label,corrected\n")
    with pytest.raises(SystemExit):
        main([str(tmp_path / "corrections.csv"), "labels.npy", f"--out={tmp_path / 'fixed.csv'}"])
    assert "labels.npy: " in capsys.readouterr().err
