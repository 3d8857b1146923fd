"""The base class of the likelihoods of counts."""

from collections.abc import Sequence
from typing import ClassVar, Literal, get_args

import numpy as np
from scipy.sparse import csr_array

from contrastive_lvm.arrays import Array, Dense, Matrix
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.likelihoods.base import BoolArray, Likelihood
from contrastive_lvm.likelihoods.values import LinearizedRows, Nuisance
from contrastive_lvm.linalg.matrices import column_means, is_sparse, row_slices

SizeFactors = Literal["total", "none"]
MOST_COUNT = 2.0**53  # beyond, double precision has no odd numbers
# Predicted means and variances end here: exp(2 * 300 + 100) is still a number.
MOST_LOG_MEAN, MOST_VARIANCE = 300.0, 100.0
NEWTON_STEPS = 20  # of shares of counts; 8 suffice unless most counts of a feature are zero
EPSILON = 1e-12  # between a rate and 1


class CountLikelihood(Likelihood):
    """Counts whose log mean is the predictor, which includes the log of the row's size factor."""

    size_factors: SizeFactors

    _has_expectations: ClassVar[bool] = True
    _shrinkage = 0.5  # docs/counts.md compares scales
    _learns_shrinkage = True

    def __post_init__(self) -> None:
        if self.size_factors not in get_args(SizeFactors):
            reason = (
                "is unknown; use 'total' (of each row) or 'none', and give factors of your own to "
                "fit and the other methods."
            )
            raise InvalidParameterError("size_factors", self.size_factors, reason)

    def _unsupported_reason(self, rows: Matrix) -> str | None:
        """Describe a value that is not a count (0, 1, 2, ...); NaN is a missing entry."""
        for part in value_blocks(rows):
            wrong = (part < 0) | (part > MOST_COUNT) | ((part != np.floor(part)) & ~np.isnan(part))
            if wrong.any():
                first = part[wrong][0]
                kind = "negative" if first < 0 else "not a whole number"
                kind = f"more than {MOST_COUNT:g}" if first > MOST_COUNT else kind
                return (
                    f"the value {first:g}, which is {kind}, where counts are expected; "
                    'give raw counts, or use likelihood="gaussian" for transformed ones'
                )
        return None

    def _sized_features(self, n_features: int) -> BoolArray:
        return np.full(n_features, self.size_factors == "total")

    def _with_equal_means(
        self, sets: Sequence[Array], rng: np.random.Generator
    ) -> list[Array] | None:
        """Thin the counts of each feature to those of the set in which they are smallest.

        Keeping each counted event with probability q turns a Poisson or negative binomial count
        into another one with q times the mean and the same dispersion, so that only the mean of its
        predictor changes. Because mean counts depend on a few large ones, `E[1 - (1 - r)^x]` is
        made equal instead, with r one over the mean count; after thinning it is `E[1 - (1 - q
        r)^x]`.
        """
        rate = 1.0 / (1.0 + np.min(np.stack([np.nanmean(rows, axis=0) for rows in sets]), axis=0))
        least = np.min(np.stack([_saturated(rows, rate)[0] for rows in sets]), axis=0)
        return [_thinned(rows, _shares(rows, rate, least), rng) for rows in sets]

    def _has_counts(self, n_features: int) -> BoolArray:
        return np.ones(n_features, dtype=bool)

    def _information(self, means: Array, nuisance: Nuisance) -> Array:
        return means / (1.0 + nuisance.dispersion * means)

    def _link(self, mean: Array) -> Array:
        log_rate: Array = np.log(mean)
        return log_rate

    def _linearize(self, rows: Matrix, log_sizes: Array) -> LinearizedRows:
        return log_rates(rows, log_sizes)


def _saturated(rows: Array, rate: Array) -> tuple[Array, Array]:
    """Return the mean of `1 - (1 - rate)^x` of each feature, and its derivative by the rate."""
    log = np.log1p(-np.minimum(rate, 1.0 - EPSILON))
    slope = rows * np.exp((rows - 1.0) * log)
    return -np.nanmean(np.expm1(rows * log), axis=0), np.nanmean(slope, axis=0)


def _shares(rows: Array, rate: Array, least: Array) -> Array:
    """Return shares q for which `1 - (1 - q rate)^x` has the given means.

    The mean is concave in q, so that Newton's steps from 0 on never go too far.
    """
    share = np.zeros(len(rate))
    for _ in range(NEWTON_STEPS):
        value, slope = _saturated(rows, share * rate)
        step = np.divide(least - value, rate * slope, out=np.ones_like(value), where=slope > 0)
        share = np.clip(share + step, 0.0, 1.0)
    return share


def _thinned(rows: Array, share: Array, rng: np.random.Generator) -> Array:
    missing = np.isnan(rows)
    kept = rng.binomial(np.where(missing, 0.0, rows).astype(np.int64), share)
    return np.where(missing, np.nan, kept)


def value_blocks(rows: Matrix) -> list[Dense]:
    """Return all stored values, a chunk at a time."""
    if is_sparse(rows):
        return [rows.data]
    return [rows[part] for part in row_slices(*rows.shape)]


def log_normal(m: Array, v: Array) -> tuple[Array, Array]:
    """Return mean and variance of `exp(e)`, `e ~ N(m, v)`, capped where they overflow."""
    mean = np.exp(np.minimum(m + 0.5 * v, MOST_LOG_MEAN))
    return mean, mean**2 * np.expm1(np.minimum(v, MOST_VARIANCE))


def log_rates(rows: Matrix, log_sizes: Array) -> LinearizedRows:
    """Return `ln(1 + x / size)`, which a predictor e moves by `exp(e) / (1 + exp(e))`."""
    sizes = np.exp(log_sizes)
    if is_sparse(rows):
        scaled: Matrix = csr_array(rows.multiply(1.0 / sizes[:, None]))
    else:
        scaled = rows / sizes[:, None]
    n = rows.shape[0]
    rate = (n * column_means(scaled) + 0.5) / (n + 1.0)
    # Rare features say little, so that their loadings begin at most five times larger.
    slope = np.maximum(rate / (1.0 + rate), 0.2)
    return LinearizedRows(
        scaled.log1p() if is_sparse(scaled) else np.log1p(scaled), slope, np.log(rate)
    )
