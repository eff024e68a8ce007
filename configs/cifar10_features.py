"""CIFAR-10 by the features of a pretrained encoder, with symmetric label noise.

    spr-encode --dataset=cifar10 --out=cifar10.npz
    python -m spr_jax.main --config=configs/cifar10_features.py --config.noise.rate=0.4
    python -m spr_jax.main --config=configs/cifar10_features.py:co_teaching
    python -m spr_jax.main --config=configs/cifar10_features.py --config.dataset.labels=worst.npy \\
        --config.noise.kind=human --config.noise.rate=0.0   # people's labels, as given

The encoder has seen ImageNet, not CIFAR-10: results are not those of networks trained from scratch.
"""

from configs import features


def get_config(method: str = "spr"):
    config = features.get_config(method)
    config.dataset.path = "cifar10.npz"
    config.noise.update(kind="symmetric", rate=0.4)
    features.recipes.apply(config)
    return config
