"""Networks from images [b, h, w, channels] to features [b, d]; the classifier adds the head."""

from spr_jax.backbones.c2f2 import C2F2
from spr_jax.backbones.classifier import Classifier
from spr_jax.backbones.inception_resnet_v2 import InceptionResNetV2
from spr_jax.backbones.resnet18 import ResNet18
from spr_jax.backbones.vgg19_bn import VGG19BN

__all__ = ["BACKBONES", "Classifier"]

BACKBONES = {
    "c2f2": C2F2,
    "resnet18": ResNet18,
    "vgg19_bn": VGG19BN,
    "inception_resnet_v2": InceptionResNetV2,
}
