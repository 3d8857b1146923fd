"""Fewer rows than features: work in the span of the data, exactly.

With `Z` the centred rows of all sets stacked, each times the root of its weight, and
`Z Z' = U diag(s) U'`, the rows have the coordinates `U s^1/2` in the orthonormal basis
`Z' U s^-1/2` of their span. Under isotropic noise the likelihood of loadings is never raised by a
part outside the span, and the M-step never leaves it, so the model can be fitted on the coordinates
and its loadings lifted back. Only N x N and N x r matrices are formed; the rows are read a block of
features at a time. Effects of covariates on the mean are in the span too: they are products of the
rows with numbers.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import EPS, Array, Matrix
from contrastive_lvm.linalg.matrices import row_slices, widen
from contrastive_lvm.rows.covariate_sums import CovariateSums
from contrastive_lvm.rows.reader import LocalRows, make_chunk
from contrastive_lvm.rows.scatter import DenseScatter, first_pass


class Span(NamedTuple):
    """Row sets in the coordinates of their span, and the way back."""

    scatters: list[DenseScatter]  # about zero means, (r, r)
    means: list[Array]  # (D,) of each set
    coefficients: Array  # (N, r) `U s^-1/2`, each row times the root of its weight
    sets: list[Matrix]
    # Coordinates of each set, (N, r), their weights and covariates.
    rows: list[tuple[Array, Array | None, Array | None]]

    def lift(self, L: Array) -> Array:
        """Lift loadings over the span, (r, K), to loadings over the features, (D, K)."""
        weights = self.coefficients @ L  # (N, K)
        lifted = np.empty((len(self.means[0]), L.shape[1]))
        for columns, centred in _centred_columns(self.sets, self.means):
            lifted[columns] = centred.T @ weights
        return lifted


def reduce_to_span(
    sets: Sequence[Matrix],
    weights: Sequence[Array | None] | None = None,
    covariates: Sequence[Array] | None = None,
) -> Span:
    """Find the coordinates and scatters of dense row sets in the span of their centred rows."""
    given = [None] * len(sets) if weights is None else weights
    known = [None] * len(sets) if covariates is None else covariates
    chunks = [make_chunk(X, w, None, c) for X, w, c in zip(sets, given, known, strict=True)]
    kept = [chunk.rows for chunk in chunks]
    means = [first_pass(LocalRows(c.rows), c.weights, scatter=False).mean for c in chunks]
    ones = [np.ones(c.rows.shape[0]) if c.weights is None else c.weights for c in chunks]
    roots = np.sqrt(np.concatenate(ones))[:, None]
    gram = np.zeros((len(roots), len(roots)))
    for _, centred in _centred_columns(kept, means):
        scaled = roots * centred
        gram += scaled @ scaled.T
    s, U = np.linalg.eigh(gram)
    keep = s > s[-1] * len(s) * EPS
    s, U = s[keep], U[:, keep]
    ends = np.cumsum([len(w) for w in ones])[:-1]
    zero, outside = np.zeros(len(s)), len(means[0]) - len(s)
    scatters = [
        DenseScatter(float(w.sum()), zero, Z.T @ Z, outside, _covariate_sums(Z, w, c.covariates))
        for c, w, Z in zip(chunks, ones, np.split(U * np.sqrt(s), ends), strict=True)
    ]
    coordinates = np.split(U * np.sqrt(s) / roots, ends)
    rows = [(Z, c.weights, c.covariates) for Z, c in zip(coordinates, chunks, strict=True)]
    return Span(scatters, means, roots * U / np.sqrt(s), kept, rows)


def _covariate_sums(Z: Array, weights: Array, covariates: Array | None) -> CovariateSums | None:
    """Return the sums for coordinates that are centred and times the roots of the weights."""
    if covariates is None:
        return None
    mean = np.average(covariates, axis=0, weights=weights)
    scaled = np.sqrt(weights)[:, None] * (covariates - mean)
    cross = Z.T @ scaled
    return CovariateSums(mean, cross, scaled.T @ scaled, np.zeros_like(cross))


def _centred_columns(sets: list[Matrix], means: list[Array]) -> Iterator[tuple[slice, Array]]:
    """Yield the stacked centred rows, a block of features at a time."""
    n_rows, n_features = sum(X.shape[0] for X in sets), len(means[0])
    for columns in row_slices(n_features, n_rows):
        pairs = zip(sets, means, strict=True)
        yield columns, np.concatenate([widen(X[:, columns]) - m[columns] for X, m in pairs])
