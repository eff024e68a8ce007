"""CIFAR-10 with asymmetric label noise (Table 1): truck->car, bird->plane, cat<->dog, deer->horse.

    python -m spr_jax.main --config=configs/cifar10_asym.py --config.noise.rate=0.4

The paper reports 92.8 / 91.3 / 89.0 % at rates 0.2 / 0.3 / 0.4 after 180 epochs, on an accelerator.
The pairs are processed one after the other, as released: rates 0.2 / 0.3 / 0.4 corrupt 9.5 / 14.2 /
18.3 % of all labels. For all pairs at once: --config.noise.simultaneous=True.
"""

from configs import cifar10_sym


def get_config(method: str = "spr"):
    config = cifar10_sym.get_config(method)
    config.noise.update(kind="asymmetric", rate=0.2)
    return config
