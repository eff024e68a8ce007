"""Networks from images [b, h, w, channels], or vectors [b, k], to features [b, d].

The classifier adds the head.
"""

from spr_jax.backbones.c2f2 import C2F2
from spr_jax.backbones.classifier import Classifier
from spr_jax.backbones.inception_resnet_v2 import InceptionResNetV2
from spr_jax.backbones.resnet18 import ResNet18
from spr_jax.backbones.vectors import MLP, Linear
from spr_jax.backbones.vgg19_bn import VGG19BN
from spr_jax.backbones.whitened import Whitened

__all__ = ["BACKBONES", "OF_VECTORS", "Classifier"]

BACKBONES = {
    "c2f2": C2F2,
    "resnet18": ResNet18,
    "whitened": Whitened,
    "vgg19_bn": VGG19BN,
    "inception_resnet_v2": InceptionResNetV2,
    "linear": Linear,
    "mlp": MLP,
}
OF_VECTORS = ("linear", "mlp")  # that need no images
