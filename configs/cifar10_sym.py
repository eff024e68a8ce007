"""CIFAR-10 with symmetric label noise (Table 1).

    python -m spr_jax.main --config=configs/cifar10_sym.py --config.noise.rate=0.4
    python -m spr_jax.main --config=configs/cifar10_sym.py:ce    # plain training

The paper has 93.2 / 91.0 / 82.7 / 64.1 % at rates 0.2 / 0.4 / 0.6 / 0.8 after 180 epochs, on an
accelerator. At rate 0.8 it does not let the sparse penalty grow, nor do we.
On a small machine train a narrow network: --config.backbone.width=16.
"""

from configs import recipes
from spr_jax.training import base_config as base


def get_config(method: str = "spr"):
    config = base.get_config(method, dataset="cifar10", backbone="resnet18")
    config.epochs = 180
    config.noise.update(kind="symmetric", rate=0.2)
    config.optimizer.update(learning_rate=0.01)
    base.decide(config, "optimizer.weight_decay", paper=1e-4, released=5e-4, ours=5e-4)
    if "penalty_growth" in config.method:
        every = dict.fromkeys(("paper", "released", "ours"), growth)
        base.decide(config, "method.penalty_growth", **every)
    recipes.apply(config)
    return config


def growth(config) -> float:
    """Factor of the sparse penalty per epoch."""
    return 1.0 if config.noise.kind == "symmetric" and config.noise.rate >= 0.8 else 1.02
