"""Every field of an experiment, with the values that most of them share."""

from ml_collections import ConfigDict, config_dict

from spr_jax.backbones import BACKBONES
from spr_jax.datasets import DATASETS
from spr_jax.methods import METHODS
from spr_jax.noise import corrupt
from spr_jax.registry import defaults, options_of

# What the preset decides, unless it is set: "paper" is the text, "released" the values of the
# released scripts with their defects repaired, "exact" ours: the whole data in one regression, the
# share that is kept from the data, too, and images without a trusted label learnt from unlabelled.
SPR_BY_PRESET = {
    "method.per_class": {"paper": 10, "released": 10, "exact": 0},
    "method.classes_per_group": {"paper": 10, "released": 10, "exact": 100},
    "method.pca_dim": {"paper": 10, "released": 10, "exact": 64},
    "method.intercept": {"paper": False, "released": False, "exact": True},
    "method.select": {"paper": "piece", "released": "piece", "exact": "auto"},
    "method.sparse_over": {"paper": "clean", "released": "clean", "exact": "all"},
    "method.ties": {"paper": "interpolated", "released": "released", "exact": "interpolated"},
}


def get_config(method: str = "spr", *, dataset: str = "digits", backbone: str = "c2f2"):
    """The fields of a method on a data set; experiments change what is theirs."""
    config = ConfigDict()
    config.preset = "paper"  # or "released", "exact"
    config.by_preset = ConfigDict()  # field -> preset -> value, for the fields it decides
    config.seed = 0
    config.epochs = 10
    config.batch_size = 128  # of all devices together
    config.eval_batch_size = 256
    config.drop_last = False  # a last batch that is not full: drop it, as released
    config.dataset = section("dataset", dataset)
    config.noise = ConfigDict(options_of(corrupt))
    config.backbone = ConfigDict(backbone_options(backbone))
    config.method = section("method", method)
    config.optimizer = ConfigDict(
        {
            "learning_rate": 0.01,
            "schedule": "cosine",  # by epoch, to zero; or "constant"
            "momentum": 0.9,
            "weight_decay": 5e-4,
            "clip_norm": 5.0,
        }
    )
    config.sync_batch_stats = True  # batch statistics over all devices, or of each device alone
    config.dtype = "float32"  # of the backbone's arithmetic; or "bfloat16"
    config.ema = 0.0  # decay of a running average of the weights, which is evaluated instead
    config.validation_share = 0.0  # of the (noisy) training data, held out
    config.patience = 0  # epochs without a better noisy validation accuracy before stopping
    config.checkpoint = ConfigDict({"every": 1, "keep": 1})  # epochs; how many
    config.workers = 0  # processes that decode streamed images; 0: threads
    config.compilation_cache = "~/.cache/spr_jax/xla"
    if method == "spr":
        for field, values in SPR_BY_PRESET.items():
            decide(config, field, **values)
    return config


def section(kind: str, name: str) -> ConfigDict:
    """The options of a data set or a method, as its signature has them."""
    return ConfigDict(defaults({"dataset": DATASETS, "method": METHODS}[kind], name))


def decide(config: ConfigDict, field: str, **values) -> None:
    """Let the preset choose a field, unless the user sets it."""
    section, name = field.split(".")
    kind = type(next(iter(values.values())))
    config[section][name] = config_dict.placeholder(kind)
    config.by_preset[field.replace(".", "/")] = ConfigDict(values)


def backbone_options(name: str) -> dict:
    """A backbone's own options; precision and devices are set for the whole run."""
    common = {"dtype", "axis_name", "parent", "name"}
    options = options_of(BACKBONES[name])
    return {"name": name} | {key: options[key] for key in options if key not in common}
