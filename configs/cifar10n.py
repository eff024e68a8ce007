"""CIFAR-10 with human labels (CIFAR-10N; not in the paper).

    python -m spr_jax.main --config=configs/cifar10n.py --config.dataset.labels=worst

On an accelerator, as cifar10_sym; the paper has no number to compare with. Methods that are told
the noise rate are told the published one of these labels.
"""

from configs import cifar10_sym
from spr_jax.training import base_config as base


def get_config(method: str = "spr"):
    config = cifar10_sym.get_config(method)
    config.dataset = base.section("dataset", "cifar10n")
    config.noise.update(kind="human", rate=0.0)
    return config
