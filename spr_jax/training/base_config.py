"""Every field of an experiment, with the values that most experiments share."""

from ml_collections import ConfigDict

from spr_jax.backbones import BACKBONES
from spr_jax.datasets import DATASETS
from spr_jax.devices import PROGRAM_CACHE
from spr_jax.methods import METHODS
from spr_jax.noise import corrupt
from spr_jax.registry import defaults, options_of
from spr_jax.training.presets import decide, left_open

__all__ = ["decide", "get_config", "section", "suit_vectors"]


def get_config(method: str = "spr", *, dataset: str = "digits", backbone: str = "c2f2"):
    """The fields of a method on a data set; experiment configs override what they need."""
    config = ConfigDict()
    config.preset = "paper"  # or "released", "noise_model", "path"
    config.by_preset = ConfigDict()  # field -> preset -> value, for the fields it decides
    config.seed = 0
    config.epochs = 10
    config.batch_size = 128  # global, over all devices
    config.eval_batch_size = 256
    config.drop_last = False  # drop an incomplete last batch, as released
    config.dataset = section("dataset", dataset)
    config.augmentation = ""  # instead of the data set's own
    config.tta = "none"  # views whose predictions are averaged in tests: "mirror", "mirror_shift"
    config.noise = ConfigDict(options_of(corrupt))
    config.backbone = ConfigDict(backbone_options(backbone))
    config.method = section("method", method)
    config.optimizer = ConfigDict(
        {
            "learning_rate": 0.01,
            "schedule": "cosine",  # by epoch, to zero; "constant"; or "triangle", by step
            "warmup_epochs": 0.0,  # of a triangle; may end within an epoch
            "momentum": 0.9,
            "nesterov": False,
            "weight_decay": 5e-4,
            "decoupled_decay": False,  # from the momentum
            "norm_bias_rate": 1.0,  # factor on the learning rate of biases of batch normalization
            "clip_norm": 5.0,  # 0: the gradient is not clipped
        }
    )
    config.sync_batch_stats = True  # batch statistics over all devices, or of each device alone
    config.dtype = "float32"  # of the backbone's arithmetic; or "bfloat16"
    config.ema = 0.0  # decay of a running average of the weights, which is evaluated instead
    config.validation_share = 0.0  # of the (noisy) training data, held out
    config.patience = 0  # epochs without a better noisy validation accuracy before stopping
    config.checkpoint = ConfigDict({"every": 1, "keep": 1})  # epochs; number of checkpoints
    config.workers = 0  # processes that decode streamed images; 0: threads
    config.compilation_cache = PROGRAM_CACHE
    return config


def suit_vectors(config) -> None:
    """Let methods learn from vectors: what they do otherwise is made for networks that see images.

    Strong views lose entries in place of what RandAugment does to pixels. For SPR, mixup takes the
    place of CutMix. The vectors do not change, so with our preset labels are judged by them once,
    with a kernel, and once more by what the network predicts. It has no sparse penalty, which in
    images makes up for labels that are left out, and here cost 1.4 points (test images of CIFAR-10,
    encoded, symmetric noise 0.4).
    """
    if "mixing" in config.method:
        config.method.mixing = "mixup"
        usual = config.method.penalty_weight
        decide(config, "method.penalty_weight", paper=usual, released=usual, ours=0.0)
    if "strong" in config.method:
        config.method.strong = "feature_dropout"
    if "select" in config.method:
        presets = ("paper", "released", "path", "other_rule")
        decide(config, "method.weights", **dict.fromkeys(presets, "hard"), ours="probability")
        decide(config, "method.select.lift", **dict.fromkeys(presets, None), ours=True)
    if "judge_by" in config.method:
        decide(config, "method.judge_by", **dict.fromkeys(presets, "network"), ours="inputs")
    elif "select" in config.method:
        decide(config, "method.record_from", **dict.fromkeys(presets, "train"), ours="inputs")
        never = dict.fromkeys(presets, 0)
        decide(config, "method.refine_after", **never, ours=a_sixth_of_the_epochs)


def a_sixth_of_the_epochs(config) -> int:
    """When SPR refines its probabilities, unless the user wants none, or none of the inputs."""
    own = {"weights": "probability", "record_from": "inputs"}  # None: left to the preset
    can_refine = all(config.method[name] in (None, value) for name, value in own.items())
    return max(2, config.epochs // 6) if can_refine else 0


def section(kind: str, name: str) -> ConfigDict:
    """The options of a data set or a method, as its signature has them."""
    options = defaults(DATASETS if kind == "dataset" else METHODS, name)
    return ConfigDict(options | (left_open(options) if kind == "method" else {}))


def backbone_options(name: str) -> dict:
    """A backbone's own options; precision and devices are set for the whole run."""
    common = {"dtype", "axis_name", "parent", "name"}
    options = options_of(BACKBONES[name])
    return {"name": name} | {key: options[key] for key in options if key not in common}
