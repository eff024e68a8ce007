"""Our backbones in PyTorch, to compare values (tests) and times (benchmark_step)."""

import torch
from torch import nn


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
    def __init__(self, width=64):
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


class Group(Named):
    """Batch normalization without scale, whose weight stays 1."""

    def __init__(self, inputs, features, depth, activate):
        modules = {}
        for i in range(depth):
            conv = nn.Conv2d(features if i else inputs, features, 3, padding=1, bias=False)
            modules |= {f"Conv_{i}": conv, f"BatchNorm_{i}": nn.BatchNorm2d(features, momentum=0.4)}
            modules[f"BatchNorm_{i}"].weight.requires_grad = False
        super().__init__(**modules)
        self.depth, self.activate = depth, activate

    def forward(self, images):
        pooled = torch.max_pool2d(self.Conv_0(images), 2)
        images = inner = self.activate(self.BatchNorm_0(pooled))
        for i in range(1, self.depth):
            inner = getattr(self, f"BatchNorm_{i}")(getattr(self, f"Conv_{i}")(inner))
            inner = self.activate(inner + images if i == 2 else inner)
        return inner


class Whitened(Named):
    def __init__(self, widths=(64, 256, 256), depth=2, activation="relu", scale=1 / 9):
        activate = {"relu": torch.relu, "gelu": nn.functional.gelu}[activation]
        inputs = (24, *widths)
        super().__init__(
            **{f"Group_{i}": Group(inputs[i], inputs[i + 1], depth, activate) for i in range(3)}
        )
        self.activate, self.scale = activate, scale
        self.whitening = nn.Parameter(torch.randn(24, 3, 2, 2), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(24))

    def forward(self, images):
        images = self.activate(nn.functional.conv2d(images, self.whitening, self.bias))
        for i in range(3):
            images = getattr(self, f"Group_{i}")(images)
        return self.scale * images.amax(dim=(2, 3))
