"""Backbones against PyTorch on the same weights, layer by layer; needs PyTorch."""

import importlib

import jax
import numpy as np
import pytest

from spr_jax.backbones import BACKBONES
from spr_jax.backbones.vgg19_bn import adaptive_mean

torch = pytest.importorskip("torch")
nn = torch.nn
networks = importlib.import_module("experiments.torch_networks")  # needs PyTorch


def to_torch_layout(values):
    """Kernels [.., inputs, outputs] -> [outputs, inputs, ..]; rows of C2F2's map, channel first."""
    values = np.asarray(values)
    if values.shape == (3136, 128):
        values = values.reshape(7, 7, 64, 128).transpose(2, 0, 1, 3).reshape(3136, 128)
    return np.moveaxis(values, (-1, -2), (0, 1)) if values.ndim > 1 else values


NAMES = dict(kernel="weight", scale="weight", mean="running_mean", var="running_var")


def copy_variables(module, variables):
    for name, value in variables.items():
        if isinstance(value, dict):
            copy_variables(getattr(module, name), value)
        else:
            getattr(module, NAMES.get(name, name)).data = torch.tensor(to_torch_layout(value))


def torch_outputs(network, images):
    outputs = {}
    for name, module in network.named_modules():
        module.register_forward_hook(
            lambda _, __, output, name=name: outputs.__setitem__(name, output.detach().numpy())
        )
    network(torch.tensor(images).permute(0, 3, 1, 2))
    return outputs


def flax_outputs(captured):
    """Output of each module by its dotted name."""
    leaves = jax.tree_util.tree_leaves_with_path(captured)
    return {".".join(key.key for key in path[:-2]): value for path, value in leaves}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(
    "name, shape, network, options",
    [
        ("c2f2", (28, 28, 1), "C2F2", {}),
        ("resnet18", (16, 16, 3), "ResNet18", {"width": 8}),
        ("whitened", (32, 32, 3), "Whitened", {"widths": (8, 12, 6)}),
        ("whitened", (31, 32, 3), "Whitened", {"widths": (6, 6, 8), "activation": "gelu"}),
        ("whitened", (32, 32, 3), "Whitened", {"widths": (8, 6, 6), "depth": 3}),
    ],
)
def test_layers_are_those_of_pytorch(name, shape, network, options, train):
    generator = np.random.default_rng(0)
    images = generator.standard_normal((4, *shape))
    model = BACKBONES[name](**options)
    shapes = jax.eval_shape(lambda key: model.init(key, images, False), jax.random.key(0))
    variables = jax.tree.map(lambda leaf: generator.uniform(0.1, 0.5, leaf.shape), shapes)
    network = getattr(networks, network)(**options).double().train(train)
    for kind in variables.values():
        copy_variables(network, kind)

    @jax.jit
    def run(variables, images):
        kinds = ["intermediates", "batch_stats"]
        return model.apply(variables, images, train, capture_intermediates=True, mutable=kinds)[1]

    theirs = torch_outputs(network, images)
    ours = flax_outputs(run(variables, images)["intermediates"])
    assert len(ours) > len(jax.tree.leaves(shapes["params"])) // 3
    for layer, values in ours.items():
        expected = np.moveaxis(theirs[layer], 1, -1)
        close = dict(rtol=1e-8, atol=1e-9 * np.abs(expected).max(), err_msg=layer)
        np.testing.assert_allclose(values, expected, **close)


@pytest.mark.parametrize("length", [2, 5, 7, 16])
def test_adaptive_mean_is_that_of_pytorch(length):
    images = np.random.default_rng(0).standard_normal((2, length, 3, 4))
    expected = nn.AdaptiveAvgPool2d(7)(torch.tensor(images).permute(0, 3, 1, 2))
    np.testing.assert_allclose(adaptive_mean(images), expected.permute(0, 2, 3, 1), atol=1e-12)
