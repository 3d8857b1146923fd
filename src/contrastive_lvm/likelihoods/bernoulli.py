"""Binary data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from contrastive_lvm._jax import JaxArray, load
from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.likelihoods.counts import value_blocks
from contrastive_lvm.likelihoods.values import Expected, LinearizedRows, Nuisance, SiteParameters
from contrastive_lvm.linalg.matrices import column_means
from contrastive_lvm.linalg.quadrature import logistic_moments


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """`x_id` is 1 with probability `1 / (1 + exp(-e))`, `e = l_d' h_i + mean_d`; else 0.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.Bernoulli()
    Bernoulli()
    """

    _has_expectations: ClassVar[bool] = True
    _needs_proper_prior = True
    _shrinkage = 1.0  # docs/counts.md compares scales

    def log_density(self, x: JaxArray, predictor: JaxArray, parameters: SiteParameters) -> JaxArray:
        """Return the Bernoulli log density, in JAX."""
        density: JaxArray = x * predictor - load().jnp.logaddexp(0.0, predictor)
        return density

    def _unsupported_reason(self, rows: Matrix) -> str | None:
        for part in value_blocks(rows):
            wrong = (part != 0) & (part != 1) & ~np.isnan(part)
            if wrong.any():
                return (
                    f"the value {part[wrong][0]:g} where 0 or 1 is expected; binarise it, or give "
                    "the feature another likelihood with Mixed"
                )
        return None

    def _expected(
        self, rows: Array, m: Array, v: Array, nuisance: Nuisance, *, whole: bool = True
    ) -> Expected:
        logistic = logistic_moments(m, v)
        return Expected(
            rows * m - logistic.softplus, rows - logistic.probability, logistic.curvature
        )

    def response(self, m: Array, v: Array, nuisance: Nuisance) -> tuple[Array, Array]:
        """Return the probability p, and `p (1 - p)`."""
        p = logistic_moments(m, v).probability
        return p, p * (1.0 - p)

    def draw(self, predictor: Array, nuisance: Nuisance, rng: np.random.RandomState) -> Array:
        """Draw zeros and ones."""
        chance = logistic_moments(predictor, np.zeros_like(predictor)).probability
        return (rng.random_sample(predictor.shape) < chance).astype(np.float64)

    def _with_equal_means(
        self, sets: Sequence[Array], rng: np.random.Generator
    ) -> list[Array] | None:
        """Redraw entries as 1 with probability `a + b x`, with a and b of each feature and set.

        A predictor moves the mean p of a feature by `p (1 - p)`, and that of the redrawn one by
        `b p (1 - p)`. With l and h the least and the greatest p of all sets, `b = c / (p (1 - p))`
        and `a = l / (1 - h + l) - b p` make means and moves equal, and the greatest c for which all
        a and `a + b` are probabilities is `l (1 - h) / (1 - h + l)`. Terms of higher order in the
        loadings are left out.
        """
        p = np.stack([np.nanmean(rows, axis=0) for rows in sets])  # (S, D)
        low, high = p.min(axis=0), p.max(axis=0)
        width = np.where(high - low < 1.0, 1.0 - high + low, 1.0)
        varies = (low > 0.0) & (high < 1.0)
        b = np.where(varies, low * (1.0 - high) / width / np.where(varies, p * (1.0 - p), 1.0), 0.0)
        a = low / width - b * p
        return [
            np.where(np.isnan(rows), np.nan, rng.random(rows.shape) < a[i] + b[i] * rows)
            for i, rows in enumerate(sets)
        ]

    def _link(self, mean: Array) -> Array:
        log_odds: Array = np.log(mean) - np.log1p(-mean)
        return log_odds

    def _linearize(self, rows: Matrix, log_sizes: Array) -> LinearizedRows:
        """Return the rows themselves, which a predictor moves by `p (1 - p)`."""
        n = rows.shape[0]
        p = (n * column_means(rows) + 0.5) / (n + 1.0)
        return LinearizedRows(rows, np.maximum(p * (1.0 - p), 0.05), self._link(p))
