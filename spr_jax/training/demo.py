"""The embedded demonstration: scikit-learn's digits with corrupted labels, nothing to download."""

from spr_jax.training.base_config import get_config

# Title, method, preset.
ROWS = (
    ("Plain training", "ce", "noise_model"),
    ("SPR as in the paper", "spr", "paper"),
    ("SPR with the noise model", "spr", "noise_model"),
)


def digits_config(method: str = "spr"):
    """Digits with 40 % symmetric noise, a small network, 20 epochs."""
    config = get_config(method, dataset="digits")
    config.preset = "noise_model"
    config.epochs = 20
    config.batch_size = 64
    config.noise.update(kind="symmetric", rate=0.4)
    config.optimizer.update(learning_rate=0.05, weight_decay=1e-3)
    if "cutmix" in config.method:
        config.method.update(cutmix=0.0)
    return config
