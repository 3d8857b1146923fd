"""Poisson counts."""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from contrastive_lvm._jax import JaxArray, load, special
from contrastive_lvm.arrays import Array
from contrastive_lvm.likelihoods.counts import (
    CountLikelihood,
    SizeFactors,
    log_normal,
)
from contrastive_lvm.likelihoods.values import CountTable, Expected, Nuisance, SiteParameters

MOST_LOG_RATE = 25.0  # beyond, the rate grows linearly, so that a bad step cannot overflow


@dataclass(frozen=True)
class Poisson(CountLikelihood):
    """`x_id ~ Poisson(size_i exp(l_d' h_i + mean_d))`.

    Parameters
    ----------
    size_factors : {"total", "none"}
        `"total"`: the total of a row, over its observed entries, divided by that of an average row;
        `"none"`: 1. Pass size factors of your own to `fit(..., size_factors=...)` and the other
        methods.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.Poisson()
    Poisson(size_factors='total')
    """

    size_factors: SizeFactors = "total"

    def log_density(self, x: JaxArray, predictor: JaxArray, parameters: SiteParameters) -> JaxArray:
        """Return the Poisson log density, in JAX."""
        jnp = load().jnp
        capped = jnp.minimum(predictor, MOST_LOG_RATE)
        rate = jnp.exp(capped) * (1.0 + (predictor - capped))
        density: JaxArray = x * predictor - rate - special().gammaln(x + 1.0)
        return density

    def _constant(self, rows: Array, nuisance: Nuisance) -> Array:
        constant: Array = -gammaln(rows + 1.0)
        return constant

    def _constants(self, table: CountTable, nuisance: Nuisance) -> Array:
        return table.sums(-gammaln(table.value + 1.0))

    def _expected(
        self, rows: Array, m: Array, v: Array, nuisance: Nuisance, *, whole: bool = True
    ) -> Expected:
        """Return the closed form: `E[exp(e)] = exp(m + v/2)`, linear far beyond any count."""
        excess = 0.5 * v
        excess += m
        capped = np.minimum(excess, 2.0 * MOST_LOG_RATE)
        excess -= capped
        excess += 1.0
        rate = np.exp(capped, out=capped)
        excess *= rate
        value = rows * m
        value -= excess
        if whole:
            value += self._constant(rows, nuisance)
        return Expected(value, rows - rate, rate)

    def response(self, m: Array, v: Array, nuisance: Nuisance) -> tuple[Array, Array]:
        """Return mean and variance at a log-normal rate r: `E[r]` and `E[r] + var(r)`."""
        mean, variance = log_normal(m, v)
        return mean, mean + variance

    def draw(self, predictor: Array, nuisance: Nuisance, rng: np.random.RandomState) -> Array:
        """Draw counts."""
        return rng.poisson(np.exp(np.minimum(predictor, MOST_LOG_RATE))).astype(np.float64)
