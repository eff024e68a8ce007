"""One's own images: a folder for each class, or a labels.csv.

    python -m spr_jax.main --config=configs/folder.py --config.dataset.path=photos

How long it takes depends on the images; the bar says so. The labels are taken as they are, and the
whole data is one regression (preset exact).
"""

from configs import base, recipes


def get_config(method: str = "spr"):
    config = base.get_config(method, dataset="folder", backbone="resnet18")
    config.preset = "exact"
    config.epochs = 30
    config.batch_size = 64
    config.backbone.width = 16  # small enough for a laptop; 64 is the paper's
    config.optimizer.update(learning_rate=0.05)
    recipes.apply(config)
    return config
