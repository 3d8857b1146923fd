"""Rows that are compressed repeatedly, under other weights each time."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from contrastive_lvm.arrays import Array, Matrix, Parameters
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.linalg.matrices import has_missing, is_sparse, widen
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.rows.data import MOST_SPAN_ROWS, NARROW, Data
from contrastive_lvm.rows.gram_trick import reduce_to_span
from contrastive_lvm.rows.reader import MOST_LOADED, RowReader, Rows
from contrastive_lvm.rows.scatter import MOST_FEATURES, DenseScatter


class ScatterRows:
    """Dense rows in memory without missing entries, whose scatters suffice.

    Parameters
    ----------
    sets : list of ndarray
        The rows of each set.
    span : bool
        Whether few rows of many features may be replaced by coordinates in their span.
    """

    def __init__(self, sets: list[Array], *, span: bool) -> None:
        self.sets, self.n_features = sets, sets[0].shape[1]
        self.basis: Array | None = None  # (D, r) of the span
        self.origins: list[Array] = []  # (D,) of each set, where the coordinates are zero
        if span:
            found = reduce_to_span(sets)
            self.basis = found.lift(np.eye(found.coefficients.shape[1]))
            self.origins = found.means
            pairs = zip(sets, found.means, strict=True)
            self.sets = [(rows - mean) @ self.basis for rows, mean in pairs]

    def in_coordinates(self, fit: Posterior) -> Posterior:
        """Return a fit in the coordinates of the rows."""
        if self.basis is None:
            return fit
        loadings = {name: self.basis.T @ L for name, L in fit.loadings.items()}
        return fit._replace(
            loadings=loadings, noise_variance=fit.noise_variance[..., : self.basis.shape[1]]
        )

    def lift(self, p: Parameters) -> tuple[Array, Array, tuple[Array, ...]]:
        """Return loadings, noise variances and means over the features."""
        if self.basis is None:
            return p.L, p.psi, p.means
        pairs = zip(self.origins, p.means, strict=True)
        means = tuple(origin + self.basis @ mean for origin, mean in pairs)
        return self.basis @ p.L, np.repeat(p.psi[..., :1], len(self.basis), axis=-1), means

    def scatters(self, weights: Sequence[Array]) -> list[DenseScatter]:
        """Return the scatter of each set."""
        outside = self.n_features - self.sets[0].shape[1]
        pairs = zip(self.sets, weights, strict=True)
        return [weighted_scatter(rows, w, n_outside=outside) for rows, w in pairs]

    def data(self, weights: Sequence[Array]) -> Data:
        """Return the scatters as engines use them."""
        return self.compressed(self.scatters(weights))

    def compressed(self, sets: list[DenseScatter]) -> Data:
        """Return given scatters as engines use them."""
        squares, n_rows = [s.square for s in sets], [s.n_rows for s in sets]
        variances = [square / n for square, n in zip(squares, n_rows, strict=True)]
        pooled = np.asarray(sum(squares) / sum(n_rows))
        narrow = len(pooled) <= NARROW
        return Data(
            sets=sets,
            readers=[],
            n_features=self.n_features,
            span=None,
            complete=True,
            narrow=narrow,
            variances=variances,
            variance=pooled,
        )

    def observes_all(self, weights: Sequence[Array]) -> bool:
        """Say that every feature of every set is observed."""
        return True


class EngineRows:
    """Rows that are sparse, out of core or have missing entries, heavy tails or covariates."""

    def __init__(
        self,
        sets: list[Rows],
        model: Model,
        engine: CoordinateAscent,
        covariates: list[Array] | None = None,
    ) -> None:
        self.sets, self.model, self.engine, self.covariates = sets, model, engine, covariates

    def data(self, weights: Sequence[Array]) -> Data:
        """Compress the rows as a fit of the engine does, but never to the span of the rows."""
        return self.engine._prepare(self.model, self.sets, weights, self.covariates, in_span=False)

    def in_coordinates(self, fit: Posterior) -> Posterior:
        """Return the fit as it is."""
        return fit

    def lift(self, p: Parameters) -> tuple[Array, Array, tuple[Array, ...]]:
        """Return loadings, noise variances and means as they are."""
        return p.L, p.psi, p.means

    @cached_property
    def _observed(self) -> list[Array | None]:
        """Observed entries of each set in memory, (N, D); None where all of them are."""
        return [
            None if isinstance(X, RowReader) or not has_missing(X) else 1.0 - np.isnan(widen(X))
            for X in self.sets
        ]

    def observes_all(self, weights: Sequence[Array]) -> bool:
        """Tell whether rows of positive weight observe every feature of every set."""
        pairs = zip(self._observed, weights, strict=True)
        seen_all = all(seen is None or bool((w @ seen > 0).all()) for seen, w in pairs)
        return seen_all and (self.covariates is None or self._determines_effects(weights))

    def _determines_effects(self, weights: Sequence[Array]) -> bool:
        """Tell whether rows of positive weight determine the effects of all covariates."""
        try:
            self.data(weights)
        except InvalidDataError:
            return False
        return True


def refit_rows(
    model: Model,
    engine: CoordinateAscent,
    sets: Sequence[Rows],
    covariates: list[Array] | None = None,
) -> ScatterRows | EngineRows:
    """Return rows in the form that is compressed fastest; small sets are loaded."""
    n_rows, D = sum(rows.shape[0] for rows in sets), sets[0].shape[1]
    few = n_rows < D and n_rows <= MOST_SPAN_ROWS
    alike = model.likelihood._is_isotropic and model.treats_features_alike
    span = few and alike and not engine._posterior
    loaded: list[Rows] = [
        X.load() if isinstance(X, RowReader) and (few or X.shape[0] * D <= MOST_LOADED) else X
        for X in sets
    ]
    most = D if span else MOST_FEATURES
    dense = [widen(X) for X in loaded if not isinstance(X, RowReader) and _has_scatter(X, most)]
    if model.likelihood._is_scale_mixture or len(dense) < len(loaded) or covariates is not None:
        return EngineRows(loaded, model, engine, covariates)
    return ScatterRows(dense, span=span)


def _has_scatter(rows: Matrix, most_features: int) -> bool:
    """Tell whether rows are complete and small enough for scatters."""
    if rows.shape[1] > most_features or has_missing(rows):
        return False
    return not is_sparse(rows) or rows.shape[0] * rows.shape[1] <= MOST_LOADED


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows as a variance that is not finite
def weighted_scatter(rows: Array, weights: Array, *, n_outside: int = 0) -> DenseScatter:
    """Return the scatter of complete rows about their weighted mean.

    Examples
    --------
    >>> rows = np.array([[0.0], [3.0]])
    >>> weighted_scatter(rows, np.array([2.0, 1.0])).matrix
    array([[6.]])
    """
    drawn = np.flatnonzero(weights)
    scaled, weights = rows[drawn], weights[drawn]  # a copy
    n = float(weights.sum())
    mean = weights @ scaled / n
    scaled -= mean
    scaled *= np.sqrt(weights)[:, None]
    return DenseScatter(n, mean, scaled.T @ scaled, n_outside)


def joined(parts: Sequence[DenseScatter]) -> DenseScatter:
    """Join the scatters of several parts of the rows (Chan, Golub & LeVeque 1983, eq. 2.1).

    The scatter outside of a fold is that of the other folds together. The fold's taken from the
    whole would be the same but for rounding, which swamps it if the fold has an outlier.

    Examples
    --------
    >>> rows = np.array([[0.0], [3.0], [6.0]])
    >>> parts = [weighted_scatter(rows, w) for w in np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])]
    >>> joined(parts).matrix
    array([[18.]])
    """
    n = sum(part.n_rows for part in parts)
    mean = sum((part.n_rows / n * part.mean for part in parts), np.zeros_like(parts[0].mean))
    matrix = np.zeros_like(parts[0].matrix)
    for part in parts:
        change = part.mean - mean
        matrix += part.matrix + part.n_rows * np.outer(change, change)
    return DenseScatter(n, mean, matrix, parts[0].n_outside)
