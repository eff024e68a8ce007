import numpy as np
import pytest

from spr_jax import noise
from spr_jax.types import Dataset, Split

CIFAR10 = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
MNIST_SIZES = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST = np.random.default_rng(0).permutation(np.repeat(np.arange(10), MNIST_SIZES))


@pytest.mark.parametrize(
    ("rate", "counts"),
    [
        (0.2, [5021, 4989, 4983, 5022, 4992, 5001, 4976, 5033, 4957, 5026]),
        (0.4, [4993, 4995, 4968, 5000, 4942, 5056, 5030, 5040, 4903, 5073]),
        (0.6, [4954, 5054, 4979, 5007, 4905, 4980, 5042, 5071, 4910, 5098]),
        (0.8, [4977, 5002, 4971, 5030, 4974, 4854, 5085, 5065, 4925, 5117]),
    ],
)
def test_symmetric_noise_is_that_of_the_released_code(rate, counts):
    given = noise.symmetric(CIFAR10, rate, num_classes=10, seed=233)
    assert np.bincount(given).tolist() == counts
    for label in range(10):  # the rate is exact in every class
        assert np.mean(given[label == CIFAR10] != label) == pytest.approx(rate, abs=1e-3)


def test_inclusive_noise_hits_the_true_class_too():
    given = noise.symmetric(CIFAR10, 0.5, num_classes=10, inclusive=True)
    assert np.mean(given != CIFAR10) == pytest.approx(0.45, abs=0.01)


@pytest.mark.parametrize(
    ("labels", "name", "counts"),
    [
        (CIFAR10, "cifar10", [7000, 7000, 3000, 5800, 3000, 4200, 5000, 7000, 5000, 3000]),
        (MNIST, "mnist", [5923, 9248, 3575, 3679, 5842, 6487, 4852, 6142, 8303, 5949]),
    ],
)
def test_asymmetric_noise_moves_pairs_one_after_the_other(labels, name, counts):
    given = noise.asymmetric(labels, 0.4, pairs=noise.PAIRS[name])
    assert np.bincount(given).tolist() == counts


def test_asymmetric_noise_obtains_less_than_it_is_asked_for():
    pairs = noise.PAIRS["cifar10"]
    for rate, released in ((0.2, 0.095), (0.3, 0.142), (0.4, 0.183)):
        given = noise.asymmetric(CIFAR10, rate, pairs=pairs)
        assert np.mean(given != CIFAR10) == pytest.approx(released, abs=0.002)
        at_once = noise.asymmetric(CIFAR10, rate, pairs=pairs, simultaneous=True)
        assert np.mean(at_once != CIFAR10) == pytest.approx(rate / 2)


def test_simultaneous_pairs_move_only_true_members():
    given = noise.asymmetric(CIFAR10, 0.4, pairs=noise.PAIRS["cifar10"], simultaneous=True)
    manifest = noise.Manifest(given, CIFAR10, "asymmetric", 0.4, 233)
    expected = np.eye(10)
    for source, target in noise.PAIRS["cifar10"]:
        expected[source, source], expected[source, target] = 0.6, 0.4
    np.testing.assert_allclose(manifest.matrix, expected)


def test_matrix_noise_follows_the_matrix():
    matrix = np.array([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]])
    labels = np.repeat(np.arange(3), 20_000)
    given = noise.by_matrix(labels, matrix, num_classes=3)
    obtained = noise.Manifest(given, labels, "matrix", 0.0, 233).matrix
    np.testing.assert_allclose(obtained, matrix, atol=0.015)
    assert (given[labels == 1] == 1).all()


def test_instance_dependent_noise_depends_on_the_features():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 4, 20_000)
    features = generator.standard_normal((20_000, 2))
    given = noise.instance_dependent(labels, features, 0.3, num_classes=4)
    wrong = given != labels
    assert wrong.mean() == pytest.approx(0.3, abs=0.02)
    mine = (labels == 0) & wrong
    towards = [features[mine & (given == k)].mean(axis=0) for k in (1, 2, 3)]
    assert max(np.linalg.norm(a - b) for a in towards for b in towards) > 0.5


def test_same_seed_same_labels_and_the_truth_is_left_alone():
    labels = MNIST.copy()
    first, again, other = (
        noise.symmetric(labels, 0.4, num_classes=10, seed=seed) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_array_equal(labels, MNIST)


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_rate_out_of_range_is_described(rate):
    with pytest.raises(ValueError, match=f"rate is {rate}; expected .* 0"):
        noise.symmetric(MNIST, rate, num_classes=10)


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        (np.eye(3), "shape .3, 3.; expected a row and a column for each of the 10 classes"),
        (np.ones((10, 9)), "shape .10, 9."),
        (np.eye(12), "shape .12, 12."),
        (np.ones((10, 10)), "add up to 1"),
        (2 * np.eye(10) - 0.1, "add up to 1"),
    ],
)
def test_bad_matrix_is_described(matrix, says):
    with pytest.raises(ValueError, match=says):
        noise.by_matrix(MNIST, matrix, num_classes=10)


def test_manifest_round_trip(tmp_path):
    given = noise.symmetric(MNIST, 0.4, num_classes=10, seed=7)
    manifest = noise.Manifest(given, MNIST, "symmetric", 0.4, 7)
    noise.save_manifest(manifest, tmp_path / "noise.npz")
    loaded = noise.load_manifest(tmp_path / "noise.npz", MNIST)
    np.testing.assert_array_equal(loaded.given, given)
    assert loaded[2:] == manifest[2:]
    assert loaded.obtained == manifest.obtained == pytest.approx(0.4, abs=1e-3)
    with np.load(tmp_path / "noise.npz") as file:
        assert file["matrix"].shape == (10, 10)


