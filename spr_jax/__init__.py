"""Learning with noisy labels and finding label errors, in JAX.

    from spr_jax import find_label_errors

    found = find_label_errors(features, labels)
    found.noise.rate, found.order[:100]  # fraction of wrong labels, the most suspect examples

The public names are imported when they are first used: the detector needs no training packages.
"""

import importlib

__version__ = "0.1.0"
_HOME = {
    "BACKBONES": "spr_jax.backbones",
    "DATASETS": "spr_jax.datasets",
    "Detection": "spr_jax.detection.types",
    "LOSSES": "spr_jax.losses",
    "METHODS": "spr_jax.methods",
    "SPRClassifier": "spr_jax.estimator",
    "encode_images": "spr_jax.detection.encode",
    "find_label_errors": "spr_jax.detection.find",
    "sample_weights": "spr_jax.detection.find",
}
__all__ = [*_HOME]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'spr_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
