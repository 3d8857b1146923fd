"""Values that likelihoods take and return."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from contrastive_lvm._jax import JaxArray
from contrastive_lvm.arrays import Array, Matrix, noise_of

SiteParameters = dict[str, JaxArray]  # what is learned, by name


class Nuisance(NamedTuple):
    """What a likelihood learns besides the predictor: a value for each feature."""

    noise: Array  # (D,) noise variances, zero where a likelihood has none; (S, D) of each set's own
    dispersion: Array  # (D,) of negative binomials, zero elsewhere
    df: float | None = None  # of Student-t noise

    def of(self, columns: np.ndarray) -> "Nuisance":
        """Return the values of some features."""
        return Nuisance(self.noise[..., columns], self.dispersion[columns], self.df)

    def of_set(self, i: int) -> "Nuisance":
        """Return the values of the i-th set."""
        return self._replace(noise=noise_of(self.noise, i))


class RowSite(NamedTuple):
    """Rows as a site of a NumPyro model."""

    name: str
    predictor: JaxArray  # (N, D)
    rows: JaxArray  # (N, D) NaN where missing
    parameters: SiteParameters  # of the likelihood
    augmented: bool = True  # whether scales of entries are sites of their own


class Expected(NamedTuple):
    """Expectations of the log density when the predictor is `N(m, v)`, (B, D)."""

    value: Array  # E[ln p]
    slope: Array  # E[d ln p / d e]
    curvature: Array  # -E[d^2 ln p / d e^2]


class CountTable(NamedTuple):
    """How often each count occurs in the features that have counts."""

    feature: np.ndarray  # (n,) positions
    value: Array  # (n,) positive counts
    weight: Array  # (n,) of the rows that have it
    entries: Array  # (D,) weight of all observed entries of each feature

    def of(self, columns: np.ndarray) -> "CountTable":
        """Return the table of some features, numbered anew."""
        number = np.full(len(self.entries), -1)
        number[columns] = np.arange(len(columns))
        own = number[self.feature] >= 0
        feature = number[self.feature[own]]
        return CountTable(feature, self.value[own], self.weight[own], self.entries[columns])

    def plus(self, other: "CountTable") -> "CountTable":
        """Return the table of the rows of both."""
        pairs = zip(self[:3], other[:3], strict=True)
        feature, value, weight = (np.concatenate(pair) for pair in pairs)
        return CountTable(feature, value, weight, self.entries + other.entries)

    def sums(self, values: Array) -> Array:
        """Sum values of the table's lines by feature, weighted, (D,)."""
        total = np.bincount(self.feature, self.weight * values, len(self.entries))
        return total.astype(np.float64, copy=False)


class LinearizedRows(NamedTuple):
    """Rows transformed so that their means are nearly linear in the predictor, for a start."""

    rows: Matrix  # (N, D)
    slope: Array  # (D,) change of such a row's entry by the predictor's
    intercept: Array  # (D,) predictor of the mean row


class LeftOut(NamedTuple):
    """Entries as the others of their rows predict them, `x - mean = l' h + noise`."""

    residual: Array  # (n,) x less its prediction
    variance: Array  # (n,) of l' h
    noise: Array  # (n,) noise variance
    weights: Array  # (n,) of their rows


class Scales(NamedTuple):
    """Expected scales of a block of rows, and their part of the bound."""

    weights: Array  # (B, D) or (B, 1): E[u]
    bound: Array  # (B,) without the noise's ln psi
    log_excess: Array  # (B,) sums of E[ln u] - E[u], for learning degrees of freedom
    n_scales: Array  # (B,) how many scales a row has


# (E[e^2] / psi, zero where missing (B, D); observed entries of each row (B,)) -> Scales
Scaler = Callable[[Array, Array], Scales]
