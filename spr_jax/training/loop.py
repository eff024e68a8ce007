"""The loop of a run: epochs, selection, evaluation, checkpoints."""

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from flax.jax_utils import unreplicate
from tqdm import tqdm

from spr_jax import noise
from spr_jax.backbones.network import Network
from spr_jax.devices import replicate
from spr_jax.io.atomic import write_json
from spr_jax.io.signals import Stopped
from spr_jax.methods.method import Memory
from spr_jax.training.build import init_memory, init_state, make_run
from spr_jax.training.checkpoint import Checkpoints
from spr_jax.training.earlier import earlier_of, settle
from spr_jax.training.epoch import (
    Progress,
    accuracy,
    buffers_from_record,
    data_on_devices,
    empty_buffers,
    finished_epoch,
    record_so_far,
    scan_epoch,
    train_epoch,
)
from spr_jax.training.log import Log, line_of, write_selection
from spr_jax.training.run import Run
from spr_jax.training.selection_metrics import describe_selection
from spr_jax.training.step import Program, make_program
from spr_jax.types import Dataset

SUMMARY = "summary.json"  # written last: a folder that has it holds a finished run


def train(
    config,
    workdir: Path,
    *,
    dataset: Dataset | None = None,
    should_stop: Callable[[int], bool] = lambda step: False,
    report: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train as `config` says, resuming from the last checkpoint in `workdir` if there is one.

    Args:
      config: resolved and checked.
      workdir: where the run reads and writes.
      dataset: instead of the one that `config.dataset` names.
      should_stop: asked after every step, with the number of steps taken.
      report: told the progress, a line per epoch.

    Returns:
      The summary of the run, as in summary.json.

    Raises:
      Stopped: if `should_stop` said so; the same call resumes.
      FloatingPointError: if the loss or the weights are no longer finite.
    """
    if (workdir / SUMMARY).exists():
        report(f"{workdir} holds a finished run.")
        return json.loads((workdir / SUMMARY).read_text())
    writes = jax.process_index() == 0
    run = make_run(config, dataset)
    assert run.manifest is not None and run.members is not None  # as make_run leaves them
    if writes:
        workdir.mkdir(parents=True, exist_ok=True)
        noise.save_manifest(run.manifest, workdir / "noise.npz")
        report(str(run.manifest))
    checkpoints = Checkpoints(workdir / "checkpoints", config.checkpoint.keep)
    progress = restore(config, run, checkpoints) or begin(config, run)
    log = Log(workdir, progress.epoch, writes=writes)
    data, stage = data_on_devices(run), None
    try:
        while progress.epoch < config.epochs and not _gave_up(progress, config.patience):
            if stage is not run.stage_at(progress.epoch):
                stage = run.stage_at(progress.epoch)
                program, progress = make_program(run, stage), enter_stage(config, run, progress)
            progress, row = one_epoch(config, run, program, progress, data, should_stop)
            if row is None:
                save(checkpoints, run, program, progress)
                raise Stopped
            log.write(row)
            if writes:
                write_selection(workdir, run.dataset, run.members, progress.memory)
                report(line_of(row, config.epochs))
            if progress.epoch % config.checkpoint.every == 0 or progress.epoch == config.epochs:
                save(checkpoints, run, program, progress)
        summary = summarize(log.rows, progress.best)
    finally:
        log.close()
        checkpoints.close()
    if writes:
        write_json(workdir / SUMMARY, summary)
    return summary


def train_in_memory(
    config,
    dataset: Dataset,
    *,
    weights: np.ndarray | None = None,
    known: Memory | None = None,
    report: Callable[[str], None] | None = None,
) -> tuple[Run, Progress]:
    """Train without a folder: nothing is written, and nothing can be resumed.

    Args:
      config: resolved and checked.
      dataset: to train on.
      weights: [N], positive: how much each example counts; None: equally.
      known: what the method would find out about the examples after the first epoch; it revises
        that after later ones only.
      report: told the progress, a line per epoch; None: nobody is told.
    """
    run = make_run(config, dataset)._replace(weights=weights)
    if known is not None:
        run = run._replace(stages=tuple(map(_knowing, run.stages)))
    progress, data, stage = begin(config, run), data_on_devices(run), None
    progress = progress._replace(memory=progress.memory | (known or {}))
    while progress.epoch < config.epochs:
        if stage is not run.stage_at(progress.epoch):
            stage = run.stage_at(progress.epoch)
            program, progress = make_program(run, stage), enter_stage(config, run, progress)
        progress, row = one_epoch(
            config, run, program, progress, data, lambda step: False, shown=report is not None
        )
        if report is not None and row is not None:
            report(line_of(row, config.epochs))
    return run, progress


def _knowing(stage):
    """The stage with a method that has nothing to find out after the first epoch."""

    def revise(memory, epoch, key):
        return stage.method.revise(memory, epoch, key) if epoch.number else memory

    return stage._replace(method=stage.method._replace(revise=revise))


def begin(config, run: Run) -> Progress:
    """The first epoch with fresh networks."""
    stage = run.stages[0]
    state, memory = replicate(init_state(config, run)), init_memory(run, stage)
    earlier, buffers = earlier_of(stage.method, state), empty_buffers(run, stage, state, memory)
    return Progress(0, state, memory, {}, buffers, earlier=earlier)


def enter_stage(config, run: Run, progress: Progress) -> Progress:
    """Start a later stage: keep the memory; networks and optimizer unless it has fresh ones."""
    epoch, stage = progress.epoch, run.stage_at(progress.epoch)
    if not 0 < epoch == stage.first or progress.steps_taken:
        return progress
    memory = init_memory(run, stage) | progress.memory
    state = progress.state
    if stage.fresh_since == epoch:
        state = replicate(init_state(config, run, epoch))
    elif stage.optimizer_since == epoch:
        weights = (network.params for network in unreplicate(state.networks))
        fresh = replicate(tuple(map(stage.optimizer.init, weights)))
        state = dataclasses.replace(state, opt_states=fresh)
    earlier, buffers = earlier_of(stage.method, state), empty_buffers(run, stage, state, memory)
    progress = progress._replace(state=state, memory=memory, buffers=buffers, losses=())
    return progress._replace(earlier=earlier)


def one_epoch(
    config, run: Run, program: Program, progress: Progress, data, should_stop, shown: bool = True
) -> tuple[Progress, dict[str, Any] | None]:
    """Train, select, evaluate; without a row of metrics if it was asked to stop on the way."""
    epoch, stage, steps = progress.epoch, run.stage_at(progress.epoch), run.steps_per_epoch
    before, start, taken = progress.memory, time.perf_counter(), progress.steps_taken
    hidden = not shown or jax.process_index() > 0
    bar = tqdm(total=steps, initial=taken, leave=False, disable=hidden)

    def on_step(taken):
        bar.update()
        return should_stop(epoch * steps + taken)

    with bar:
        bar.set_description(f"epoch {epoch + 1}/{config.epochs}")
        progress = train_epoch(program, run, progress, data, on_step=on_step)
    losses = check_finite(progress)
    if progress.steps_taken < steps:
        return progress, None
    trained = time.perf_counter()
    progress = scan_epoch(program, run, progress, data)
    finished = finished_epoch(program, run, progress, data)
    memory = jax.device_get(stage.method.revise(before, finished, run.key("revise", epoch)))
    state, earlier = settle(stage.method, progress.state, progress.earlier, memory)
    progress = progress._replace(state=state, memory=memory, earlier=earlier)
    selected = time.perf_counter()
    accuracies = evaluate(config, run, program, progress)
    tested = time.perf_counter()
    row = {
        "epoch": epoch,
        "loss": float(losses.mean()),
        "learning_rate": float(stage.schedule((epoch - stage.optimizer_since) * steps)),
        **stage.method.describe(before, epoch - stage.first),
        **accuracies,
        **describe_selection(run.dataset.train, memory),
        "seconds_train": trained - start,
        "seconds_select": selected - trained,
        "seconds_test": tested - selected,
        "images_per_second": (steps - taken) * run.batch_size / (trained - start),
    }
    best = progress.best
    for name in accuracies:
        if name.endswith("_top1") and row[name] > best.get(name, {name: -1})[name]:
            best = best | {name: row}
    return progress._replace(epoch=epoch + 1, best=best, losses=()), row


def evaluate(config, run: Run, program: Program, progress: Progress) -> dict[str, float]:
    """Top-1, with more than ten classes also top-5, on the test sets and the validation split.

    Also top-1 of predictions that the method names beside its own, as in test_top1_NAME.
    """
    splits, method = dict(run.dataset.tests), run.stage_at(progress.epoch).method
    if run.validation is not None:
        splits["validation"] = run.validation
    found, size = {}, config.eval_batch_size
    for name, split in splits.items():
        top1, top5, *others = accuracy(program, progress.state, progress.memory, split, size)
        found[f"{name}_top1"] = top1
        if run.dataset.num_classes > 10:
            found[f"{name}_top5"] = top5
        beside = zip(method.predict_beside, others, strict=True)
        found |= {f"{name}_top1_{who}": value for who, value in beside}
    return found


def check_finite(progress: Progress) -> np.ndarray:
    """The losses so far, if they and the weights they led to are finite."""
    losses = _on_host(progress.losses)
    weights = [network.params for network in unreplicate(progress.state.networks)]
    values = [*losses, optax.tree.norm(weights)]
    if not np.isfinite(values).all():
        step = int(np.flatnonzero(~np.isfinite(values))[0])
        what = "loss" if step < len(losses) else "norm of the weights"
        raise FloatingPointError(
            f"The {what} is {values[step]} in step {min(step + 1, len(losses))} of epoch "
            f"{progress.epoch + 1}; the checkpoint before it is kept. Lower "
            "optimizer.learning_rate."
        )
    return losses


def _on_host(losses):
    return np.array([np.asarray(loss).ravel()[0] for loss in losses], np.float32)


def _gave_up(progress, patience):
    best = progress.best.get("validation_top1")
    return bool(patience and best and progress.epoch - best["epoch"] > patience)


def restore(config, run: Run, checkpoints: Checkpoints) -> Progress | None:
    """Read the newest checkpoint; None if there is none."""
    meta = checkpoints.latest()
    if meta is None:
        return None
    epoch, taken = meta["epoch"], meta["place"]
    last = epoch - (taken == 0)  # a checkpoint between two epochs is from the stage of the first
    stage, state = run.stage_at(last), init_state(config, run, last)
    memory: Memory = {}
    for earlier in run.stages:
        if earlier.first <= last:
            memory = init_memory(run, earlier) | memory
    buffers = empty_buffers(run, stage, replicate(state), memory)
    like: dict[str, Any] = {"state": state, "memory": memory}
    if stage.method.goes_back is not None:
        like["earlier"] = state.networks, state.average
    if taken:
        count = len(run.dataset.train.labels)
        like["record"] = {
            name: jax.ShapeDtypeStruct((count, *leaf.shape[3:]), leaf.dtype)
            for name, leaf in buffers.items()
        }
        like["losses"] = jax.ShapeDtypeStruct((taken,), np.float32)
    tree = checkpoints.restore(like)
    if taken:
        buffers = buffers_from_record(run, tree["record"], epoch)
    losses = tuple(tree["losses"]) if taken else ()
    found = Progress(epoch, replicate(tree["state"]), tree["memory"], meta["best"], buffers, losses)
    return found._replace(earlier=tree.get("earlier", ()))


def save(checkpoints: Checkpoints, run: Run, program: Program, progress: Progress) -> None:
    """Write a checkpoint; in the middle of an epoch, with the record so far."""
    tree = {"state": unreplicate(progress.state), "memory": progress.memory}
    tree["earlier"] = progress.earlier
    if progress.steps_taken:
        tree["record"] = record_so_far(program, run, progress)
        tree["losses"] = _on_host(progress.losses)
    step = progress.epoch * run.steps_per_epoch + progress.steps_taken
    meta = {"epoch": progress.epoch, "place": progress.steps_taken, "best": progress.best}
    checkpoints.save(step, tree, meta)


def last_network(config, workdir: Path, *, dataset: Dataset | None = None) -> Network:
    """The network of a run, or the first of two peers, as its last checkpoint has it.

    Raises:
      ValueError: if `workdir` holds no checkpoint; an untrained network is never returned.
    """
    folder, nothing = workdir / "checkpoints", f"{workdir} holds no checkpoint; train there first."
    if not folder.is_dir():  # opening it would make it, and no run could begin in `workdir`
        raise ValueError(nothing)
    checkpoints = Checkpoints(folder)
    try:
        meta = checkpoints.latest()
        if meta is None:
            raise ValueError(nothing)
        run = make_run(config, dataset)
        last = meta["epoch"] - (meta["place"] == 0)
        state = checkpoints.restore({"state": init_state(config, run, last)})["state"]
    finally:
        checkpoints.close()
    return state.evaluated[0]


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
