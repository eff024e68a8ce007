"""Networks on vectors: features of another network, or measurements."""

from typing import Any

from flax import linen as nn
from jax import Array

from spr_jax.backbones.layers import dense, norm, offer


class Linear(nn.Module):
    """Features [b, d]: the input itself, so that with its head it is a linear classifier."""

    dtype: Any = None
    axis_name: str | None = None
    head = staticmethod(dense)

    @nn.compact
    def __call__(self, inputs: Array, train: bool) -> Array:
        return inputs.reshape(len(inputs), -1)


class MLP(nn.Module):
    """Features [b, width]: fully connected layers, each with ReLU. Images are flattened."""

    width: int = 256
    depth: int = 1  # hidden layers
    dropout: float = 0.0
    batch_norm: bool = True
    dtype: Any = None
    axis_name: str | None = None
    head = staticmethod(dense)

    def __post_init__(self) -> None:
        """Refuse options that make no network."""
        super().__post_init__()
        for name in ("width", "depth"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"backbone.{name} is {value}; expected 1 or more.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"backbone.dropout is {self.dropout}; expected 0 to below 1.")

    @nn.compact
    def __call__(self, inputs: Array, train: bool) -> Array:
        hidden = inputs.reshape(len(inputs), -1)
        for layer in range(self.depth):
            if layer:  # of the last one it would be the features
                offer(self, hidden)
            hidden = dense(self.width, hidden.shape[1], dtype=self.dtype)(hidden)
            if self.batch_norm:
                hidden = norm(self, train)(hidden)
            hidden = nn.relu(hidden)
            if self.dropout:
                hidden = nn.Dropout(self.dropout, deterministic=not train)(hidden)
        return hidden
