"""A network as a value: parameters, batch statistics, constants, and the module that uses them."""

from typing import Any

import jax
from flax import linen as nn
from flax import struct
from jax import Array

from spr_jax.types import Output


@struct.dataclass
class Network:
    params: Any
    batch_stats: Any
    module: nn.Module = struct.field(pytree_node=False)
    constants: Any = struct.field(default_factory=dict)  # learned from the inputs, then frozen

    @property
    def variables(self) -> dict[str, Any]:
        return {
            "params": self.params,
            "batch_stats": self.batch_stats,
            "constants": self.constants,
        }

    def forward(
        self, images: Array, key: Array | None = None, feature_mask: Array | None = None
    ) -> tuple[Output, "Network"]:
        """Train-mode pass; also returns the network with its new batch statistics."""
        output, changed = self.module.apply(
            self.variables,
            images,
            True,
            feature_mask,
            mutable=["batch_stats"],
            rngs=None if key is None else {"dropout": key},
        )
        return output, self.replace(batch_stats=changed.get("batch_stats", {}))  # type: ignore[attr-defined]

    def predict(self, images: Array) -> Output:
        """Eval-mode pass: running statistics, no dropout."""
        output: Any = self.module.apply(self.variables, images, False)
        return output

    def inspect(self, images: Array) -> tuple[Output, tuple[Array, ...]]:
        """Eval-mode pass with the outputs of inner layers [b, d], first to last, means of maps."""
        found: Any = self.module.apply(self.variables, images, False, mutable=["intermediates"])
        return found[0], tuple(jax.tree.leaves(found[1]))

    @property
    def num_parameters(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.params))


def make_network(
    module: nn.Module, key: Array, images: Array, extra: nn.Module | None = None
) -> Network:
    """Initialize a network for images of this shape, and with it a module of its features."""
    output, variables = module.init_with_output({"params": key, "dropout": key}, images, False)
    params, *others = (variables.get(kind, {}) for kind in ("params", "batch_stats", "constants"))
    if extra is not None:
        params = params | {"extra": extra.init(key, output.features)["params"]}
    stats, constants = others
    return Network(params, stats, module, constants)
