"""Any number of row sets in the form that the sweeps use."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from contrastive_lvm.arrays import Array, Parameters, RowWeights, noise_of
from contrastive_lvm.likelihoods.base import Scaler
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import has_missing, is_sparse
from contrastive_lvm.rows.file_rows import LocalRows
from contrastive_lvm.rows.generalised_rows import GeneralisedRows
from contrastive_lvm.rows.gram_trick import Span, reduce_to_span
from contrastive_lvm.rows.latent_distribution import LatentDistribution, complete_statistics
from contrastive_lvm.rows.masked_rows import MaskedRows
from contrastive_lvm.rows.reader import RowReader, Rows
from contrastive_lvm.rows.row_cache import Cache, MemoryCache
from contrastive_lvm.rows.scale_mixture_rows import RowSums, ScaleMixtureRows
from contrastive_lvm.rows.scatter import (
    MOST_FEATURES,
    MOST_FEATURES_OUT_OF_CORE,
    DenseScatter,
    OperatorScatter,
    Scatter,
    covariate_sums,
    first_pass,
)
from contrastive_lvm.rows.threads import together

Item = TypeVar("Item")
Result = TypeVar("Result")
MOST_SPAN_ROWS = 1500  # above, an N x N eigendecomposition costs more than sweeps over the rows
NARROW = 256  # features: beyond, two threads of BLAS are faster than one
MOST_LOADED = 1 << 23  # entries of a set that is worked on in memory, 64 MB in double precision
Product = Callable[[Array], Array]  # M -> cov @ M


class CovarianceOperator(NamedTuple):
    """A set's covariance as products, with its variances."""

    product: Product
    variance: Array  # (D,)
    weight: float  # of all rows


RowSet = Scatter | MaskedRows | ScaleMixtureRows | GeneralisedRows


class Linearized(NamedTuple):
    """Rows in which the predictors of counts or binary data are about linear, for a start."""

    data: "Data"
    slope: Array  # (D,) change of such a row's entry by the predictor's
    intercepts: tuple[Array, ...]  # (D,) predictors of the mean row of each set


