"""Your own images: a folder for each class, or a labels.csv.

    python -m spr_jax.main --config=configs/folder.py --config.dataset.path=photos

The time depends on the images; the progress bar shows it. Labels are used as given; the preset is
noise_model.
"""

from configs import recipes
from spr_jax.training import base_config as base


def get_config(method: str = "spr"):
    config = base.get_config(method, dataset="folder", backbone="resnet18")
    config.preset = "noise_model"
    config.epochs = 30
    config.batch_size = 64
    config.backbone.width = 16  # small enough for a laptop; 64 is the paper's
    config.optimizer.update(learning_rate=0.05)
    recipes.apply(config)
    return config
