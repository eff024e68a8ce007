"""Minimization of a smooth function, in a program that is small to compile.

L-BFGS with step halving. Every round of the loop evaluates the function and its gradient once, at
a trial point: a step that lowers the value enough is taken, another one is shortened and tried
again. A line search has loops of its own with copies of the function, and compiling them would take
most of the time of a first call.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.flatten_util import ravel_pytree

MEMORY = 20  # differences of gradients
ENOUGH = 1e-4  # of the decrease that the slope promises, for a step to be taken
SHORTEST = 1e-3  # step; below it no progress is possible in this precision
LEAST_ROUNDS = 8  # before that the slope says little of what is left to gain


class Minimum(NamedTuple):
    at: Any  # parameters
    value: Array  # []
    left: Array  # [], decrease that one more step promises: how far the value may be from converged
    rounds: Array  # [], evaluations of the function
    memory: optax.OptState  # for a similar function that starts here


class _Search(NamedTuple):
    at: Array  # [k]
    value: Array
    direction: Array  # [k]
    slope: Array  # of the value along the direction; negative
    step: Array
    memory: optax.OptState
    rounds: Array


NEWTON_LIKE = optax.scale_by_lbfgs(memory_size=MEMORY)


def no_memory(start: Any) -> optax.OptState:
    """The memory of a search that has not begun."""
    return NEWTON_LIKE.init(ravel_pytree(start)[0])


def minimize(
    function: Callable[[Any], Array],
    start: Any,
    *,
    tolerance: float,
    max_rounds: int,
    memory: optax.OptState | None = None,
) -> Minimum:
    """Minimize until the decrease that one more step promises is below the tolerance."""
    flat, to_tree = ravel_pytree(start)
    evaluate = jax.value_and_grad(lambda at: function(to_tree(at)))
    nothing = no_memory(start)

    def unfinished(search):
        far = -search.slope / 2 > tolerance  # a parabola of this slope falls by half of it
        far &= (search.step > SHORTEST) & (search.rounds < max_rounds)
        return (search.rounds < LEAST_ROUNDS) | far

    def one_round(search):
        trial = search.at + search.step * search.direction
        value, gradient = evaluate(trial)
        taken = value <= search.value + ENOUGH * search.step * search.slope

        downhill, memory = NEWTON_LIKE.update(gradient, search.memory, trial)
        slope = -gradient @ downhill
        is_down = slope < 0  # not so after a step through a concave part: forget it
        direction = -jnp.where(is_down, downhill, gradient)
        slope = jnp.where(is_down, slope, -gradient @ gradient)
        memory = jax.tree.map(lambda new, none: jnp.where(is_down, new, none), memory, nothing)
        ahead = _Search(trial, value, direction, slope, jnp.ones_like(value), memory, search.rounds)

        # The parabola through both values with the slope of the first has its minimum here.
        excess = value - search.value - search.step * search.slope
        shorter = -search.slope * search.step**2 / (2 * excess)
        shorter = jnp.clip(jnp.nan_to_num(shorter), 0.1 * search.step, 0.5 * search.step)
        again = search._replace(step=shorter)

        search = jax.tree.map(lambda new, old: jnp.where(taken, new, old), ahead, again)
        return search._replace(rounds=search.rounds + 1)

    zero = jnp.zeros((), flat.dtype)
    begin = _Search(
        at=flat,
        value=zero + jnp.inf,  # so that the first trial, at the start itself, is taken
        direction=jnp.zeros_like(flat),
        slope=zero,
        step=zero + 1,
        memory=nothing if memory is None else memory,
        rounds=jnp.zeros((), int),
    )
    end = lax.while_loop(unfinished, one_round, begin)
    return Minimum(to_tree(end.at), end.value, -end.slope / 2, end.rounds, end.memory)
