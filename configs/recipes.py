"""Per-dataset hyperparameters from each method's paper or release, where they are not its defaults.

Training settings (epochs, optimizer, augmentation) are the experiment's, the same for all methods
so that they can be compared, except for multi-stage methods.
"""

from spr_jax.datasets.cifar10n import WRONG
from spr_jax.methods import TOLD_NOISE_RATE
from spr_jax.noise import AS_GIVEN
from spr_jax.registry import lookup
from spr_jax.training.presets import decide

MNIST = {
    # The numbers that the SPR paper tabulates were made with the SR release
    # (https://github.com/hitcszx/lnl_sr) and its settings, which are these.
    "sce": {"method.alpha": 1.0, "method.beta": 1.0},
    "apl": {"method.alpha": 1.0, "method.beta": 100.0},
    "sr": {
        "method.temperature": 0.1,
        "method.normalize": False,
        "method.power": 0.1,
        "method.weight": 4.0,
        "method.growth": 2.0,
        "method.grow_every": 5,
    },
    "nlnl": {"method.stages": "nl"},
    # Ours: each of the two trainings takes as long as any other method's one.
    "forward": {"epochs": 100, "method.estimate_epochs": 50},
    "nested": {"method.sigma": 10.0},  # ours
    "co_teaching_plus": {"method.warmup": 0},  # https://github.com/xingruiyu/coteaching_plus
    # Ours: stages of 200 epochs would not fit into 50.
    "pencil": {"method.warmup": 10, "method.label_epochs": 25},
    "plc": {"method.warmup": 10},
    "nct": {"method.sigma": 10.0, "method.warmup": 35},
    "topofilter": {"method.warmup": 10},
    # https://github.com/xingjunm/dimensionality-driven-learning
    "d2l": {"method.warmup": 5, "method.horizon": 50},
    # Ours: co-teaching for as long as any other method trains.
    "incv": {"epochs": 130, "method.fold_epochs": 10, "method.add_from": 20},
}

CIFAR10 = {
    # https://github.com/YisenWang/symmetric_cross_entropy_for_noisy_labels
    "sce": {"method.alpha": 0.1, "method.beta": 1.0},
    # https://github.com/HanxunH/Active-Passive-Losses
    "apl": {"method.alpha": 1.0, "method.beta": 1.0},
    # https://github.com/hitcszx/lnl_sr
    "sr": {
        "method.temperature": 0.5,
        "method.normalize": True,
        "method.power": 0.1,
        "method.weight": 1.2,
        "method.growth": 1.03,
        "method.grow_every": 1,
    },
    # https://github.com/ydkim1293/NLNL-Negative-Learning-for-Noisy-Labels
    "nlnl": {
        "epochs": 2160,
        "method.stage_epochs": 720,
        "optimizer.schedule": "constant",
        "optimizer.learning_rate": 0.02,
        "optimizer.weight_decay": 1e-4,
    },
    # https://github.com/yingyichen-cyy/Nested-Co-teaching
    "nested": {"method.sigma": 10.0},
    "nct": {"method.sigma": 10.0},
    # https://github.com/xingruiyu/coteaching_plus
    "co_teaching_plus": {"method.warmup": 20},
    # https://github.com/yikun2019/PENCIL
    "pencil": {
        "epochs": 320,
        "method.warmup": 70,
        "method.label_epochs": 130,
        "method.alpha": 0.4,
        "method.beta": 0.1,
        "method.label_rate": 4.7,
        "method.learning_rate": 0.06,
        "method.final_rate": 0.2,
    },
    # Ours, as above.
    "forward": {"epochs": 360, "method.estimate_epochs": 180},
    "iter_nld": {"method.warmup": 30, "method.detect_every": 15},  # eleven rounds in all
    "d2l": {"method.horizon": 180},
    # https://github.com/chenpf1025/noisy_label_understanding_utilizing
    "incv": {"epochs": 600, "method.fold_epochs": 50},
}

ANIMAL10N = {
    # https://github.com/yingyichen-cyy/Nested-Co-teaching: plain training has no dropout; "dropout"
    # has it after both hidden layers, as the backbone does; nested dropout uses no other.
    "ce": {"backbone.dropout": 0.0},
    "dropout": {"method.rate": 0.0, "backbone.dropout": 0.1},
    "nested": {"method.sigma": 100.0, "backbone.dropout": 0.0},
    "nct": {
        "epochs": 130,
        "method.sigma": 100.0,
        "method.warmup": 100,
        "method.forget_rate": 0.2,
        "backbone.dropout": 0.0,
    },
    # https://github.com/kaist-dmlab/SELFIE
    "selfie": {
        "epochs": 300,
        "method.noise_rate": 0.08,
        "method.restarts": 2,
        "method.restart_every": 100,
    },
    # Ours, as above.
    "forward": {"epochs": 320, "method.estimate_epochs": 160},
    "incv": {"epochs": 560, "method.fold_epochs": 50},
}

WEBVISION = {
    # https://github.com/HanxunH/Active-Passive-Losses
    "sce": {"method.alpha": 10.0, "method.beta": 1.0},
    "apl": {"method.alpha": 50.0, "method.beta": 0.1},
    # https://github.com/LiJunnan1992/DivideMix
    "divide_mix": {"method.warmup": 1, "method.mixup": 0.5, "method.unlabeled_weight": 0.0},
    # Ours, as above.
    "forward": {"epochs": 600, "method.estimate_epochs": 300},
    "incv": {"epochs": 700, "method.fold_epochs": 50},
}