class Data(NamedTuple):
    """Row sets, compressed where the model allows it."""

    sets: Sequence[RowSet]
    readers: list[RowReader]
    n_features: int  # of the data; the sets' own are fewer in a span
    span: Span | None
    complete: bool  # nothing is missing or scaled: the means are the sample means for good
    narrow: bool  # sweeps have products of small matrices only, which threads do not speed up
    variances: list[Array]  # (D,) of the features of each set
    variance: Array  # (D,) of the features of all sets about their own means
    clustered: bool = False  # workers of a cluster do the work, for several sets at the same time
    row_weights: Sequence[Array | None] = ()  # of the rows of each set, None where all are 1
    row_covariates: Sequence[Array | None] = ()  # (N, C) of the rows of each set
    linearized: Linearized | None = None  # for likelihoods without a closed form

    def row_step(
        self,
        active: Sequence[Loadings],
        p: Parameters,
        weights: Sequence[Cache | None],
        scaler: Scaler,
        distributions: Sequence[LatentDistribution | None] | None = None,
    ) -> tuple[list[RowSums], tuple[Cache | None, ...]]:
        """Return what the rows of each set add up to, and their weights from now on."""

        def step(i: int) -> tuple[RowSums, Cache | None]:
            effects = p.effects[i] if p.effects else None
            rows, given = self.sets[i], (active[i], noise_of(p.psi, i), p.means[i], effects)
            distribution = None if distributions is None else distributions[i]
            if isinstance(rows, ScaleMixtureRows):
                return rows.sweep(*given, weights[i], scaler, distribution)
            if isinstance(rows, MaskedRows):
                return RowSums(rows.statistics(*given, distribution)), None
            if isinstance(rows, GeneralisedRows):
                raise TypeError("these rows were prepared for counts or binary data.")
            if distribution is None:
                return RowSums(rows.statistics(*given)), None
            return RowSums(
                complete_statistics(rows, *self.rows_of_set(i), given, distribution)
            ), None

        sets = range(len(self.sets))
        found = _at_once(step, sets, self.readers) if self.clustered else map(step, sets)
        sums, renewed = zip(*found, strict=True)
        return list(sums), renewed

    def rows_of_set(self, i: int) -> tuple[RowReader, Array | None, Array | None]:
        """Return the rows of a set in its coordinates, with their weights and covariates.

        Covariates are about those of a row at the mean.
        """
        if self.span is not None:
            coordinates, weights, known = self.span.rows[i]
            reader: RowReader = LocalRows(coordinates)
        else:
            reader, weights = self.readers[i], self.row_weights[i]
            known = self.row_covariates[i]
        centre = self.sets[i].covariate_mean
        return reader, weights, None if known is None else known - centre

    def weights_in_memory(self, weights: Sequence[Cache | None]) -> tuple[RowWeights, ...]:
        """Return the weights of rows in memory; those of other rows vanish with the fit."""
        found = [
            rows.scales_of_rows(w)
            for rows, w in zip(self.sets, weights, strict=True)
            if isinstance(rows, ScaleMixtureRows) and isinstance(w, MemoryCache)
        ]
        return tuple(found) if len(found) == len(weights) else ()

    def covariances(self) -> list[CovarianceOperator]:
        """Return the covariance of each set, for starts."""
        return [
            CovarianceOperator(s.covariance_product, s.square / s.counts, s.n_rows)
            for s in self.sets
            if not isinstance(s, GeneralisedRows)
        ]


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows as a variance that is not finite
def prepare(
    sets: Sequence[Rows],
    *,
    weights: Sequence[Array | None] | None = None,
    scale_mixture: bool = False,
    span: bool = False,
    covariates: Sequence[Array] | None = None,
) -> Data:
    """Compress complete sets to summaries; keep sets with missing entries or scales as rows.

    Sets are arrays, CSR matrices or readers; small sets that are out of core are loaded, which is
    faster. `weights` are nonnegative, one for each row: a row of weight 2 counts as two rows, one
    of weight 0 is left out. `scale_mixture` says that every entry or row has a scale of its own;
    `span` allows the model to be fitted in the span of few rows, which supposes isotropic noise,
    and loadings without covariances or priors that tell features apart. `covariates` are
    known columns of the rows of each set, (N, C).
    """
    given = [None] * len(sets) if weights is None else list(weights)
    totals = [X.shape[0] if w is None else float(w.sum()) for X, w in zip(sets, given, strict=True)]
    if not all(total > 0 for total in totals):
        raise ValueError("the weights of a set are all zero; give some rows a positive weight.")
    n_rows, D = sum(totals), sets[0].shape[1]
    few = n_rows < D and n_rows <= MOST_SPAN_ROWS
    small = [few or X.shape[0] * X.shape[1] <= MOST_LOADED for X in sets]
    loaded = [
        X.load() if isinstance(X, RowReader) and load else X
        for X, load in zip(sets, small, strict=True)
    ]
    readers = [X if isinstance(X, RowReader) else LocalRows(X) for X in loaded]
    if not scale_mixture and span and few and not any(map(_sparse_or_missing, readers)):
        within = reduce_to_span([r.load() for r in readers], given, covariates)
        return _data(within.scatters, readers, D, within)
    most = MOST_FEATURES if all(r.in_memory for r in readers) else MOST_FEATURES_OUT_OF_CORE
    dense = D <= most and (D <= 2 * n_rows or not readers[0].in_memory)
    known = [None] * len(sets) if covariates is None else covariates
    make: Callable[[RowReader, Array | None, Array | None], RowSet]
    make = ScaleMixtureRows if scale_mixture else partial(summarize, dense=dense)
    if len(readers) > 1 and all(reader.on_cluster for reader in readers):
        every = range(len(readers))
        found = _at_once(lambda i: make(readers[i], given[i], known[i]), every, readers)
        clustered = _data(found, readers, D)._replace(clustered=True)
        return clustered._replace(row_weights=given, row_covariates=known)
    found = list(map(make, readers, given, known))
    return _data(found, readers, D)._replace(row_weights=given, row_covariates=known)


def variances_of(sets: Sequence[RowSet]) -> tuple[list[Array], Array]:
    """Return the variances of the features of each set, and of all about their own means."""
    squares, counts = [s.square for s in sets], [s.counts for s in sets]
    with np.errstate(divide="ignore", invalid="ignore"):  # features without any entry
        variances = [square / count for square, count in zip(squares, counts, strict=True)]
        return variances, np.asarray(sum(squares) / sum(counts))


def _data(
    sets: Sequence[RowSet], readers: list[RowReader], n_features: int, span: Span | None = None
) -> Data:
    variances, pooled = variances_of(sets)
    complete = not any(isinstance(s, MaskedRows | ScaleMixtureRows) for s in sets)
    narrow = all(isinstance(s, DenseScatter) for s in sets) and len(pooled) <= NARROW
    return Data(sets, readers, n_features, span, complete, narrow, variances, pooled)


def _sparse_or_missing(reader: RowReader) -> bool:
    rows = reader.load()
    return is_sparse(rows) or has_missing(rows)


def summarize(
    reader: RowReader, weights: Array | None, covariates: Array | None = None, *, dense: bool
) -> Scatter | MaskedRows:
    """Compress complete rows in one pass, `dense` to a matrix; others are kept as masked rows.

    Covariates of complete rows take another pass.
    """
    found = first_pass(reader, weights, scatter=dense)
    if not found.complete:
        return MaskedRows(reader, found, weights, covariates)
    known = None if covariates is None else covariate_sums(reader, found, weights, covariates)
    if found.raw is not None:
        return DenseScatter(found.n_rows, found.mean, found.scatter, covariates=known)
    return OperatorScatter(found, reader, weights, known)


def _at_once(
    function: Callable[[Item], Result], items: Sequence[Item], readers: list[RowReader]
) -> list[Result]:
    """Apply a function to all items at the same time; if one fails, the work of all ends."""

    def cancel() -> None:
        for reader in readers:
            reader.cancel()

    return together(function, items, cancel)
