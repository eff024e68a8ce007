"""The stages of a method in a run: when each begins, and its learning rate."""

from collections.abc import Callable
from itertools import accumulate

from spr_jax.methods import Stage
from spr_jax.registry import lookup
from spr_jax.training.optim import make_optimizer, make_schedule
from spr_jax.training.run import ScheduledStage

BEGINS_AS_THE_RUN = {"": False, "fresh": False, "same": True}  # by how a stage restarts


def schedule_stages(
    config, stages: tuple[Stage, ...], steps_per_epoch: int
) -> tuple[ScheduledStage, ...]:
    """Place stages one after the other, each with its optimizer.

    Raises:
      ValueError: if the run is too short for all of them.
    """
    begins = [*accumulate((stage.epochs for stage in stages[:-1]), initial=0), config.epochs]
    if begins[-2] >= config.epochs:
        raise ValueError(
            f"The first {len(stages) - 1} stages of {config.method.name} take {begins[-2]} epochs "
            f"and the run has {config.epochs}; raise epochs, or shorten the stages."
        )
    scheduled, fresh_since, optimizer_since = [], 0, 0
    for number, stage in enumerate(stages):
        first = begins[number]
        if stage.restart:
            fresh_since = first
        if stage.restart or stage.fresh_optimizer:
            optimizer_since = first
        begin, end = (begins[border] for border in _span(stages, number))
        rate = _rate_in_span(config.optimizer, stage, max(end - begin, 1), steps_per_epoch)
        schedule = _delayed(rate, (begin - optimizer_since) * steps_per_epoch)
        scheduled.append(
            ScheduledStage(
                stage.method,
                make_optimizer(config.optimizer, schedule),
                schedule,
                first,
                fresh_since,
                optimizer_since,
                lookup(BEGINS_AS_THE_RUN, stage.restart),
            )
        )
    return tuple(scheduled)


def _span(stages, number):
    """The first of the stages that share a schedule with this one, and the first after them."""
    borders = [0, len(stages)]
    for after, (left, right) in enumerate(zip(stages, stages[1:], strict=False), start=1):
        if right.restart or right.fresh_optimizer or left.schedule or right.schedule:
            borders.append(after)
    return max(n for n in borders if n <= number), min(n for n in borders if n > number)


def _rate_in_span(options, stage, epochs, steps_per_epoch) -> Callable:
    """Make step since the span began -> learning rate."""
    if stage.schedule is None:
        return make_schedule(options, epochs, steps_per_epoch)
    return lambda step: stage.schedule(step / (epochs * steps_per_epoch), options.learning_rate)


def _delayed(rate, steps) -> Callable:
    return lambda step: rate(step - steps)
