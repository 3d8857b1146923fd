"""The values that flow through the package, in the paper's letters.

Axes: N rows, D features, K latent columns, P missingness patterns, Q = K(K+1)/2 packed pairs.
Columns of the loadings L are those of all blocks side by side; a set uses those that are active.
"""

from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[np.float64]
LOG_2PI = float(np.log(2.0 * np.pi))
TINY = float(np.finfo(np.float64).tiny)  # the least positive number of full precision
EPS = float(np.finfo(np.float64).eps)  # the relative precision of numbers
# Expected scales of the rows of a set, (N, D) or (N, 1), as they are kept.
RowWeights: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]
# Rows of data: dense in single or double precision, or sparse, one row after the other.
Dense: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]  # values in single or double precision
Precision: TypeAlias = type[np.float32] | type[np.float64]
Sparse: TypeAlias = sp.csr_matrix | sp.csr_array
Matrix: TypeAlias = Dense | Sparse
Column: TypeAlias = "pd.Series[Any]"  # of a table, of any type
# What users give for rows: a label of each, such as its replicate; and numbers or categories.
RowLabels: TypeAlias = npt.ArrayLike | None
Covariates: TypeAlias = npt.ArrayLike | None


class NamedRows(NamedTuple):
    """Rows with feature names, for containers that have none: sparse matrices, files, Dask."""

    values: Matrix
    names: list[str]

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of rows and features."""
        n, d = self.values.shape
        return int(n), int(d)


def unnamed(X: Any) -> Any:
    """Return rows without the names that `NamedRows` gave them."""
    return X.values if isinstance(X, NamedRows) else X


class Parameters(NamedTuple):
    """Point values of the linear model `x = L h + M c + mean + noise`."""

    L: Array  # (D, K) loadings of all blocks
    psi: Array  # (D,) noise variances, all equal when isotropic; (S, D) if each set has its own
    means: tuple[Array, ...]  # one (D,) per set
    df: float = 0.0  # degrees of freedom of Student-t noise; 0 for Gaussian
    effects: tuple[Array, ...] = ()  # M of each set, (D, C) for C covariates; none without these
    dispersion: Array | None = None  # (D,) of negative binomials, zero for other features


def noise_of(psi: Array, i: int) -> Array:
    """Return the noise variances of the i-th set, (D,), from those of all, (D,) or (S, D)."""
    return psi if psi.ndim == 1 else psi[i]


class Statistics(NamedTuple):
    """Expected sufficient statistics of one row set, additive over rows.

    With `r = x - M c - mean` and `w` the weights of the entries (1 where observed, 0 where missing,
    times the expected scale under a heavy-tailed likelihood), per feature d: a last axis of length
    1 means "the same for every feature" (nothing is missing or weighted). Covariates c are latents
    that are known: their columns follow those of the latents in h, with `E[c c'] = c c'`.
    """

    moment: Array  # (Q, D or 1)  sum_i w_id E[h_i h_i'], packed by rows of the lower triangle
    first: Array  # (K, D or 1)  sum_i w_id E[h_i]
    cross: Array  # (D, K)       sum_i w_id r_id E[h_i]
    residual: Array  # (D,)         sum_i w_id r_id
    square: Array  # (D,)         sum_i w_id r_id^2
    weight: Array  # (D,)         sum_i w_id
    entries: Array  # (D,)         observed entries
    latent: Array  # (Q,)         sum_i E[h_i h_i'] of the latents that are not known
    n_rows: float  # weight of the rows that have an observed entry
    bound: float  # the rows' part of the bound; their log-likelihood for point loadings
    components: Array = np.zeros((0, 0))  # sums over rows for the components of a mixture

    def plus(self, other: "Statistics") -> "Statistics":
        """Return the statistics of the rows of both."""
        return Statistics(*map(add, self, other))

    def weighted(self, factor: Array) -> "Statistics":
        """Return the statistics with each feature's entries weighted by a factor, (D,) or (1,).

        The counts of rows and entries, and the moments of the latents alone, do not change.
        """
        return self._replace(
            moment=self.moment * factor,
            first=self.first * factor,
            cross=self.cross * factor[:, None],
            residual=self.residual * factor,
            square=self.square * factor,
            weight=self.weight * factor,
        )
