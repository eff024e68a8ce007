"""ANIMAL-10N, real human label noise of about 8 % (Table 2).

    python -m spr_jax.main --config=configs/animal10n.py

The paper has 86.8 % after 160 epochs, on an accelerator.
"""

from configs import recipes
from spr_jax.training import base_config as base


def get_config(method: str = "spr"):
    config = base.get_config(method, dataset="animal10n", backbone="vgg19_bn")
    config.epochs = 160
    config.optimizer.update(learning_rate=0.1, weight_decay=1e-3)
    base.decide(config, "optimizer.momentum", paper=0.9, released=0.0, ours=0.0)
    recipes.apply(config)
    return config
