"""MNIST by the features of a pretrained encoder, with symmetric label noise.

    spr-encode --dataset=mnist --out=mnist.npz
    python -m spr_jax.main --config=configs/mnist_features.py --config.noise.rate=0.4
    python -m spr_jax.main --config=configs/mnist_features.py:co_teaching

The encoder has seen ImageNet, not handwriting: its features separate digits less well than a small
network trained on them.
"""

from configs import features


def get_config(method: str = "spr"):
    config = features.get_config(method)
    config.dataset.path = "mnist.npz"
    config.noise.update(kind="symmetric", rate=0.4)
    features.recipes.apply(config)
    return config
