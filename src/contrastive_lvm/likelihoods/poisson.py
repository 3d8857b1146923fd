"""Counts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln

from contrastive_lvm._jax import load, special
from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.likelihoods.base import Entrywise, Expected, Nuisance, Working
from contrastive_lvm.likelihoods.counts import (
    SizeFactors,
    check_size_factors,
    log_normal,
    log_rates,
    objection_to_counts,
)

MOST_LOG_RATE = 25.0  # beyond, the rate goes on linearly, so that a bad step cannot overflow


@dataclass(frozen=True)
class Poisson(Entrywise):
    """`x_id ~ Poisson(size_i exp(l_d' h_i + mean_d))`.

    Parameters
    ----------
    size_factors : {"total", "none"}
        `"total"`: a row's total over the total of an average row, over its observed entries;
        `"none"`: 1. Factors of your own go to the methods, `fit(..., size_factors=...)`.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.Poisson()
    Poisson(size_factors='total')
    """

    size_factors: SizeFactors = "total"

    def __post_init__(self) -> None:
        check_size_factors(self.size_factors)

    def log_density(self, x: Any, predictor: Any, parameters: dict[str, Any]) -> Any:
        """In JAX."""
        jnp = load().jnp
        capped = jnp.minimum(predictor, MOST_LOG_RATE)
        rate = jnp.exp(capped) * (1.0 + (predictor - capped))
        return x * predictor - rate - special().gammaln(x + 1.0)

    def objection(self, rows: Matrix) -> str | None:
        """Counts are 0, 1, 2, ..."""
        return objection_to_counts(rows)

    def sized_columns(self, n_features: int) -> np.ndarray:
        """All, or none."""
        return np.full(n_features, self.size_factors == "total")

    def constant(self, rows: Array, nuisance: Nuisance) -> Array:
        """`-ln x!`."""
        constant: Array = -gammaln(rows + 1.0)
        return constant

    def expected(
        self, rows: Array, m: Array, v: Array, nuisance: Nuisance, *, whole: bool = True
    ) -> Expected:
        """Closed form: `E[exp(e)] = exp(m + v/2)`, which far beyond any count goes on linearly."""
        log_rate = m + 0.5 * v
        capped = np.minimum(log_rate, 2.0 * MOST_LOG_RATE)
        rate = np.exp(capped)
        value = rows * m - rate * (1.0 + (log_rate - capped))
        if whole:
            value += self.constant(rows, nuisance)
        return Expected(value, rows - rate, rate)

    def response(self, m: Array, v: Array, nuisance: Nuisance) -> tuple[Array, Array]:
        """Of a log-normal rate r: `E[r] + var(r)`."""
        mean, variance = log_normal(m, v)
        return mean, mean + variance

    def draw(self, predictor: Array, nuisance: Nuisance, rng: np.random.RandomState) -> Array:
        """New counts."""
        return rng.poisson(np.exp(np.minimum(predictor, MOST_LOG_RATE))).astype(np.float64)

    def link(self, mean: Array) -> Array:
        """The log rate."""
        log_rate: Array = np.log(mean)
        return log_rate

    def working(self, rows: Matrix, log_sizes: Array) -> Working:
        """`ln(1 + x / size)`."""
        return log_rates(rows, log_sizes)
