"""Leading principal components that stand for all features."""

import numpy as np
from conftest import make_data

from spr_jax.detection import compress
from spr_jax.detection.compress import leading_components
from spr_jax.detection.find import find_label_errors


def test_the_detector_finds_the_same_from_the_leading_components(tmp_path, monkeypatch):
    monkeypatch.setattr(compress, "ROWS", 70)
    generator = np.random.default_rng(0)
    features, labels, _ = make_data(300, 20, 3, dtype=np.float32)
    features -= features.mean(axis=0)  # of rank 20 in 40 columns: nothing is lost
    features = features @ np.linalg.qr(generator.standard_normal((40, 20)))[0].T
    features = features.astype(np.float32)
    leading = leading_components(features, tmp_path / "c.npy", components=20)
    assert leading.shape == (300, 20) and [path.name for path in tmp_path.iterdir()] == ["c.npy"]
    whole, less = (find_label_errors(each, labels) for each in (features, leading))
    # Of 300 examples the cautious reading is hardly determined: rounding moves it.
    np.testing.assert_allclose(less.error_probability, whole.error_probability, atol=0.12)
    np.testing.assert_allclose(less.noise.rate, whole.noise.rate, atol=1e-2)
    assert (less.suggested == whole.suggested).mean() > 0.99


def test_they_are_the_components_of_the_rows_that_are_there(tmp_path):
    features, _, _ = make_data(200, 30, 3, dtype=np.float32)
    features[[5, 120]] = np.nan
    leading = np.array(leading_components(features, tmp_path / "c.npy", components=8))
    good = ~np.isnan(features[:, 0])
    assert np.isnan(leading[~good]).all() and np.isfinite(leading[good]).all()
    centred = features[good] - features[good].mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    wanted = left[:, :8] * values[:8]
    signs = np.sign((leading[good] * wanted).sum(axis=0))
    np.testing.assert_allclose(leading[good] * signs, wanted, atol=1e-3)
    np.save(tmp_path / "c.npy", leading + 1)  # read from now on
    again = leading_components(features, tmp_path / "c.npy", components=8)
    np.testing.assert_array_equal(again[good], leading[good] + 1)


def test_little_is_left_as_it_is(tmp_path):
    features = np.random.default_rng(0).random((30, 40), np.float32)
    assert leading_components(features, tmp_path / "c.npy", components=20) is features
    assert leading_components(features[:, :20], tmp_path / "c.npy", components=20).shape == (30, 20)
    assert not list(tmp_path.iterdir())
