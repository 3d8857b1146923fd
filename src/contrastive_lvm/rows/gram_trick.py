"""Fewer rows than features: work in the span of the data, exactly.

With `Z` the centred rows of all sets stacked and `Z Z' = U diag(s) U'`, the rows have the
coordinates `U s^1/2` in the orthonormal basis `Z' U s^-1/2` of their span. Under isotropic noise
the likelihood of loadings is never raised by a part outside the span, and the M-step never
leaves it, so the model can be fitted on the coordinates and its loadings lifted back. Only
N x N and N x r matrices are formed; the rows are read a block of features at a time.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.linalg.matrices import row_slices, widen
from contrastive_lvm.rows.scatter import DenseScatter


class Span(NamedTuple):
    """Row sets in the coordinates of their span, and the way back."""

    scatters: list[DenseScatter]  # about zero means, (r, r)
    means: list[Array]  # (D,) one a set
    coefficients: Array  # (N, r) `U s^-1/2`
    sets: list[Matrix]

    def lift(self, L: Array) -> Array:
        """Loadings over the features, (D, K), from loadings over the span, (r, K)."""
        weights = self.coefficients @ L  # (N, K)
        lifted = np.empty((len(self.means[0]), L.shape[1]))
        for columns, centred in _centred_columns(self.sets, self.means):
            lifted[columns] = centred.T @ weights
        return lifted


def reduce_to_span(sets: list[Matrix]) -> Span:
    """Coordinates and scatters of dense row sets in the span of their centred rows."""
    means = [widen(X[:1])[0] + _mean_offset(X) for X in sets]
    sizes = [X.shape[0] for X in sets]
    gram = np.zeros((sum(sizes), sum(sizes)))
    for _, centred in _centred_columns(sets, means):
        gram += centred @ centred.T
    s, U = np.linalg.eigh(gram)
    keep = s > s[-1] * len(s) * np.finfo(np.float64).eps
    s, U = s[keep], U[:, keep]
    scatters = []
    for coordinates in np.split(U * np.sqrt(s), np.cumsum(sizes)[:-1]):
        scatter = coordinates.T @ coordinates
        scatters.append(DenseScatter(len(coordinates), np.zeros(len(s)), scatter))
    return Span(scatters, means, U / np.sqrt(s), sets)


def _mean_offset(X: Matrix) -> Array:
    """Mean of the rows about the first row."""
    total, first = np.zeros(X.shape[1]), widen(X[:1])
    for rows in row_slices(*X.shape):
        total += (widen(X[rows]) - first).sum(axis=0)
    offset: Array = total / X.shape[0]
    return offset


def _centred_columns(sets: list[Matrix], means: list[Array]) -> Iterator[tuple[slice, Array]]:
    """The stacked centred rows, a block of features at a time."""
    n_rows, n_features = sum(X.shape[0] for X in sets), len(means[0])
    for columns in row_slices(n_features, n_rows):
        yield (
            columns,
            np.concatenate(
                [widen(X[:, columns]) - m[columns] for X, m in zip(sets, means, strict=True)]
            ),
        )
