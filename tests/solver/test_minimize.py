"""Minimization: known minima, and what it reports."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize
from scipy.optimize import rosen

from spr_jax.solver.minimize import LEAST_ROUNDS, minimize

TOLERANCE = 1e-10
solve = partial(minimize, tolerance=TOLERANCE, max_rounds=500)


def valley(point):
    """Rosenbrock's."""
    return jnp.sum(100 * (point[1:] - point[:-1] ** 2) ** 2 + (1 - point[:-1]) ** 2)


@pytest.mark.parametrize("size", [2, 6])
def test_finds_the_bottom_of_a_curved_valley(size):
    start = np.tile([-1.2, 1.0], size)[:size]
    found = jax.jit(lambda start: solve(valley, start))(start)
    np.testing.assert_allclose(found.at, 1, atol=1e-4)
    assert 0 <= found.left <= TOLERANCE and found.value < 1e-8
    assert found.rounds < 3 * scipy_minimize(rosen, start, method="L-BFGS-B").nfev


def test_takes_and_gives_trees():
    start = {"slope": np.array([3.0, -1.0]), "bias": np.array(2.0)}
    found = solve(lambda tree: jnp.sum(tree["slope"] ** 2) + (tree["bias"] - 5) ** 2, start)
    np.testing.assert_allclose(found.at["slope"], 0, atol=1e-4)
    np.testing.assert_allclose(found.at["bias"], 5, atol=1e-4)


def test_passes_a_concave_part_and_values_that_are_not_finite():
    """log is not defined below 0, and the first step goes there."""
    found = solve(lambda x: -jnp.log(x) + 50 * x, np.array(0.05))
    np.testing.assert_allclose(found.at, 0.02, rtol=1e-4)
    found = solve(lambda x: -jnp.exp(-((x - 3) ** 2) / 2), np.array(0.2))
    np.testing.assert_allclose(found.at, 3, atol=1e-3)


def test_stops_after_the_rounds_it_may_take_and_says_what_is_left():
    start = np.tile([-1.2, 1.0], 3)
    found = minimize(valley, start, tolerance=TOLERANCE, max_rounds=LEAST_ROUNDS + 2)
    assert found.rounds == LEAST_ROUNDS + 2 and found.left > 1e-3
    assert found.value < valley(start)


def test_a_similar_function_needs_fewer_rounds_with_the_memory_of_the_first():
    generator = np.random.default_rng(0)
    square = generator.standard_normal((30, 30))
    square = square @ square.T + np.eye(30)

    def bowl(center):
        return lambda point: (point - center) @ square @ (point - center) / 2

    first = solve(bowl(np.zeros(30)), np.ones(30))
    near = np.full(30, 0.1)
    fresh = solve(bowl(near), first.at)
    again = solve(bowl(near), first.at, memory=first.memory)
    np.testing.assert_allclose(again.at, near, atol=1e-4)
    assert again.rounds < fresh.rounds
