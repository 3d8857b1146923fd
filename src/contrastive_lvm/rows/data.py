"""Both row sets in the form the sweeps use."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.likelihoods.base import Scaler
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import has_missing, is_sparse, row_slices, widen
from contrastive_lvm.model import Model
from contrastive_lvm.rows import scatter
from contrastive_lvm.rows.file_rows import LocalRows
from contrastive_lvm.rows.gram_trick import Span, reduce_to_span
from contrastive_lvm.rows.masked_rows import MaskedRows
from contrastive_lvm.rows.reader import UNCHECKED, RowReader
from contrastive_lvm.rows.scale_mixture_rows import Swept, Weights, weighted_statistics
from contrastive_lvm.rows.scatter import DenseScatter, Scatter
from contrastive_lvm.rows.streamed import (
    CLIP,
    MOST_BRANCHED,
    StreamedGaps,
    StreamedWeights,
    at_hand,
    compressed,
    first_pass,
)
from contrastive_lvm.rows.threads import side_by_side

Item = TypeVar("Item")
Result = TypeVar("Result")
MOST_SPAN_ROWS = 1500  # above, an N x N eigendecomposition costs more than sweeps over the rows
NARROW = 256  # features: beyond, two threads of BLAS are faster than one
MOST_FETCHED = 1 << 23  # entries of a set that is worked on in memory, 64 MB in double precision


Product = Callable[[Array], Array]  # M -> cov @ M


class CovarianceOperator(NamedTuple):
    """A set's covariance as products, with its variances."""

    product: Product
    variance: Array  # (D,)
    weight: float  # rows


class WeightedRows:
    """Rows of a heavy-tailed likelihood: the data as given, and moments for the start.

    Start moments come from entries clipped at `CLIP` robust standard deviations about the median,
    so that outliers do not decide where the fit begins.
    """

    def __init__(self, X: Matrix) -> None:
        informative = _informative(X)
        self.rows = X if informative.all() else X[informative]
        self.n_rows, self.n_features = self.rows.shape
        self.mean, self.square = np.empty(self.n_features), np.empty(self.n_features)
        self.counts, self._limit = np.empty(self.n_features), np.empty(self.n_features)
        for columns in row_slices(self.n_features, self.n_rows):
            part = widen(self.rows[:, columns])
            self.mean[columns] = centre = np.nanmedian(part, axis=0)
            spread = 1.4826 * np.nanmedian(np.abs(part - centre), axis=0)
            fallback = np.nanstd(part, axis=0)
            self._limit[columns] = limit = CLIP * np.where(spread > 0, spread, fallback)
            self.counts[columns] = (~np.isnan(part)).sum(axis=0)
            self.square[columns] = np.nansum(np.clip(part - centre, -limit, limit) ** 2, axis=0)

    def first_weights(self) -> Weights:
        """All 1."""
        return np.ones((self.n_rows, 1), np.float32)

    def weighted(
        self, loadings: Loadings, psi: Array, mean: Array, weights: Weights, scaler: Scaler
    ) -> tuple[Swept, Weights]:
        """As `robust.weighted_statistics`."""
        return weighted_statistics(self.rows, loadings, psi, mean, weights, scaler)

    def _clipped(self, block: Array) -> Array:
        centred = block - self.mean
        clipped: Array = np.clip(centred, -self._limit, self._limit)
        return clipped

    def covariance_product(self, M: Array) -> Array:
        """About `cov(x) @ M` from clipped entries, missing ones undone as in `MaskedRows`."""
        share = self.counts / self.n_rows
        product = np.zeros_like(M)
        for rows in row_slices(*self.rows.shape):
            R = np.nan_to_num(self._clipped(widen(self.rows[rows]))) / share
            product += R.T @ (R @ M)
        variance = self.square / self.counts
        restored: Array = product / self.n_rows + (variance - variance / share)[:, None] * M
        return restored


def _informative(X: Matrix) -> np.ndarray:
    """Which rows have an observed entry, (N,) bool."""
    parts = [~np.isnan(widen(X[rows])).all(axis=1) for rows in row_slices(*X.shape)]
    return np.concatenate(parts)


Gapped = MaskedRows | StreamedGaps
Weighted = WeightedRows | StreamedWeights
RowSet = Scatter | Gapped | Weighted


