"""A backbone with its linear head."""

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from spr_jax.types import Output


class Classifier(nn.Module):
    """Map images to logits and features, both in single precision whatever the backbone's."""

    backbone: nn.Module
    num_classes: int

    @nn.compact
    def __call__(
        self,
        images: Array,  # [b, h, w, channels]
        train: bool,
        feature_mask: Array | None = None,  # [d] or [b, d], factor on the head's input
    ) -> Output:
        features = self.backbone(images, train)
        features = features.astype(jnp.promote_types(features.dtype, jnp.float32))
        seen = features if feature_mask is None else features * feature_mask
        head = self.backbone.head(self.num_classes, features.shape[-1], name="head")
        return Output(head(seen), features)
