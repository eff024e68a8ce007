"""CIFAR-10 with a fast network and its settings: minutes per epoch on two CPU cores.

    python -m spr_jax.main --config=configs/cifar10_fast.py --config.preset=noise_model
    python -m spr_jax.main --config=configs/cifar10_fast.py:ce    # plain training
    python -m spr_jax.main --config=configs/cifar10_fast.py:ce --config.noise.rate=0  # true labels

Rate, momentum and decay are those of airbench (https://github.com/KellerJordan/cifar10-airbench)
for batches of 256; no label smoothing, which would blur what the selection sees.

Measured with --config.backbone.widths="(32, 64, 128)" --config.epochs=16, a quarter of this
network: about 50 s an epoch on two cores with nothing else to do, and 85.85 % with plain training
on labels of which 40 % are wrong (experiments/reports/table3_ablation_fast.md). The network as it
is takes about four times as long; no run of it is finished.
"""

from configs import recipes
from spr_jax.training import base_config as base


def get_config(method: str = "spr"):
    config = base.get_config(method, dataset="cifar10", backbone="whitened")
    config.epochs = 10
    config.batch_size = 256
    config.eval_batch_size = 500
    config.noise.update(kind="symmetric", rate=0.4)
    config.backbone.widths = (64, 128, 256)
    config.augmentation = "shift_alternate"
    config.tta = "mirror"
    config.ema = 0.99
    config.optimizer.update(
        learning_rate=0.4,
        schedule="triangle",
        warmup_epochs=2.0,
        momentum=0.85,
        nesterov=True,
        weight_decay=1.25e-3,
        norm_bias_rate=64.0,
        clip_norm=0.0,
    )
    recipes.apply(config, "cifar10_fast")
    return config
