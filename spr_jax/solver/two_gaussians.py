"""A mixture of two normal distributions in one dimension, by expectation maximization.

    r_ij ~ w_j N(x_i; m_j, v_j),  sum_j r_ij = 1                      given w, m, v
    w_j = mean_i r_ij,  m_j and v_j mean and variance of x under r    given r

The search starts with the smallest and the largest value as means.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

ROUNDS = 100


class Mixture(NamedTuple):
    """Two components, the one of the smaller mean first."""

    weights: Array  # [2]
    means: Array  # [2]
    variances: Array  # [2]

    def posterior(self, values: Array) -> Array:
        """Probability of each component, [N, 2]."""
        distance = (values[:, None] - self.means) ** 2 / self.variances
        return jax.nn.softmax(jnp.log(self.weights) - (distance + jnp.log(self.variances)) / 2)


@jax.jit
def fit_two_gaussians(values: Array, floor: float = 5e-4) -> Mixture:
    """Fit the mixture to values [N]; `floor` is added to variances, so that none collapses."""

    def maximize(_, mixture):
        shares = mixture.posterior(values)
        total = jnp.maximum(shares.sum(axis=0), 1e-6)
        means = values @ shares / total
        variances = jnp.sum(shares * (values[:, None] - means) ** 2, axis=0) / total + floor
        return Mixture(total / total.sum(), means, variances)

    half = jnp.full(2, 0.5, values.dtype)
    means = jnp.stack([values.min(), values.max()])
    start = Mixture(half, means, jnp.full(2, values.var() + floor))
    found = lax.fori_loop(0, ROUNDS, maximize, start)
    order = jnp.argsort(found.means)
    return Mixture(*(part[order] for part in found))
