"""Learning with noisy labels and finding label errors, in JAX.

    from spr_jax import find_label_errors

    found = find_label_errors(features, labels)
    found.noise.rate, found.order[:100]  # share of wrong labels, the most suspect examples

The names below are imported when they are first used.
"""

import importlib

__version__ = "0.1.0"
_HOME = {
    "BACKBONES": "spr_jax.backbones",
    "DATASETS": "spr_jax.datasets",
    "Detection": "spr_jax.label_errors",
    "LOSSES": "spr_jax.losses",
    "METHODS": "spr_jax.methods",
    "find_label_errors": "spr_jax.label_errors",
    "sample_weights": "spr_jax.label_errors",
}
__all__ = [*_HOME]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'spr_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
