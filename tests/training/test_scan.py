"""A pass in eval mode that is asked for inner layers, over two devices."""

import numpy as np
from flax import jax_utils
from tiny_run import Case, follow


def test_a_scan_has_inner_layers_if_asked():
    case = Case(follow(), ema=0.9)
    done = case.train()
    scan = case.finish(done).scan
    assert set(scan()) == set(scan(averaged=True)) == {"logits", "features"}
    pixels = (case.run.dataset.train.images.astype(np.float32) / 255 - 0.5) / 0.5
    state = jax_utils.unreplicate(done.state)
    for network, found in (
        (state.networks[0], scan(inner=True)),
        (state.average[0], scan(averaged=True, inner=True)),
    ):
        output, (expected,) = network.inspect(pixels)
        assert set(found) == {"logits", "features", "inner_0"}
        np.testing.assert_allclose(found["inner_0"], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["logits"], output.logits, rtol=1e-5, atol=1e-6)
