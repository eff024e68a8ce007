"""Your own embeddings or measurements, with labels of which some are wrong.

    python -m spr_jax.main --config=configs/features.py --config.dataset.path=embeddings.npz
    python -m spr_jax.main --config=configs/features.py:ce --config.dataset.path=embeddings.npz
    python -m spr_jax.main --config=configs/features.py:spr,linear ...   # without a hidden layer

`spr-encode` makes the file from images; docs/data.md lists other files. Labels are used as given;
the preset is noise_model. Labels are judged by the vectors themselves, with 30,000 examples or more
once again by what the network predicts after a sixth of the epochs, and each example is learned
from in proportion to the probability that its label is correct. Where images would be mixed by
CutMix, vectors are averaged (mixup); their views differ by noise in place of crops.
"""

from configs import recipes
from spr_jax.datasets.features import COMPONENTS
from spr_jax.training import base_config as base


def get_config(method: str = "spr"):
    method, _, backbone = method.partition(",")
    config = base.get_config(method, dataset="features", backbone=backbone or "mlp")
    config.preset = "noise_model"
    config.epochs = 30
    config.batch_size = 256
    config.eval_batch_size = 1024
    config.optimizer.update(learning_rate=0.02, weight_decay=1e-3)
    config.checkpoint.every = 10
    config.dataset.components = COMPONENTS
    base.suit_vectors(config)
    recipes.apply(config)
    return config