class Data(NamedTuple):
    """Both row sets, compressed where the model allows it."""

    sets: list[RowSet]  # target, then background if there is one
    n_features: int  # of the data; the sets' own are fewer in a span
    span: Span | None
    variances: list[Array]  # (D,) of each set
    variance: Array  # (D,) of the pooled sets about their own means

    @property
    def complete(self) -> bool:
        """Whether nothing is missing or weighted; the means are then the sample means for good."""
        return not any(isinstance(s, Gapped | Weighted) for s in self.sets)

    def each(self, function: Callable[[int], Result]) -> list[Result]:
        """Results for each set by its number; of sets on a cluster, both at the same time."""
        sources = [
            s.rows if isinstance(s, StreamedGaps | StreamedWeights) else s for s in self.sets
        ]
        return _each(function, sources, range(len(sources)))

    @property
    def narrow(self) -> bool:
        """Whether sweeps only have products of small matrices, which threads do not speed up."""
        return all(isinstance(s, DenseScatter) and len(s.mean) <= NARROW for s in self.sets)


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows as a variance that is not finite
def prepare(
    model: Model, target: Matrix, background: Matrix | None, *, posterior: bool = False
) -> Data:
    """Compress complete sets to summaries; keep sets with missing or weighted entries as rows.

    `posterior` says that loadings will have covariances, which live on features, not on a span.
    Either set may be a `RowReader`, whose rows are elsewhere. Small ones are fetched, which is faster.
    Large ones are worked on by cells wherever they are, in memory too, so that a set gives the same
    answer to the last digit from anywhere (but for complete rows of over `MOST_BRANCHED` features,
    whose scatters are rounded otherwise).
    """
    matrices = [target] if background is None else [target, background]
    D, n_rows = target.shape[1], sum(X.shape[0] for X in matrices)
    few = n_rows < D and n_rows <= MOST_SPAN_ROWS
    matrices = [
        at_hand(X) if isinstance(X, RowReader) and (few or _small(X)) else X for X in matrices
    ]
    if isinstance(model.likelihood, StudentT):
        return _with_variances(_each(_weighted, matrices, matrices), D, None)
    spans = n_rows < D and n_rows <= MOST_SPAN_ROWS and not any(is_sparse(X) for X in matrices)
    spans = spans and model.closed_likelihood.isotropic and model.features_alike and not posterior
    if spans and not any(has_missing(X) for X in matrices):
        span = reduce_to_span(matrices)
        return _with_variances(list(span.scatters), D, span)
    dense = D <= scatter.MOST_FEATURES and D <= 2 * n_rows
    return _with_variances(_each(partial(_compressed, dense=dense), matrices, matrices), D, None)


def _each(
    function: Callable[[Item], Result], sources: list[Any], items: Sequence[Item]
) -> list[Result]:
    """One item after the other; both at the same time where their rows are on a cluster."""
    aside = len(items) > 1 and all(isinstance(X, RowReader) and X.on_cluster for X in sources)
    return list(side_by_side(function, items, 2) if aside else map(function, items))


def _small(X: Matrix | RowReader) -> bool:
    return bool(X.shape[0] * X.shape[1] <= MOST_FETCHED)


def _by_cells(X: Matrix | RowReader) -> RowReader:
    """Rows in memory as what is worked on by cells; they have been checked."""
    return X if isinstance(X, RowReader) else LocalRows(X, UNCHECKED)


def _weighted(X: Matrix | RowReader) -> "Weighted":
    if _small(X) and not isinstance(X, RowReader):
        return WeightedRows(X)
    return StreamedWeights(_by_cells(X))


def _compressed(X: Matrix | RowReader, *, dense: bool) -> RowSet:
    if isinstance(X, RowReader):
        return compressed(X)
    if dense and not is_sparse(X):  # the pass that compresses also finds gaps
        if X.shape[1] <= MOST_BRANCHED and not _small(X):
            return compressed(_by_cells(X))
        summary = scatter.summarise(X, dense=True)
        return _masked(X) if np.isnan(summary.mean).any() else summary
    return _masked(X) if has_missing(X) else scatter.summarise(X, dense=dense)


def _masked(X: Matrix) -> RowSet:
    if _small(X):
        return MaskedRows(X)
    rows = _by_cells(X)
    return StreamedGaps(rows, first_pass(rows, scatter=False))


def _with_variances(sets: list[Any], n_features: int, span: Span | None) -> Data:
    squares, counts = zip(*(_square_and_count(s) for s in sets), strict=True)
    variances = [np.asarray(q / n) for q, n in zip(squares, counts, strict=True)]
    return Data(sets, n_features, span, variances, np.asarray(sum(squares) / sum(counts)))


def _square_and_count(rows: RowSet) -> tuple[Array, Array]:
    if isinstance(rows, Gapped | Weighted):
        return rows.square, rows.counts
    return rows.diagonal, np.full(len(rows.diagonal), float(rows.n_rows))


def covariance(rows: RowSet) -> CovarianceOperator:
    """A set's covariance for the start."""
    if isinstance(rows, Gapped | Weighted):
        variance = rows.square / rows.counts
        return CovarianceOperator(rows.covariance_product, variance, float(rows.n_rows))
    n = rows.n_rows
    return CovarianceOperator(lambda M: rows.product(M) / n, rows.diagonal / n, float(n))