def test_manifest_of_another_data_set_is_refused(tmp_path):
    manifest = noise.Manifest(MNIST, MNIST, "none", 0.0, 0)
    noise.save_manifest(manifest, tmp_path / "noise.npz")
    with pytest.raises(ValueError, match="belongs to another data set"):
        noise.load_manifest(tmp_path / "noise.npz", MNIST[::-1])


@pytest.mark.parametrize("content", [None, b"", b"text", b"PK\x03\x04cut"])
def test_unreadable_manifest_is_named(tmp_path, content):
    path = tmp_path / "noise.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match="noise.npz"):
        noise.load_manifest(path, MNIST)


def dataset_of(labels, true=None, name="mnist", num_classes=10):
    images = np.random.default_rng(0).integers(0, 256, (len(labels), 2, 2, 1), dtype=np.uint8)
    names = tuple(map(str, range(num_classes)))
    return Dataset(name, Split(images, labels, true), {}, names, (0.5,), (0.5,), "none")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("symmetric", lambda: noise.symmetric(MNIST, 0.4, num_classes=10, seed=7)),
        ("asymmetric", lambda: noise.asymmetric(MNIST, 0.4, pairs=noise.PAIRS["mnist"], seed=7)),
    ],
)
def test_corrupt_draws_the_kind_asked_for(kind, expected):
    noisy, manifest = noise.corrupt(dataset_of(MNIST, MNIST), kind=kind, rate=0.4, seed=7)
    np.testing.assert_array_equal(noisy.train.labels, expected())
    np.testing.assert_array_equal(noisy.train.true_labels, MNIST)
    assert manifest[2:] == (kind, 0.4, 7)


def test_corrupt_by_matrix_and_by_instance(tmp_path):
    matrix = np.full((10, 10), 0.05) + 0.5 * np.eye(10)
    np.savetxt(tmp_path / "matrix.csv", matrix, delimiter=",")
    dataset = dataset_of(MNIST, MNIST)
    _, manifest = noise.corrupt(dataset, kind="matrix", matrix=str(tmp_path / "matrix.csv"))
    np.testing.assert_allclose(manifest.matrix, matrix, atol=0.03)
    _, manifest = noise.corrupt(dataset, kind="instance", rate=0.3)
    assert manifest.obtained == pytest.approx(0.3, abs=0.02)


def test_labels_that_come_noisy_stay_as_they_are():
    given = (MNIST + (np.arange(len(MNIST)) % 4 == 0)) % 10
    noisy, manifest = noise.corrupt(dataset_of(given, MNIST), kind="human")
    np.testing.assert_array_equal(noisy.train.labels, given)
    assert manifest.obtained == pytest.approx(0.25)
    told = "No label noise is added; 25.00% of the labels are known to be wrong."
    assert str(manifest) == told
    unknown, manifest = noise.corrupt(dataset_of(given))
    assert unknown.train.true_labels is None and str(manifest) == "No label noise is added."


def test_a_manifest_gives_the_same_labels_again(tmp_path):
    dataset = dataset_of(MNIST, MNIST)
    noisy, manifest = noise.corrupt(dataset, kind="symmetric", rate=0.4, seed=7)
    noise.save_manifest(manifest, tmp_path / "noise.npz")
    again, loaded = noise.corrupt(dataset, manifest=str(tmp_path / "noise.npz"))
    np.testing.assert_array_equal(again.train.labels, noisy.train.labels)
    assert loaded[2:] == manifest[2:]


def test_a_manifest_with_labels_out_of_range_is_refused(tmp_path):
    noise.save_manifest(noise.Manifest(MNIST + 1, MNIST, "none", 0.0, 0), tmp_path / "noise.npz")
    with pytest.raises(ValueError, match="labels from 1 to 10; expected .* from 0 to 9"):
        noise.corrupt(dataset_of(MNIST, MNIST), manifest=str(tmp_path / "noise.npz"))


def test_log_shows_asked_and_obtained_rate(caplog):
    with caplog.at_level("INFO", logger="absl"):
        noise.corrupt(dataset_of(MNIST, MNIST), kind="asymmetric", rate=0.4)
    assert "asymmetric, asked for 0.4000, obtained 0.1" in caplog.text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kind": "symetric"}, "Unknown kind of noise 'symetric'; did you mean 'symmetric'"),
        ({"kind": "none", "rate": 0.2}, "rate is 0.2 but its kind is 'none'"),
        ({"kind": "symmetric", "rate": 1.2}, "rate is 1.2; expected"),
        ({"kind": "matrix"}, "kind is 'matrix' .* .npy or .csv file"),
        ({"kind": "matrix", "matrix": "nowhere.npy"}, "Cannot read nowhere.npy"),
        ({"manifest": "nowhere.npz"}, "Cannot read nowhere.npz"),
    ],
)
def test_bad_options_of_noise_are_described(options, says):
    with pytest.raises(ValueError, match=says):
        noise.corrupt(dataset_of(MNIST, MNIST), **options)


def test_asymmetric_noise_needs_pairs():
    with pytest.raises(ValueError, match="no pairs of similar classes for 'folder', only for"):
        noise.corrupt(dataset_of(MNIST, MNIST, name="folder"), kind="asymmetric", rate=0.2)
