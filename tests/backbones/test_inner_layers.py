"""Inner layers of a backbone: which there are, what they hold, and who pays for them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spr_jax.backbones import BACKBONES, Classifier
from spr_jax.backbones.network import make_network

WIDTHS = {  # shape of an image -> widths
    "c2f2": ((28, 28, 1), (32, 64)),
    "resnet18": ((32, 32, 3), (64, 128, 256)),
    "whitened": ((32, 32, 3), (64, 256)),
    "vgg19_bn": ((64, 64, 3), (64, 128, 256, 512, 512)),
    "inception_resnet_v2": ((75, 75, 3), (320, 1088, 2080)),
    "linear": ((20,), ()),
    "mlp": ((20,), ()),
}
SMALL = {
    "c2f2": ((8, 8, 1), {}),
    "resnet18": ((8, 8, 3), {"width": 2}),
    "whitened": ((9, 9, 3), {"widths": (4, 4, 4)}),
}
MODULES = {  # of Flax, whose outputs are meant
    "c2f2": ("ConvNorm_0", "ConvNorm_1"),
    "resnet18": ("Block_1", "Block_3", "Block_5"),
    "whitened": ("Group_0", "Group_1"),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "inception_resnet_v2"))
        for name in BACKBONES
    ],
)
def test_widths(name):
    shape, widths = WIDTHS[name]
    module = Classifier(BACKBONES[name](), 10)

    def look(key):
        images = jnp.zeros((2, *shape), jnp.float32)
        return make_network(module, key, images).inspect(images)[1]

    found = jax.eval_shape(look, jax.random.key(0))
    assert [layer.shape for layer in found] == [(2, width) for width in widths]


def make_small(name):
    """A network for four classes, and eight images."""
    shape, options = SMALL[name]
    module = Classifier(BACKBONES[name](**options), 4)
    images = np.random.default_rng(0).standard_normal((8, *shape)).astype(np.float32)
    return jax.jit(lambda key: make_network(module, key, images))(jax.random.key(0)), images


@pytest.mark.parametrize("name", SMALL)
def test_they_are_means_of_the_maps_that_the_next_layer_sees(name):
    network, images = make_small(name)
    output, inner = network.inspect(images)
    jax.tree.map(np.testing.assert_array_equal, output, network.predict(images))
    how = {"capture_intermediates": True, "mutable": ["intermediates"]}
    _, seen = network.module.apply(network.variables, images, False, **how)
    seen = seen["intermediates"]["backbone"]
    for layer, module in zip(inner, MODULES[name], strict=True):
        expected = np.asarray(seen[module]["__call__"][0])
        if name == "c2f2":
            b, h, w, d = expected.shape
            windows = expected.reshape(b, h // 2, 2, w // 2, 2, d)
            expected = np.maximum(windows.max(axis=(2, 4)), 0)
        np.testing.assert_allclose(layer, expected.mean(axis=(1, 2)), rtol=1e-4, atol=1e-6)


def test_hidden_layers_of_vectors_are_in_single_precision():
    module = Classifier(BACKBONES["mlp"](width=8, depth=3, dtype=jnp.bfloat16), 4)
    vectors = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    output, inner = make_network(module, jax.random.key(0), vectors).inspect(vectors)
    assert [(layer.shape, layer.dtype) for layer in inner] == [((5, 8), jnp.float32)] * 2
    assert not np.allclose(inner[0], inner[1]) and not np.allclose(inner[1], output.features)


@pytest.mark.parametrize("name", SMALL)
def test_a_training_step_does_not_compute_them(name, monkeypatch):
    """Its program is what it would be if nothing were offered."""
    network, images = make_small(name)

    def programs():
        passes = (
            (lambda net, images: net.forward(images)[0]),
            (lambda net, images: net.predict(images)),
        )
        return [str(jax.make_jaxpr(run)(network, images)) for run in passes]

    usual = programs()
    monkeypatch.setattr(f"spr_jax.backbones.{name}.offer", lambda module, outputs: None)
    assert programs() == usual
