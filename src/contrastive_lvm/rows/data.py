"""Any number of row sets in the form that the sweeps use."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from contrastive_lvm.arrays import Array, Parameters, RowWeights
from contrastive_lvm.likelihoods.base import Scaler
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import has_missing, is_sparse
from contrastive_lvm.rows.file_rows import LocalRows
from contrastive_lvm.rows.gram_trick import Span, reduce_to_span
from contrastive_lvm.rows.masked_rows import MaskedRows
from contrastive_lvm.rows.memory import check_memory
from contrastive_lvm.rows.moments import first_pass
from contrastive_lvm.rows.reader import RowReader, Rows
from contrastive_lvm.rows.row_cache import Cache, MemoryCache
from contrastive_lvm.rows.scale_mixture_rows import RowSums, ScaleMixtureRows
from contrastive_lvm.rows.scatter import (
    MOST_FEATURES,
    MOST_FEATURES_OUT_OF_CORE,
    DenseScatter,
    OperatorScatter,
    Scatter,
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


RowSet = Scatter | MaskedRows | ScaleMixtureRows


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

    def row_step(
        self,
        active: Sequence[Loadings],
        p: Parameters,
        weights: Sequence[Cache | None],
        scaler: Scaler,
    ) -> tuple[list[RowSums], tuple[Cache | None, ...]]:
        """Return what the rows of each set add up to, and their weights from now on."""

        def step(i: int) -> tuple[RowSums, Cache | None]:
            rows, given = self.sets[i], (active[i], p.psi, p.means[i])
            if isinstance(rows, ScaleMixtureRows):
                return rows.sweep(*given, weights[i], scaler)
            return RowSums(rows.statistics(*given)), None

        sums, renewed = zip(*_each(step, self.readers, range(len(self.sets))), strict=True)
        return list(sums), renewed

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
        ]


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows as a variance that is not finite
def prepare(
    sets: Sequence[Rows],
    *,
    weights: Sequence[Array | None] | None = None,
    scale_mixture: bool = False,
    span: bool = False,
    n_columns: int = 0,
) -> Data:
    """Compress complete sets to summaries; keep sets with missing entries or scales as rows.

    Sets are arrays, CSR matrices or readers; small sets that are out of core are loaded, which is
    faster. `weights` are nonnegative, one for each row: a row of weight 2 counts as two rows, one
    of weight 0 is left out. `scale_mixture` says that every entry or row has a scale of its own;
    `span` allows the model to be fitted in the span of few rows, which supposes isotropic noise,
    and loadings without covariances or priors that tell features apart. A fit of `n_columns`
    columns of loadings that cannot fit into memory is refused.
    """
    given = [None] * len(sets) if weights is None else list(weights)
    n_rows, D = sum(map(_total_weight, sets, given)), sets[0].shape[1]
    few = n_rows < D and n_rows <= MOST_SPAN_ROWS
    scatter = not scale_mixture and D <= min(2 * n_rows, MOST_FEATURES)
    check_memory(sets, n_columns, loads=few, scatter=scatter)
    readers = [_reader(X, load=few) for X in sets]
    pairs = list(zip(readers, given, strict=True))
    if scale_mixture:
        return _data(_each(lambda pair: ScaleMixtureRows(*pair), readers, pairs), readers, D)
    if span and few and not any(_sparse_or_missing(r) for r in readers):
        found = reduce_to_span([r.load() for r in readers], given)
        return _data(found.scatters, readers, D, found)
    most = MOST_FEATURES if all(r.in_memory for r in readers) else MOST_FEATURES_OUT_OF_CORE
    dense = D <= most and (D <= 2 * n_rows or not readers[0].in_memory)
    return _data(_each(lambda pair: summarize(*pair, dense=dense), readers, pairs), readers, D)


def _total_weight(X: Rows, weights: Array | None) -> float:
    total = float(X.shape[0] if weights is None else weights.sum())
    if not total > 0:
        raise ValueError("the weights of a set are all zero; give some rows a positive weight.")
    return total


def _data(
    sets: Sequence[RowSet], readers: list[RowReader], n_features: int, span: Span | None = None
) -> Data:
    squares, counts = [s.square for s in sets], [s.counts for s in sets]
    with np.errstate(divide="ignore", invalid="ignore"):  # features without any entry
        variances = [square / count for square, count in zip(squares, counts, strict=True)]
        pooled = np.asarray(sum(squares) / sum(counts))
    complete = not any(isinstance(s, MaskedRows | ScaleMixtureRows) for s in sets)
    narrow = all(isinstance(s, DenseScatter) for s in sets) and len(pooled) <= NARROW
    return Data(sets, readers, n_features, span, complete, narrow, variances, pooled)


def _reader(X: Rows, *, load: bool) -> RowReader:
    if not isinstance(X, RowReader):
        return LocalRows(X)  # rows in memory have been checked
    return LocalRows(X.load()) if load or X.shape[0] * X.shape[1] <= MOST_LOADED else X


def _sparse_or_missing(reader: RowReader) -> bool:
    rows = reader.load()
    return is_sparse(rows) or has_missing(rows)


def summarize(reader: RowReader, weights: Array | None, *, dense: bool) -> Scatter | MaskedRows:
    """Compress complete rows in one pass, `dense` to a matrix; others are kept as masked rows."""
    found = first_pass(reader, weights, scatter=dense)
    if not found.complete:
        return MaskedRows(reader, found, weights)
    if found.raw is not None:
        return DenseScatter(found.n_rows, found.mean, found.scatter)
    return OperatorScatter(found.n_rows, found.mean, found.square, reader, weights)


def _each(
    function: Callable[[Item], Result], readers: list[RowReader], items: Sequence[Item]
) -> list[Result]:
    """Apply a function to one item after the other; on a cluster to several at the same time."""
    if len(items) < 2 or not all(reader.on_cluster for reader in readers):
        return list(map(function, items))

    def cancel() -> None:
        for reader in readers:
            reader.cancel()

    return together(function, items, cancel)
