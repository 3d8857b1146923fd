"""Loadings with a posterior: a mean and, for each feature, a covariance of its row of loadings.

Point loadings (EM, and columns without a prior under variational Bayes) have zeros. Where every
feature sees the same data (nothing missing, no entry weighted, a prior that treats features
alike) the covariances share their eigenvectors, `C_d = V diag(s_d) V'`, and K can be in the
hundreds; otherwise they are packed, one per feature.
"""

from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import LOG_2PI, Array
from contrastive_lvm.linalg import packed

Columns = npt.NDArray[np.intp]


class PackedCovariance(NamedTuple):
    """One covariance matrix per feature, (K, K), zero for point columns."""

    values: Array  # (Q, D)
    logdet: Array  # (D,) ln |C_d| over the columns that are not points
    width: int  # how many columns are not points

    def diagonal(self) -> Array:
        """Return the variances, (D, K)."""
        K = isqrt(2 * len(self.values))
        return np.ascontiguousarray(self.values[np.diagonal(packed.full_index(K))].T)

    def weighted_sum(self, weights: Array) -> Array:
        """Return `sum_d weights_d C_d`, (K, K)."""
        total: Array = packed.unpack((self.values @ weights)[:, None])[0]
        return total

    def inner(self, moment: Array) -> Array:
        """Return `tr(C_d M_d)`, (D,)."""
        i, j = packed.pair_indices(isqrt(2 * len(self.values)))
        twice = np.where(i == j, 1.0, 2.0)[:, None]
        traces: Array = (self.values * (twice * moment)).sum(axis=0)
        return traces

    def packed(self) -> Array:
        """Return all of them, packed, (Q, D)."""
        return self.values

    def columns(self, index: Columns) -> "PackedCovariance":
        """Return the covariances of some columns."""
        where = packed.pair_positions(isqrt(2 * len(self.values)), index)
        return self._replace(values=self.values[where])

    def transformed(self, R: Array) -> "PackedCovariance":
        """Return the covariances of `l' R`; R mixes no points with other columns."""
        full = R.T @ packed.unpack(self.values) @ R
        i, j = packed.pair_indices(R.shape[1])
        values = np.ascontiguousarray(full[:, i, j].T)
        uncertain = self.values[np.diagonal(packed.full_index(R.shape[1]))].any(axis=1)
        change = _logdet_change(R, np.asarray(uncertain))
        return self._replace(values=values, logdet=self.logdet + change)


class SharedCovariance(NamedTuple):
    """`C_d = V diag(s_d) V'` with one V."""

    V: Array  # (K, J), rows of zeros for point columns
    s: Array  # (D, J), or (1, J) when all features have the same
    logdet: Array  # (D,)
    width: int

    def diagonal(self) -> Array:
        """Return the variances, (D, K)."""
        variances = self.s @ (self.V**2).T
        return np.broadcast_to(variances, (len(self.logdet), len(self.V)))

    def weighted_sum(self, weights: Array) -> Array:
        """Return `sum_d weights_d C_d`, (K, K)."""
        scale = weights @ self.s if len(self.s) > 1 else weights.sum() * self.s[0]
        total: Array = (self.V * scale) @ self.V.T
        return total

    def inner(self, moment: Array) -> Array:
        """Return `tr(C_d M_d)`, (D,)."""
        if moment.shape[1] > 1:
            return PackedCovariance(self.packed(), self.logdet, self.width).inner(moment)
        M = packed.unpack(moment)[0]
        traces = self.s @ ((M @ self.V) * self.V).sum(axis=0)
        return np.broadcast_to(traces, self.logdet.shape)

    def packed(self) -> Array:
        """Return all of them, packed, (Q, D)."""
        i, j = packed.pair_indices(len(self.V))
        values = (self.V[i] * self.V[j]) @ self.s.T
        return np.array(np.broadcast_to(values, (len(i), len(self.logdet))))

    def columns(self, index: Columns) -> "SharedCovariance":
        """Return the covariances of some columns."""
        return self._replace(V=self.V[index])

    def transformed(self, R: Array) -> "SharedCovariance":
        """Return the covariances of `l' R`; R mixes no points with other columns."""
        change = _logdet_change(R, np.asarray(self.V.any(axis=1)))
        return self._replace(V=R.T @ self.V, logdet=self.logdet + change)


Covariance = PackedCovariance | SharedCovariance


def _logdet_change(R: Array, uncertain: npt.NDArray[np.bool_]) -> float:
    """Return by how much R changes `ln |C_d|` over the columns that are not points."""
    return 2.0 * float(np.linalg.slogdet(R[np.ix_(uncertain, uncertain)])[1])


class Loadings(NamedTuple):
    """`q(l_d) = N(mean_d, C_d)`; points where there is no covariance."""

    mean: Array  # (D, K)
    cov: Covariance | None = None

    def squares(self) -> Array:
        """Return `E[L^2]`, (D, K)."""
        squares: Array = self.mean**2
        return squares if self.cov is None else squares + self.cov.diagonal()

    def pairs(self) -> Array:
        """Return packed `E[l_d l_d']`, (Q, D)."""
        products = packed.pack_products(self.mean, np.ones(len(self.mean)))
        return products if self.cov is None else products + self.cov.packed()

    def second_moment(self) -> Array:
        """Return `sum_d E[l_d l_d']`, (K, K)."""
        second: Array = self.mean.T @ self.mean
        ones = np.ones(len(self.mean))
        return second if self.cov is None else second + self.cov.weighted_sum(ones)

    def columns(self, index: Columns) -> "Loadings":
        """Return some of the columns."""
        if len(index) == self.mean.shape[1] and (index[1:] > index[:-1]).all():
            return self
        mean = np.ascontiguousarray(self.mean[:, index])
        return Loadings(mean, None if self.cov is None else self.cov.columns(index))

    def entropy(self) -> float:
        """Return `-E[ln q(L)]`; zero for points."""
        if self.cov is None:
            return 0.0
        entries = len(self.mean) * self.cov.width
        return 0.5 * (float(self.cov.logdet.sum()) + entries * (LOG_2PI + 1.0))

    def transformed(self, R: Array) -> "Loadings":
        """Return the distribution of `l' R`."""
        return Loadings(self.mean @ R, None if self.cov is None else self.cov.transformed(R))
