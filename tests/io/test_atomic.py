"""Files that are written completely or not at all."""

import pytest

from spr_jax.io.atomic import check_folder, replace_file


def test_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt), replace_file(path) as file:
        file.write("half")
        raise KeyboardInterrupt
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]
    assert path.read_text() == "before"
    with replace_file(path) as file:
        file.write("after")
    assert path.read_text() == "after"


def test_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file is not a folder"):
        check_folder(tmp_path / "file" / "out")
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(ValueError, match="no permission to write in"):
        check_folder(tmp_path / "deep" / "out")


def test_checking_a_folder_does_not_make_it(tmp_path):
    check_folder(tmp_path / "deep" / "out")
    assert not list(tmp_path.iterdir())
