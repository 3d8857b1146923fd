"""What the likelihoods of counts share."""

from typing import Literal, get_args

import numpy as np
from scipy.sparse import csr_array

from contrastive_lvm.arrays import Array, Dense, Matrix
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.likelihoods.base import BoolArray, Likelihood, LinearizedRows
from contrastive_lvm.linalg.matrices import column_means, is_sparse, row_slices

SizeFactors = Literal["total", "none"]
# Predicted means and variances end here: exp(2 * 300 + 100) is still a number.
MOST_LOG_MEAN, MOST_VARIANCE = 300.0, 100.0


class CountLikelihood(Likelihood):
    """Counts about a log mean, with the log of the row's size factor in it."""

    size_factors: SizeFactors

    def __post_init__(self) -> None:
        if self.size_factors not in get_args(SizeFactors):
            reason = (
                "is unknown; use 'total' (of each row) or 'none', and give factors of your own to "
                "fit and the other methods."
            )
            raise InvalidParameterError("size_factors", self.size_factors, reason)

    def _unsupported_reason(self, rows: Matrix) -> str | None:
        """Say which value is no count: counts are 0, 1, 2, ...; NaN is a missing one."""
        for part in value_blocks(rows):
            wrong = (part < 0) | ((part != np.floor(part)) & ~np.isnan(part))
            if wrong.any():
                kind = "negative" if part[wrong][0] < 0 else "not a whole number"
                return (
                    f"the value {part[wrong][0]:g}, which is {kind}, where counts are expected; "
                    'give raw counts, or use likelihood="gaussian" for transformed ones'
                )
        return None

    def _sized_features(self, n_features: int) -> BoolArray:
        return np.full(n_features, self.size_factors == "total")

    def _link(self, mean: Array) -> Array:
        log_rate: Array = np.log(mean)
        return log_rate

    def _linearize(self, rows: Matrix, log_sizes: Array) -> LinearizedRows:
        return log_rates(rows, log_sizes)


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
    # Little is known of a rare feature: its loadings begin at most five times larger.
    slope = np.maximum(rate / (1.0 + rate), 0.2)
    return LinearizedRows(
        scaled.log1p() if is_sparse(scaled) else np.log1p(scaled), slope, np.log(rate)
    )
