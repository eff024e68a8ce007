"""WebVision (mini), 50 classes of photographs labelled by a web search (Table 2).

    python -m spr_jax.main --config=configs/webvision.py

The paper has 78.12 % (top-1) after 300 epochs on four devices with batch statistics of their own:
--config.sync_batch_stats=False. Every step after the first epoch is a CutMix step.
"""

from configs import recipes
from spr_jax.training import base_config as base


def get_config(method: str = "spr"):
    config = base.get_config(method, dataset="webvision", backbone="inception_resnet_v2")
    config.epochs = 300
    config.optimizer.update(learning_rate=0.01, weight_decay=5e-4)
    if "cutmix" in config.method:
        config.method.update(cutmix=1.0)
    recipes.apply(config)
    return config
