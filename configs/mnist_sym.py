"""MNIST with symmetric label noise (Table 1).

    python -m spr_jax.main --config=configs/mnist_sym.py --config.noise.rate=0.4
    python -m spr_jax.main --config=configs/mnist_sym.py:ce    # plain training

About 20 seconds per epoch on two CPU cores. The paper reports 99.3 / 99.2 / 99.2 / 98.7 % at rates
0.2 / 0.4 / 0.6 / 0.8 after 50 epochs; experiments/reports/learn_mnist.md has ten epochs at 0.4.
In 50 epochs the sparse penalty grows 9,000-fold by the paper's factor of 1.2, and fourfold by ours.
"""

from configs import recipes
from spr_jax.training import base_config as base


def get_config(method: str = "spr"):
    config = base.get_config(method, dataset="mnist", backbone="c2f2")
    config.epochs = 50
    config.noise.update(kind="symmetric", rate=0.2)
    config.optimizer.update(learning_rate=0.01, weight_decay=1e-3)
    if "cutmix" in config.method:
        config.method.cutmix = 0.0  # supervised SPR
        base.decide(config, "method.penalty_growth", paper=1.2, released=1.2, ours=1.03)
    recipes.apply(config)
    return config