# Ours, so that a short run has all stages.
DIGITS = {
    "sr": MNIST["sr"],
    "nlnl": {"method.stage_epochs": 8},
    "forward": {"method.estimate_epochs": 10},
    "nested": {"method.sigma": 10.0},
    "pencil": {"method.warmup": 3, "method.label_epochs": 10, "method.label_rate": 14.0},
    "plc": {"method.warmup": 3},
    "selfie": {"method.warmup": 5, "method.history": 5},
    "co_teaching_plus": {"method.warmup": 5},
    "nct": {"method.sigma": 10.0, "method.warmup": 12},
    # RandAugment is made for photographs; of 140 examples per class, 200 would be other classes'.
    "ssr": {"method.neighbors": 20, "method.strong": "none"},
    "spr_plus": {"method.strong": "none"},
    "divide_mix": {"method.warmup": 3, "method.ramp": 8},
    # In few epochs terms must grow faster.
    "sop": {"method.u_rate": 5.0, "method.v_rate": 5.0, "method.strong": "none"},
    "topofilter": {"method.warmup": 3},
    "iter_nld": {"method.detect_every": 5},
    "d2l": {"method.warmup": 1, "method.window": 3, "method.horizon": 20},
    "incv": {
        "method.iterations": 2,
        "method.fold_epochs": 2,
        "method.ramp": 3,
        "method.add_from": 6,
    },
}
FOLDER = {
    "divide_mix": {"method.warmup": 5, "method.ramp": 8},
    "nlnl": {"method.stage_epochs": 10},
    "forward": {"method.estimate_epochs": 15},
    "pencil": {"method.warmup": 5, "method.label_epochs": 15},
    "nct": {"method.warmup": 20},
    "topofilter": {"method.warmup": 5},
    "d2l": {"method.warmup": 2, "method.horizon": 30},
    "incv": {
        "method.iterations": 2,
        "method.fold_epochs": 4,
        "method.ramp": 3,
        "method.add_from": 7,
    },
}

# Ours, for 30 epochs on vectors.
FEATURES = FOLDER | {
    "sr": MNIST["sr"],
    "plc": {"method.warmup": 5},
    "selfie": {"method.warmup": 10, "method.history": 10},
    "co_teaching_plus": {"method.warmup": 5},
    "ssr": {"method.neighbors": 20, "method.voters": 5000},  # seconds per epoch on a CPU
    # By encoded test images of CIFAR-10, symmetric noise 0.4 (docs/measuring.md).
    "spr_plus": {"method.mixup": 1.0, "method.consistency": 0.0, "method.relabel_above": 0.7},
    "sop": {"method.u_rate": 5.0, "method.v_rate": 5.0},
}

# Ours, for ten epochs of a fast network: stages that fit in, training settings of the config.
CIFAR10_FAST = {
    **{name: CIFAR10[name] for name in ("sce", "apl", "sr", "nested")},
    "nlnl": {"method.stage_epochs": 3},
    "forward": {"epochs": 20, "method.estimate_epochs": 10},
    "pencil": {"method.warmup": 3, "method.label_epochs": 4},
    "plc": {"method.warmup": 3},
    "selfie": {"method.warmup": 3, "method.history": 3},
    "divide_mix": {"method.warmup": 3, "method.ramp": 3},
    "mentornet": {"method.ramp": 3},
    "co_teaching": {"method.ramp": 3},
    "co_teaching_plus": {"method.ramp": 3, "method.warmup": 3},
    "nct": {"method.sigma": 10.0, "method.warmup": 6},
    "topofilter": {"method.warmup": 3, "method.filter_every": 2},
    "iter_nld": {"method.warmup": 3, "method.detect_every": 3},
    "d2l": {"method.warmup": 1, "method.window": 3, "method.horizon": 10},
    "incv": {
        "method.iterations": 1,
        "method.fold_epochs": 3,
        "method.ramp": 3,
        "method.add_from": 3,
    },
}

# Fraction of wrong labels that the publishers estimate.
ESTIMATED_NOISE = {"animal10n": 0.08, "webvision": 0.2}
CORRECT = ("cifar10", "digits", "mnist")  # data sets whose own labels are taken for the truth

RECIPES = {  # data set -> method -> field -> value
    "animal10n": ANIMAL10N,
    "cifar10": CIFAR10,
    "cifar10_fast": CIFAR10_FAST,
    "digits": DIGITS,
    "features": FEATURES,
    "folder": FOLDER,
    "mnist": MNIST,
    "webvision": WEBVISION,
}


def apply(config, recipes: str = "") -> None:
    """Apply the recipe of this method on this data set, or that of another name."""
    recipe = RECIPES.get(recipes or config.dataset.name, {}).get(config.method.name, {})
    if config.method.name in TOLD_NOISE_RATE:
        every = dict.fromkeys(("paper", "released", "ours"), known_noise_rate)
        decide(config, f"method.{TOLD_NOISE_RATE[config.method.name]}", **every)
    config.update_from_flattened_dict(recipe)


def known_noise_rate(config) -> float:
    """What a method is told of the noise: the rate that is drawn, or that was published.

    Raises:
      ValueError: if neither is known; the field to set is named.
    """
    noise, name = config.noise, config.dataset.name
    if noise.kind in ("symmetric", "asymmetric", "instance") and not noise.manifest:
        return noise.rate
    if noise.kind in AS_GIVEN and not noise.manifest:
        if name == "cifar10n":
            return lookup(WRONG, config.dataset.labels)
        if name in ESTIMATED_NOISE or name in CORRECT:
            return ESTIMATED_NOISE.get(name, 0.0)
    option = TOLD_NOISE_RATE[config.method.name]
    raise ValueError(
        f"method.{option} is not set, and what fraction of the labels of {name} is wrong is not "
        f"known; {config.method.name} must be told: set it, as --config.method.{option}=0.2 "
        "(spr-detect estimates it)."
    )
