"""From a config to a run: data with its noise, stages of the method, fresh networks."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from spr_jax import augment, noise
from spr_jax.backbones import BACKBONES, OF_VECTORS, Classifier
from spr_jax.backbones.network import make_network
from spr_jax.datasets import DATASETS
from spr_jax.devices import AXIS, first_process_first
from spr_jax.methods import METHODS, Method, Stage
from spr_jax.methods.method import Memory
from spr_jax.methods.selection_rules import RULES
from spr_jax.registry import build, lookup
from spr_jax.training.batches import num_steps
from spr_jax.training.presets import PRESETS
from spr_jax.training.run import Run, ScheduledStage
from spr_jax.training.stages import schedule_stages
from spr_jax.training.step import TrainState
from spr_jax.types import Dataset, Split


def make_run(config, dataset: Dataset | None = None) -> Run:
    """Load the data, draw the noise, build the method; nothing is trained yet.

    Args:
      config: resolved and checked.
      dataset: instead of the one that `config.dataset` names.
    """
    method = build(METHODS, config.method)  # checks its options before any data is loaded
    if dataset is None:
        with first_process_first("data"):  # which prepares what is missing, for all who share it
            dataset = build(DATASETS, config.dataset)
    if config.augmentation:
        dataset = dataset._replace(augmentation=config.augmentation)
    check_inputs(config, dataset)
    dataset, manifest = noise.corrupt(dataset, **config.noise)
    dataset, validation, members = hold_out(dataset, config.validation_share, config.seed)
    stages = (Stage(method),) if isinstance(method, Method) else method
    count = len(dataset.train.labels)
    steps = num_steps(count, config.batch_size, drop_last=config.drop_last)
    needs_widths = any(stage.method.needs_widths for stage in stages)
    return Run(
        dataset=dataset,
        stages=schedule_stages(config, stages, steps),
        batch_size=config.batch_size,
        seed=config.seed,
        drop_last=config.drop_last,
        ema=config.ema,
        tta=config.tta,
        workers=config.workers,
        manifest=manifest,
        validation=validation,
        members=members,
        widths=layer_widths(config, dataset) if needs_widths else (),
    )


def check_inputs(config, dataset: Dataset) -> None:
    """Refuse what only images can have, where examples are vectors; and the other way round."""
    is_image = len(dataset.train.images.shape) == 4
    if is_image and dataset.augmentation in set(augment.OF_VECTORS) - {"none"}:
        raise ValueError(f"{dataset.augmentation!r} augments vectors; {dataset.name} has images.")
    strong = config.method.get("strong", "none")
    suitable = sorted(augment.OF_IMAGES if is_image else augment.OF_VECTORS)
    if strong not in suitable:
        raise ValueError(
            f"method.strong is {strong!r}, and {dataset.name} holds "
            f"{'images' if is_image else 'vectors'}; choose from {suitable}."
        )
    for option, others in (("record_from", "'train' or 'scan'"), ("judge_by", "'network'")):
        if is_image and config.method.get(option) == "inputs":
            raise ValueError(
                f"method.{option} is 'inputs', and {dataset.name} has images, which no regression "
                f"explains; set it to {others}."
            )
    if is_image:
        return
    lookup(augment.OF_VECTORS, dataset.augmentation)
    if config.tta != "none":
        raise ValueError(
            f"tta is {config.tta!r}, which mirrors images, and {dataset.name} holds vectors; set "
            "it to 'none'."
        )
    if config.backbone.name not in OF_VECTORS:
        raise ValueError(
            f"backbone.name is {config.backbone.name!r}, a network for images, and {dataset.name} "
            f"holds vectors; choose from {list(OF_VECTORS)}."
        )
    if config.method.get("cutmix") and config.method.mixing == "cutmix":
        raise ValueError(
            f"method.mixing is 'cutmix', which pastes parts of images, and {dataset.name} holds "
            "vectors; set it to 'mixup', or method.cutmix to 0."
        )


def hold_out(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Split | None, np.ndarray]:
    """Keep a share of each class of the training data, labels as given, for validation."""
    train = dataset.train
    chosen = np.zeros(len(train.labels), bool)
    for label in range(dataset.num_classes):
        members = np.flatnonzero(train.labels == label)
        members = np.random.default_rng((seed, label)).permutation(members)
        chosen[members[: int(share * len(members))]] = True
    members = np.flatnonzero(~chosen)
    if not chosen.any():
        return dataset, None, members
    kept = dataset._replace(train=train.take(members))
    return kept, train.take(np.flatnonzero(chosen)), members


def init_state(config, run: Run, epoch: int = 0) -> TrainState:
    """Initialize networks for the run from `epoch` on, not yet replicated."""
    stage, module = run.stage_at(epoch), make_module(config, run.dataset)
    backbone, images = module.backbone, blank_image(run.dataset)
    keys = jax.random.split(
        run.key("init", 0 if stage.begins_as_the_run else epoch), stage.method.num_networks
    )
    make = partial(make_network, module, images=images, extra=stage.method.extra)
    networks = jax.jit(lambda keys: tuple(make(key=key) for key in keys))(keys)
    if hasattr(backbone, "learn_constants"):
        constants = {"backbone": backbone.learn_constants(normalized_sample(run.dataset))}
        networks = tuple(network.replace(constants=constants) for network in networks)
    opt_states = tuple(stage.optimizer.init(network.params) for network in networks)
    return TrainState(networks, opt_states, networks if run.ema else (), jnp.int32(0))


def make_module(config, dataset: Dataset) -> Classifier:
    """The backbone of a config, with a head for the classes of the data set."""
    options = dict(config.backbone)
    backbone = BACKBONES[options.pop("name")](
        dtype={"float32": None, "bfloat16": jnp.bfloat16}[config.dtype],
        axis_name=AXIS if config.sync_batch_stats else None,
        **options,
    )
    return Classifier(backbone, dataset.num_classes)


def layer_widths(config, dataset: Dataset) -> tuple[int, ...]:
    """Widths of the inner layers that the backbone offers and, last, of its features."""

    def look(key, images):
        output, inner = make_network(make_module(config, dataset), key, images).inspect(images)
        return *inner, output.features

    layers = jax.eval_shape(look, jax.random.key(0), blank_image(dataset))
    return tuple(layer.shape[1] for layer in layers)


def blank_image(dataset: Dataset) -> jax.Array:
    """A batch of one image, of zeros."""
    return jnp.zeros((1, *dataset.train.images.shape[1:]), jnp.float32)


def normalized_sample(dataset: Dataset, num_pixels: int = 5000 * 32 * 32) -> np.ndarray:
    """The first training images as a network sees them, [n, h, w, channels], not augmented."""
    images = dataset.train.images
    count = min(len(images), num_pixels // np.prod(images.shape[1:3]))
    first = np.stack([images[i] for i in range(count)])
    with jax.ensure_compile_time_eval():  # also where only shapes are asked for
        return np.asarray(augment.normalise(jnp.asarray(first), dataset.mean, dataset.std))


def init_memory(run: Run, stage: ScheduledStage) -> Memory:
    """Initial memory of a stage's method, as NumPy arrays; a method that asks sees the truth."""
    train = run.dataset.train
    labels = np.asarray(train.labels, np.int32)
    init = partial(stage.method.init, labels, run.dataset.num_classes)
    if stage.method.needs_widths:
        init = partial(init, widths=run.widths)
    if not stage.method.needs_truth:
        return jax.device_get(init())
    if train.true_labels is None:
        raise ValueError("This method needs true labels, and the data set has none.")
    return jax.device_get(init(labels == train.true_labels))


