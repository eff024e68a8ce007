"""A backbone that is compiled quickly."""

from flax import linen as nn

from spr_jax.backbones import c2f2


class Small(nn.Module):
    dtype: type | None = None
    axis_name: str | None = None
    head = staticmethod(c2f2.xavier_dense)

    @nn.compact
    def __call__(self, images, train):
        flat = images.reshape(len(images), -1)
        return nn.relu(c2f2.norm(self, train)(c2f2.xavier_dense(32, flat.shape[1])(flat)))
