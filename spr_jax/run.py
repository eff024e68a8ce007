"""A run: epochs, selection, evaluation, checkpoints, and what it leaves in its folder."""

import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from flax import jax_utils
from tqdm import tqdm

from spr_jax import noise
from spr_jax.checkpoint import Checkpoints
from spr_jax.evaluate import selection_quality
from spr_jax.experiment import Experiment, Phase, init_state, make_experiment
from spr_jax.files import replace_file
from spr_jax.metrics import Log, line_of, write_json
from spr_jax.train import (
    Program,
    Progress,
    Setup,
    collect_record,
    count_right,
    make_program,
    on_every_device,
    partial_record,
    resume_epoch,
    scan_epoch,
    start_epoch,
    train_epoch,
)
from spr_jax.types import Split


class Stopped(Exception):
    """The run was asked to stop; it has saved what it needs to go on."""


class Position(NamedTuple):
    """Where a run is: what a checkpoint holds."""

    epoch: int
    progress: Progress  # of that epoch
    memory: dict[str, Any]
    best: dict[str, dict]  # by what it is best on: the row of that epoch


def run(
    config,
    workdir: Path,
    *,
    should_stop: Callable[[int], bool] = lambda step: False,  # asked after every step
    report: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train as `config` says, from the last checkpoint in `workdir` if there is one."""
    writes = jax.process_index() == 0
    experiment = make_experiment(config)
    setup = experiment.setup
    if writes:
        workdir.mkdir(parents=True, exist_ok=True)
        noise.save_manifest(experiment.manifest, workdir / "noise.npz")
        report(str(experiment.manifest))
    phase = program = None
    checkpoints = Checkpoints(workdir / "checkpoints", config.checkpoint.keep)
    position = restore(config, experiment, checkpoints)
    log = Log(workdir, position.epoch, writes=writes)
    images = None if setup.is_streamed else np.asarray(setup.dataset.train.images)
    data = on_every_device((images, np.asarray(setup.dataset.train.labels, np.int32)))
    try:
        while position.epoch < config.epochs and not _gave_up(position, config.patience):
            if phase is not experiment.phase_at(position.epoch):
                phase = experiment.phase_at(position.epoch)
                program = make_program(phase.setup)
                position = enter(config, phase, position)
            position, row = one_epoch(
                config, experiment, phase, program, position, data, should_stop
            )
            if row is None:
                save(checkpoints, phase.setup, program, position)
                raise Stopped
            log.write(row)
            if writes:
                write_selection(workdir, experiment, position.memory)
                report(line_of(row, config.epochs))
            if position.epoch % config.checkpoint.every == 0 or position.epoch == config.epochs:
                save(checkpoints, phase.setup, program, position)
        summary = summarize(log.rows, position.best)
        if writes:
            write_json(workdir / "summary.json", summary)
        return summary
    finally:
        log.close()
        checkpoints.close()


def enter(config, phase: Phase, position: Position) -> Position:
    """Hand on to the next phase what it needs of the one before."""
    epoch, progress, memory, best = position
    if not 0 < epoch == phase.first or progress.place:
        return position
    memory = init_memory(phase.setup) | memory
    fresh = phase.fresh_since == epoch
    state = jax_utils.replicate(init_state(config, phase.setup, epoch)) if fresh else progress.state
    progress = start_epoch(phase.setup, state, jax_utils.replicate(memory))
    return Position(epoch, progress, memory, best)


def init_memory(setup: Setup) -> dict[str, Any]:
    """What a method remembers before the first epoch, with the truth if it is to have that."""
    train = setup.dataset.train
    labels = np.asarray(train.labels, np.int32)
    memory = jax.device_get(setup.method.init(labels, setup.dataset.num_classes))
    if "right" in memory:
        if train.true_labels is None:
            raise ValueError("This method needs true labels, and the data set has none.")
        memory["right"] = labels == train.true_labels
    return memory


def one_epoch(config, experiment, phase, program, position, data, should_stop):
    """(position after it, row of metrics); without a row if it was asked to stop on the way."""
    epoch, progress, memory, best = position
    setup = phase.setup
    steps = len(setup.order(epoch).index)
    begin, taken = time.perf_counter(), progress.place
    replicated = jax_utils.replicate(memory)
    bar = tqdm(total=steps, initial=taken, leave=False, disable=jax.process_index() > 0)

    def on_step(taken):
        bar.update()
        return should_stop(epoch * steps + taken)

    with bar:
        bar.set_description(f"epoch {epoch + 1}/{config.epochs}")
        progress = train_epoch(program, setup, progress, replicated, data, epoch, on_step=on_step)
    losses = _finite(progress, epoch)
    if progress.place < steps:
        return position._replace(progress=progress), None
    trained = time.perf_counter()
    progress = scan_epoch(program, setup, progress, data, epoch)
    record = collect_record(program, setup, progress, epoch)
    memory = jax.device_get(setup.method.revise(memory, record, setup.key("revise", epoch)))
    selected = time.perf_counter()
    accuracy = evaluate(config, experiment, phase, program, progress.state, memory)
    tested = time.perf_counter()
    row = {
        "epoch": epoch,
        "loss": float(losses.mean()),
        "learning_rate": float(phase.schedule((epoch - phase.fresh_since) * steps)),
        **setup.method.describe(position.memory),
        **accuracy,
        **describe_selection(setup.dataset.train, memory),
        "seconds_train": trained - begin,
        "seconds_select": selected - trained,
        "seconds_test": tested - selected,
        "images_per_second": (steps - taken) * setup.batch_size / (trained - begin),
    }
    for name in accuracy:
        if name.endswith("_top1") and row[name] > best.get(name, {name: -1})[name]:
            best = best | {name: row}
    fresh = Progress(progress.state, progress.buffers, [])
    return Position(epoch + 1, fresh, memory, best), row


def evaluate(config, experiment, phase, program, state, memory) -> dict[str, float]:
    """Top-1, with more than ten classes also top-5, on the test sets and the validation split."""
    splits = dict(experiment.setup.dataset.tests)
    if experiment.validation is not None:
        splits["validation"] = experiment.validation
    replicated, found = jax_utils.replicate(memory), {}
    for name, split in splits.items():
        first, five = count_right(
            program, phase.setup, state.evaluated, replicated, split, config.eval_batch_size
        )
        found[f"{name}_top1"] = float(first)
        if experiment.setup.dataset.num_classes > 10:
            found[f"{name}_top5"] = float(five)
    return found


def describe_selection(train: Split, memory: dict[str, Any]) -> dict[str, float]:
    if "clean" not in memory:
        return {}
    clean = np.asarray(memory["clean"])
    row = {"clean_share": float(clean.mean())}
    row |= {name: float(value) for name, value in memory.get("selection", {}).items()}
    if train.true_labels is not None:
        right = np.asarray(train.labels) == train.true_labels
        row |= selection_quality(clean, right, memory.get("suspicion"))
    return row


def _finite(progress, epoch):
    """The losses so far; they and the weights they led to must be numbers."""
    losses = _on_host(progress.losses)
    weights = [network.params for network in jax_utils.unreplicate(progress.state.networks)]
    values = [*losses, optax.tree.norm(weights)]
    if not np.isfinite(values).all():
        step = int(np.flatnonzero(~np.isfinite(values))[0])
        what = "loss" if step < len(losses) else "norm of the weights"
        raise FloatingPointError(
            f"The {what} is {values[step]} in step {min(step + 1, len(losses))} of epoch "
            f"{epoch + 1}; the checkpoint before it is kept. Lower optimizer.learning_rate."
        )
    return losses


def _on_host(losses):
    return np.array([np.asarray(loss).ravel()[0] for loss in losses], np.float32)


def _gave_up(position, patience):
    best = position.best.get("validation_top1")
    return bool(patience and best and position.epoch - best["epoch"] > patience)


def restore(config, experiment: Experiment, checkpoints: Checkpoints) -> Position:
    """The newest checkpoint, or the beginning."""
    meta = checkpoints.latest()
    # A checkpoint between two epochs was written by the phase of the first.
    last = meta["epoch"] - (meta["place"] == 0) if meta else 0
    phase = experiment.phase_at(last)
    setup, state = phase.setup, init_state(config, phase.setup)
    memory = {}
    for earlier in experiment.phases:
        if earlier.first <= last:
            memory = init_memory(earlier.setup) | memory
    replicated = jax_utils.replicate((state, memory))
    progress = start_epoch(setup, *replicated)
    if meta is None:
        return Position(0, progress, memory, {})
    like = {"state": state, "memory": memory}
    if meta["place"]:
        count = len(setup.dataset.train.labels)
        shapes = {name: (count, *leaf.shape[3:]) for name, leaf in progress.buffers.items()}
        kinds = {name: leaf.dtype for name, leaf in progress.buffers.items()}
        like["record"] = {n: jax.ShapeDtypeStruct(shapes[n], kinds[n]) for n in shapes}
        like["losses"] = jax.ShapeDtypeStruct((meta["place"],), np.float32)
    tree = checkpoints.restore(like)
    progress = progress._replace(state=jax_utils.replicate(tree["state"]))
    if meta["place"]:
        progress = resume_epoch(setup, progress, tree["record"], meta["epoch"])
        progress = progress._replace(losses=list(tree["losses"]), place=meta["place"])
    return Position(meta["epoch"], progress, tree["memory"], meta["best"])


def save(checkpoints: Checkpoints, setup: Setup, program: Program, position: Position) -> None:
    epoch, progress, memory, best = position
    tree = {"state": jax_utils.unreplicate(progress.state), "memory": memory}
    if progress.place:
        tree["record"] = partial_record(program, setup, progress, epoch)
        tree["losses"] = _on_host(progress.losses)
    step = epoch * len(setup.order(0).index) + progress.place
    checkpoints.save(step, tree, {"epoch": epoch, "place": progress.place, "best": best})


def write_selection(workdir: Path, experiment: Experiment, memory: dict[str, Any]) -> None:
    """clean.npz: `index` in the data set, and what the method thinks of each example.

    Of the user's own images also clean.csv, the most suspect first.
    """
    if "clean" not in memory:
        return
    kept = {name: memory[name] for name in ("clean", "suspicion") if name in memory}
    with replace_file(workdir / "clean.npz", binary=True) as file:
        np.savez_compressed(file, index=experiment.members, **kept)
    dataset = experiment.setup.dataset
    if dataset.train.names is None:
        return
    labels = np.array(dataset.class_names)[dataset.train.labels]
    columns = {"file": dataset.train.names, "label": labels, **kept}
    order = np.argsort(-kept.get("suspicion", ~kept["clean"]), kind="stable")
    with replace_file(workdir / "clean.csv") as file:
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows(zip(*(column[order].tolist() for column in columns.values()), strict=True))


def summarize(rows: list[dict], best: dict[str, dict]) -> dict[str, Any]:
    """Accuracies by how their epoch was chosen: the last, the best on noisy validation, on test."""
    last = rows[-1]
    summary = {"epochs": last["epoch"] + 1, "last": last}
    if "validation_top1" in best:
        summary["best_on_validation"] = best["validation_top1"]
    on_test = {name: row for name, row in best.items() if name != "validation_top1"}
    summary["best_on_test"] = {
        name: {"epoch": r["epoch"], name: r[name]} for name, r in on_test.items()
    }
    seconds = ("seconds_train", "seconds_select", "seconds_test")
    return summary | {name: sum(row[name] for row in rows) for name in seconds}