def describe(config) -> str:
    """Say what a run would be: selection, networks, steps, memory."""
    run = make_run(config)
    state = jax.eval_shape(lambda: init_state(config, run))
    steps, train = run.steps_per_epoch, run.dataset.train

    def mebibytes(tree):
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)) / 2**20

    images = 0 if run.is_streamed else np.prod(train.images.shape) / 2**20
    memory = init_memory(run, run.stages[0])
    sizes = [network.num_parameters for network in state.networks]
    lines = describe_selection_rule(config)
    lines += [
        f"Networks: {len(sizes)} of {sizes[0]:,} parameters.",
        f"Examples: {len(train.labels):,}, {'streamed' if run.is_streamed else 'in memory'}.",
        f"Steps: {steps} per epoch, {steps * config.epochs:,} in all.",
        f"Devices: {jax.device_count()} x {jax.devices()[0].device_kind}.",
        f"On each device: state {mebibytes(state):.0f} MiB, images {images:.0f} MiB, "
        f"memory of the method {mebibytes(memory):.1f} MiB, and what a step needs.",
    ]
    return "\n".join(lines)


def describe_selection_rule(config) -> list[str]:
    """Say what the preset runs and which rule selects, for methods that have one."""
    if "select" not in config.method:
        return []
    options = dict(config.method.select)
    rule = RULES[options.pop("name")]
    values = ", ".join(f"{name}={value}" for name, value in options.items())
    return [
        f"Preset {config.preset}: {PRESETS[config.preset].runs}.",
        f"Selection rule {config.method.select.name}({values}): {summary_of(rule)}",
    ]


def summary_of(function) -> str:
    """The first paragraph of a docstring, as one line."""
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
