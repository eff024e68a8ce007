"""The detector on features that stay in their files: the list is the one found in memory.

Scores differ by rounding. The fit of the noise model stops at a tolerance, where rounding decides
about a round more or less; so error probabilities may differ by CLOSE, as they do in memory if the
features are changed by 2e-7 of their value (up to 0.023 in five draws).
"""

import subprocess
import sys

import numpy as np
import pytest
from conftest import make_data

from spr_jax import find_label_errors
from spr_jax.detection import find, streamed

CLOSE = 0.1
SAME = 0.99  # of the flags


@pytest.fixture
def stay_in_files(monkeypatch):
    def with_blocks_of(size):
        monkeypatch.setattr(find, "IN_MEMORY", 0)
        monkeypatch.setattr(streamed, "block_size", lambda width: size)

    return with_blocks_of


def save(folder, features, parts=1):
    folder.mkdir()
    for number, part in enumerate(np.array_split(features, parts)):
        np.save(folder / f"part_{number}.npy", part)
    return folder


def compare(found, other):
    np.testing.assert_allclose(found.entry_penalty, other.entry_penalty, atol=1e-4)
    np.testing.assert_allclose(found.error_probability, other.error_probability, atol=CLOSE)
    assert np.abs(found.error_probability - other.error_probability).mean() < CLOSE / 20
    assert (found.clean == other.clean).mean() > SAME
    assert (found.suggested == other.suggested).mean() > SAME
    assert found.noise.rate == pytest.approx(other.noise.rate, abs=0.005)
    np.testing.assert_allclose(found.noise.interval, other.noise.interval, atol=0.01)
    np.testing.assert_allclose(found.noise.confusion, other.noise.confusion, atol=0.02)
    assert found.noise.explained == other.noise.explained


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int16])
def test_the_list_is_that_in_memory(tmp_path, stay_in_files, kind):
    features, given, _ = make_data(1500, 10, 3, 0.2, separation=2.0)
    scale = 100 if kind == np.int16 else 1
    features = (scale * features + (1e4 if kind == np.float64 else 0)).astype(kind)
    names = np.array(["ant", "bee", "cat"])[given]
    in_memory = find_label_errors(features, names)
    folder = save(tmp_path / "features", features, parts=3)
    for size in (400, 1500):
        stay_in_files(size)
        compare(find_label_errors(folder, names), in_memory)


@pytest.mark.slow
def test_criteria_and_groups_hold_in_files(tmp_path, stay_in_files):
    features, given, _ = make_data(1500, 10, 5, 0.2, separation=2.0, dtype=np.float32)
    half = find_label_errors(features, given, keep=0.5, classes_per_group=3)
    folder = save(tmp_path / "features", features)
    stay_in_files(400)
    found = find_label_errors(folder, given, keep=0.5, classes_per_group=3)
    compare(found, half)
    np.testing.assert_array_equal(found.clean, half.clean)
    assert find_label_errors(folder, given, max_false_alarms=0.2).promise.level == 0.2


@pytest.mark.slow
def test_units_of_columns_do_not_matter_in_files(tmp_path, stay_in_files):
    features, given, _ = make_data(1500, 10, 3, 0.2, separation=2.0, dtype=np.float32)
    features = features * np.logspace(0, 6, 10, dtype=np.float32)
    in_memory = find_label_errors(features, given)
    stay_in_files(400)
    compare(find_label_errors(save(tmp_path / "features", features), given), in_memory)


@pytest.mark.slow
def test_nothing_is_flagged_where_features_say_nothing(tmp_path, stay_in_files):
    features, given, _ = make_data(600, 10, 3, dtype=np.float32)
    stay_in_files(250)
    found = find_label_errors(save(tmp_path / "features", np.ones_like(features)), given)
    assert not found.noise.explained and found.clean.all()
    assert found.noise.interval == (0, 1)


def test_what_cannot_be_streamed_is_one_sentence(tmp_path, stay_in_files):
    features, given, _ = make_data(60, 5, dtype=np.float32)
    stay_in_files(25)
    folder = save(tmp_path / "features", features, parts=2)
    with pytest.raises(ValueError, match="per_class is 10"):
        find_label_errors(folder, given, per_class=10)
    with pytest.raises(ValueError, match="60 rows.*59 labels"):
        find_label_errors(folder, given[:-1])
    features[[40, 52], 3] = np.nan
    folder = save(tmp_path / "holes", features, parts=2)
    with pytest.raises(ValueError, match="^2 rows.*index 40"):
        find_label_errors(folder, given)
    wide = save(tmp_path / "wide", np.zeros((3, 8193), np.float32))
    with pytest.raises(ValueError, match="8193 columns"):
        find_label_errors(wide, [0, 1, 1])


def test_small_files_are_read_into_memory(tmp_path, monkeypatch):
    seen = []

    def fit(features, labels, options):
        seen.append(features)
        raise ValueError("enough")

    monkeypatch.setattr(find, "_fit_in_memory", fit)
    features, given, _ = make_data(60, 5)
    with pytest.raises(ValueError, match="enough"):
        find_label_errors(save(tmp_path / "features", features, parts=2), given)
    np.testing.assert_array_equal(seen[0], features)


MEMORY = """
import sys, threading, numpy as np
from spr_jax.detection import streamed
from spr_jax.io.rows import open_rows
from spr_jax.detection.options import DetectorOptions
from spr_jax.solver import Options
from spr_jax.solver.sweep_basis import moments_of
from spr_jax.solver.sweep_path import sweep_path

def allocated():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 2**10

peak, done = 0, threading.Event()

def watch():
    global peak
    while not done.wait(0.02):
        peak = max(peak, allocated())

def solve(path):
    rows = open_rows(path)
    labels = np.random.default_rng(0).integers(0, 3, len(rows)).astype(np.int32)
    stream = streamed._prepared(rows, labels, DetectorOptions())
    moments = moments_of(stream.blocks(""), 1, 3)
    options = Options(pca_dim=8, intercept=True, num_penalties=4)
    sweep_path(stream, np.arange(3)[None], moments, options)
    return rows.nbytes / 2**20

threading.Thread(target=watch, daemon=True).start()
solve(sys.argv[1])  # compiles the programs
before = peak
print(solve(sys.argv[2]), peak - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_memory_does_not_grow_with_the_features(tmp_path):
    paths = []
    for rows in (20_000, 300_000):
        paths.append(tmp_path / f"{rows}.npy")
        features = np.lib.format.open_memmap(paths[-1], "w+", np.float32, (rows, 512))
        features[::1000, :3] = 1  # in sparse files, the larger of 586 MB
        features.flush()
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, *paths], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    megabytes, grown = map(float, done.stdout.split())
    assert megabytes > 580 and grown < 0.4 * megabytes, (megabytes, grown)
