"""The backbone of fast training: its frozen first layer, its initial values, what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_run import color_dataset

from configs import cifar10_fast
from spr_jax.backbones import BACKBONES, Classifier, whitened
from spr_jax.backbones.network import make_network
from spr_jax.training.build import init_state, make_run, normalized_sample
from spr_jax.training.config import resolve

SMALL = {"widths": (30, 8, 8)}


def make_images(count=40, side=9, seed=0):
    """Neighboring pixels and channels are correlated, as in photographs."""
    generator = np.random.default_rng(seed)
    rough = generator.standard_normal((count, side + 2, side + 2, 3))
    smooth = sum(rough[:, i : i + side, j : j + side] for i in range(3) for j in range(3))
    return (smooth @ generator.standard_normal((3, 3)) / 3).astype(np.float32)


def second_moment(images, kernel):
    outputs = np.asarray(whitened.convolve(jnp.asarray(images), jnp.asarray(kernel, jnp.float32)))
    flat = outputs.reshape(-1, outputs.shape[-1]).astype(np.float64)
    return flat.T @ flat / len(flat)


def test_whitened_patches_are_uncorrelated_and_of_unit_size():
    images = make_images()
    moment = second_moment(images, whitened.whitening_kernel(images, epsilon=0))
    np.testing.assert_allclose(moment[:12, :12], np.eye(12), atol=1e-4)
    np.testing.assert_allclose(moment[:12, 12:], -np.eye(12), atol=1e-4)  # their negatives


def test_a_direction_without_variance_stays_finite():
    images = make_images()
    images[..., 2] = images[..., 0]
    kernel = whitened.whitening_kernel(images)
    assert np.isfinite(kernel).all()
    sizes = np.sort(np.diag(second_moment(images, kernel)))[::2]  # each with its negative
    np.testing.assert_allclose(sizes[:4], 0, atol=1e-3)
    np.testing.assert_allclose(sizes[4:], 1, atol=0.05)


def test_the_kernel_is_that_of_all_patches_at_once():
    images = make_images(count=300)  # in two blocks
    patches = np.lib.stride_tricks.sliding_window_view(images.astype(float), (2, 2), axis=(1, 2))
    rows = patches.transpose(0, 1, 2, 4, 5, 3).reshape(-1, 12)
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
    found = whitened.whitening_kernel(images).reshape(12, 24)[:, :12]
    expected = vectors / np.sqrt(values + 5e-4)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-3, atol=1e-3)


def test_no_gradient_step_changes_the_first_layer():
    images = make_images()
    module = Classifier(BACKBONES["whitened"](**SMALL), 4)
    network = make_network(module, jax.random.key(0), images[:1])
    constants = {"backbone": whitened.Whitened.learn_constants(images)}
    network = network.replace(constants=constants)

    def loss(network):
        output, after = network.forward(images)
        labels = jnp.arange(len(images)) % 4
        each = optax.softmax_cross_entropy_with_integer_labels(output.logits, labels)
        return each.mean(), after

    slopes, after = jax.jit(jax.grad(loss, has_aux=True))(network)
    assert not np.any(slopes.constants["backbone"]["whitening"])
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(slopes.params))
    np.testing.assert_array_equal(
        after.constants["backbone"]["whitening"], constants["backbone"]["whitening"]
    )
    assert "whitening" not in network.params["backbone"]  # so it does not decay


def test_partial_identity_copies_its_inputs():
    images = jax.random.normal(jax.random.key(1), (2, 5, 6, 3), jnp.float32)
    kernel = whitened.partial_identity(jax.random.key(0), (3, 3, 3, 7))
    outputs = jax.lax.conv_general_dilated(
        images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    np.testing.assert_allclose(outputs[..., :3], images, atol=1e-6)
    bound = 1 / np.sqrt(27)  # PyTorch's
    assert 0.8 * bound < np.abs(kernel[..., 3:]).max() <= bound
    narrow = whitened.partial_identity(jax.random.key(0), (3, 3, 3, 2))
    np.testing.assert_array_equal(narrow[1, 1], np.eye(3, 2))


@pytest.mark.parametrize("size, widths", whitened.SIZES.items())
def test_sizes_are_widths(size, widths):
    def params_of(**options):
        module = BACKBONES["whitened"](**options)
        images = jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)
        return jax.eval_shape(lambda x: module.init(jax.random.key(0), x, False), images)

    found, expected = params_of(size=size), params_of(widths=widths)
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, expected)
    assert found["params"]["Group_2"]["Conv_1"]["kernel"].shape == (3, 3, widths[2], widths[2])


def test_scaled_features_scale_the_logits():
    images = make_images(4)
    outputs = []
    for scale in (1.0, 0.25):
        module = Classifier(BACKBONES["whitened"](**SMALL, scale=scale), 4)
        network = make_network(module, jax.random.key(0), images[:1])
        constants = {"backbone": whitened.Whitened.learn_constants(make_images())}
        output = network.replace(constants=constants).predict(images)
        outputs.append(output.logits - network.params["head"]["bias"])
    np.testing.assert_allclose(outputs[1], 0.25 * outputs[0], rtol=1e-5)


@pytest.mark.parametrize(
    "options, says",
    [
        ({"widths": (64, 0, 256)}, r"widths is \(64, 0, 256\).*above 0"),
        ({"widths": (64, 25.6, 256)}, r"widths is \(64, 25.6, 256\).*whole"),
        ({"widths": (64, 256)}, r"widths is \(64, 256\).*three"),
        ({"depth": 1}, "depth is 1; expected 2 or 3"),
        ({"size": "97"}, "'97'"),
        ({"activation": "gleu"}, "'gleu'; did you mean 'gelu'"),
    ],
)
def test_what_is_no_network_is_refused(options, says):
    with pytest.raises(ValueError, match=says):
        BACKBONES["whitened"](**options)


def test_images_that_cannot_be_whitened_are_refused():
    with pytest.raises(ValueError, match="3 channels, and these have 1"):
        whitened.whitening_kernel(make_images()[..., :1])
    with pytest.raises(ValueError, match="12 numbers.*only 11 images"):
        whitened.whitening_kernel(make_images(11))
    with pytest.raises(ValueError, match="these are 8 x 9 pixels; expected 9"):
        module = BACKBONES["whitened"]()
        module.init(jax.random.key(0), jnp.zeros((1, 8, 9, 3)), False)


def test_a_run_begins_with_the_whitening_of_its_own_images():
    config = cifar10_fast.get_config("co_teaching")
    config.update(batch_size=4)
    config.backbone.widths = (4, 4, 4)
    resolve(config)
    run = make_run(config, color_dataset())
    sample = normalized_sample(run.dataset)
    images = run.dataset.train.images
    np.testing.assert_allclose(sample, (images / 255 - 0.5) / 0.2, atol=1e-5)
    expected = whitened.whitening_kernel(sample)
    for network in init_state(config, run).networks:
        np.testing.assert_allclose(network.constants["backbone"]["whitening"], expected, rtol=1e-5)
    few = normalized_sample(run.dataset, num_pixels=5 * 81)
    np.testing.assert_array_equal(few, sample[:5])
