"""C2F2 and ResNet-18 against PyTorch on the same weights, layer by layer; needs PyTorch."""

import jax
import numpy as np
import pytest

from spr_jax.backbones import BACKBONES
from spr_jax.backbones.vgg19_bn import adaptive_mean

torch = pytest.importorskip("torch")
nn = torch.nn


class Named(nn.Module):
    """Modules under the names that Flax gives them."""

    def __init__(self, **modules):
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


class ConvNorm(Named):
    def __init__(self, inputs, features, size=3, strides=1, bias=False):
        conv = nn.Conv2d(inputs, features, size, strides, size // 2, bias=bias)
        super().__init__(Conv_0=conv, BatchNorm_0=nn.BatchNorm2d(features))

    def forward(self, images):
        return self.BatchNorm_0(self.Conv_0(images))


class C2F2(Named):
    def __init__(self):
        super().__init__(
            ConvNorm_0=ConvNorm(1, 32, bias=True),
            ConvNorm_1=ConvNorm(32, 64, bias=True),
            Dense_0=nn.Linear(3136, 128),
            BatchNorm_0=nn.BatchNorm1d(128),
        )

    def forward(self, images):
        for layer in (self.ConvNorm_0, self.ConvNorm_1):
            images = torch.max_pool2d(torch.relu(layer(images)), 2)
        return torch.relu(self.BatchNorm_0(self.Dense_0(images.flatten(1))))


class Block(Named):
    def __init__(self, inputs, features, strides):
        layers = [ConvNorm(inputs, features, 3, strides), ConvNorm(features, features)]
        super().__init__(ConvNorm_0=layers[0], ConvNorm_1=layers[1])
        changes = strides > 1 or inputs != features
        self.shortcut = ConvNorm(inputs, features, 1, strides) if changes else nn.Identity()

    def forward(self, images):
        inner = self.ConvNorm_1(torch.relu(self.ConvNorm_0(images)))
        return torch.relu(self.shortcut(images) + inner)


class ResNet18(Named):
    def __init__(self, width):
        widths = [width * factor for factor in (1, 1, 1, 2, 2, 4, 4, 8, 8)]
        blocks = {
            f"Block_{i}": Block(widths[i], widths[i + 1], 2 if i in (2, 4, 6) else 1)
            for i in range(8)
        }
        super().__init__(ConvNorm_0=ConvNorm(3, width), **blocks)

    def forward(self, images):
        images = torch.relu(self.ConvNorm_0(images))
        for i in range(8):
            images = getattr(self, f"Block_{i}")(images)
        return images.mean(dim=(2, 3))


def to_torch_layout(values):
    """Kernels [.., inputs, outputs] -> [outputs, inputs, ..]; rows of C2F2's map, channel first."""
    values = np.asarray(values)
    if values.shape == (3136, 128):
        values = values.reshape(7, 7, 64, 128).transpose(2, 0, 1, 3).reshape(3136, 128)
    return np.moveaxis(values, (-1, -2), (0, 1)) if values.ndim > 1 else values


NAMES = dict(kernel="weight", scale="weight", bias="bias", mean="running_mean", var="running_var")


def copy_variables(module, variables):
    for name, value in variables.items():
        if isinstance(value, dict):
            copy_variables(getattr(module, name), value)
        else:
            getattr(module, NAMES[name]).data = torch.tensor(to_torch_layout(value))


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
        ("c2f2", (28, 28, 1), C2F2, {}),
        ("resnet18", (16, 16, 3), ResNet18, {"width": 8}),
    ],
)
def test_layers_are_those_of_pytorch(name, shape, network, options, train):
    generator = np.random.default_rng(0)
    images = generator.standard_normal((4, *shape))
    model = BACKBONES[name](**options)
    shapes = jax.eval_shape(lambda key: model.init(key, images, False), jax.random.key(0))
    variables = jax.tree.map(lambda leaf: generator.uniform(0.1, 0.5, leaf.shape), shapes)
    network = network(**options).double().train(train)
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
