"""Table 4 extrapolates, is read again, and measures."""

import csv
import json

import pytest

from experiments import table4_time
from spr_jax.methods.selection_rules import RULES, Rule, Selection

pytestmark = pytest.mark.usefixtures("as_command")


def measurement(examples=1000):
    """scikit-learn takes n^2 microseconds on whole data, ours a thousandth of a second."""
    growth = [{"examples": n, "scikit-learn": 1e-6 * n**2, "ours": 1e-3} for n in (100, 200, 400)]
    seconds = {name: [0.5, 0.25, 0.75] for name in table4_time.TITLES if name != table4_time.WHOLE}
    return {"examples": examples, "seconds": seconds, "growth": growth, "origin": "- Commit: here"}


def test_a_quadratic_is_extrapolated_exactly():
    growth = measurement()["growth"]
    seconds, exponent = table4_time.extrapolate(growth, 50_000)
    assert seconds == pytest.approx(2500) and exponent == pytest.approx(2)
    cubic = [row | {"scikit-learn": row["examples"] ** 3} for row in growth]
    assert table4_time.extrapolate(cubic, 50_000)[1] == pytest.approx(3)


def test_table_4_is_read_again(tmp_path):
    path = tmp_path / "table4_time.json"
    path.write_text(json.dumps(measurement(examples=100_000)))
    assert table4_time.main(["--read", f"--out={tmp_path}", f"--reports={tmp_path}"]) == 0
    text = (tmp_path / "table4_time.md").read_text()
    for line in (
        "- Commit: here",
        "| split, scikit-learn, a process for each core | 0.5 s | 0.125 | 54 s |",
        "| whole data, scikit-learn, extrapolated | 2.8 h |  | 6.0 h |",
        "| 400 | 0.160 | 0.0010 | 160 |",
        "Whole data takes 1/20,000 of scikit-learn's time for the same problem.",
        "a free exponent would be 2.00",
    ):
        assert line in text
    with open(tmp_path / "table4_time.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["paper, seconds"] for row in rows] == ["54.0", "", "21600.0", "", "", ""]
    assert float(rows[2]["seconds"]) == pytest.approx(1e4)
    assert {row["command"] for row in rows} == {"python -m experiments.table4_time"}


@pytest.mark.slow
def test_table_4_measures(tmp_path, monkeypatch):
    """All but our solver, which takes long to compile and is timed, not changed, here."""
    changed = {
        "NUM_EXAMPLES": 600,
        "DIMENSION": 20,
        "SMALL_SIZES": (100, 200),
        "TURNS": 1,
        "CALLS": 2,
        "one_device_per_core": lambda: None,
        "compile_clean_set": lambda features, labels, per_class, options: (lambda: None, 0),
    }
    for name, value in changed.items():
        monkeypatch.setattr(table4_time, name, value)
    rules = []

    def keep_all(max_error_probability=0.1, min_correct_kept=0.9, pca_dim=64):
        rules.append(pca_dim)
        return Rule(lambda features, labels, key, clean: Selection(clean))

    monkeypatch.setitem(RULES, "noise_model", keep_all)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # one worker
    assert table4_time.main(["--small", f"--out={tmp_path}", f"--reports={tmp_path}"]) == 0
    measured = json.loads((tmp_path / "table4_time_small.json").read_text())
    assert {*measured["seconds"]} == {*table4_time.TITLES} - {table4_time.WHOLE}
    assert {len(times) for times in measured["seconds"].values()} == {1, 2}
    assert all(second > 0 for times in measured["seconds"].values() for second in times)
    assert [row["examples"] for row in measured["growth"]] == [100, 200]
    assert "extrapolated | " in (tmp_path / "table4_time_small.md").read_text()
    assert rules == [64]
