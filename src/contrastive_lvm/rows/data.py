"""Row sets in the form that the sweeps use, after a check that memory suffices.

Fits that cannot fit into memory are refused before they start, since all sizes are known. The
estimate counts what fits of a kind were measured to hold at the same time: rows in memory and
copies of them, what is kept of each row, (D, D) matrices, and loadings with the steps from which
they are extrapolated. It was .6 to 1 times the peak in fits of 100 to 500 MB. It leaves out the
blocks that threads work on, some tens of MB. `tests/rows/test_memory.py` holds it below peaks.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from contrastive_lvm.arrays import Array, Matrix, Parameters, RowWeights
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.likelihoods.values import Scaler
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import column_sums, has_missing, is_sparse
from contrastive_lvm.rows.generalised_rows import GeneralisedRows
from contrastive_lvm.rows.gram_trick import Span, reduce_to_span
from contrastive_lvm.rows.latent_distribution import LatentDistribution, complete_statistics
from contrastive_lvm.rows.masked_rows import MaskedRows
from contrastive_lvm.rows.reader import (
    MOST_FEATURES_SQUARED,
    MOST_LOADED,
    LocalRows,
    RowReader,
    Rows,
)
from contrastive_lvm.rows.row_cache import Cache, MemoryCache
from contrastive_lvm.rows.scale_mixture_rows import RowSums, ScaleMixtureRows
from contrastive_lvm.rows.scatter import (
    MOST_FEATURES,
    DenseScatter,
    OperatorScatter,
    Scatter,
    covariate_sums,
    first_pass,
)
from contrastive_lvm.rows.sketch import Sketch, first_precision, first_sketch
from contrastive_lvm.rows.threads import together

Item = TypeVar("Item")
Result = TypeVar("Result")
MOST_SPAN_ROWS = 1500  # above, an N x N eigendecomposition costs more than sweeps over the rows
LEAST_FEATURES = 20  # for each column, of rows that are sketched: a sketch has fifteen directions
SLOW_SQUARE = 5e7  # multiplications, a quarter of a second
SLOW_SHARE = 20.0  # for each stored entry; a sketch has ten times as many, each ten times quicker
FEW = 0.25  # of the rows, which a comparison of starts needs
LEAST_PART = 200  # rows of each set in it
NARROW = 256  # features: beyond, two threads of BLAS are faster than one
COPIES = 12  # of loadings that a fit holds: starts, and steps to extrapolate from
COPIES_IN_SPAN = 4  # where these are made in the span of few rows
Product = Callable[[Array], Array]  # M -> cov @ M


class CovarianceOperator(NamedTuple):
    """A set's covariance as products, with its variances."""

    product: Product
    variance: Array  # (D,)
    weight: float  # of all rows
    matrix: Array | None = None  # (D, D), if the rows have one and features are few


RowSet = Scatter | MaskedRows | ScaleMixtureRows | GeneralisedRows


class Linearized(NamedTuple):
    """Counts or binary rows transformed to be nearly linear in their predictors, for a start."""

    data: "Data"
    slope: Array  # (D,) change of such a row's entry by the predictor's
    intercepts: tuple[Array, ...]  # (D,) predictors of the mean row of each set


class Data(NamedTuple):
    """Row sets, compressed where the model allows it."""

    sets: Sequence[RowSet]
    readers: list[RowReader]
    n_features: int  # of the data; the sets' own are fewer in a span
    span: Span | Sketch | None
    complete: bool  # nothing is missing or scaled, so that the means stay the sample means
    narrow: bool  # sweeps only multiply small matrices, which threads do not speed up
    variances: list[Array]  # (D,) of the features of each set
    variance: Array  # (D,) of the features of all sets about their own means
    clustered: bool = False  # workers of a cluster do the work, for several sets at the same time
    row_weights: Sequence[Array | None] = ()  # of the rows of each set, None where all are 1
    row_covariates: Sequence[Array | None] = ()  # (N, C) of the rows of each set
    linearized: Linearized | None = None  # for likelihoods without a closed form
    sketch: Sketch | None = None  # where fits with isotropic noise begin

    def row_step(
        self,
        active: Sequence[Loadings],
        p: Parameters,
        weights: Sequence[Cache | None],
        scaler: Scaler,
        distributions: Sequence[LatentDistribution | None] | None = None,
    ) -> tuple[list[RowSums], tuple[Cache | None, ...]]:
        """Return what the rows of each set add up to, and their weights from now on."""
        psi = p.psi if p.psi.ndim == 2 else [p.psi] * len(self.sets)

        def step(i: int) -> tuple[RowSums, Cache | None]:
            effects = p.effects[i] if p.effects else None
            rows, given = self.sets[i], (active[i], psi[i], p.means[i], effects)
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
        if isinstance(self.span, Span):
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

    def part(self, n_rows: int) -> tuple[list[Rows], list[Array | None]] | None:
        """Return about so many evenly spaced rows in memory and their weights.

        None where there are less than four times as many, or a feature would be without entries.
        """
        share = n_rows / sum(reader.shape[0] for reader in self.readers)
        if share > FEW or not all(reader.in_memory for reader in self.readers):
            return None
        sets: list[Rows] = []
        weights = []
        for reader, own in zip(self.readers, self.row_weights, strict=True):
            n = min(reader.shape[0], max(int(share * reader.shape[0]), LEAST_PART))
            at = np.linspace(0, reader.shape[0] - 1, n).astype(np.intp)
            rows = reader.take(at)
            counts = column_sums(rows if own is None else rows[own[at] > 0])[1]
            if not counts.all():
                return None
            sets.append(rows)
            weights.append(None if own is None else own[at])
        return sets, weights

    def with_sketch(self, n_columns: int, n_steps: int) -> "Data":
        """Return the rows with a sketch for so many columns, where sweeps would read the rows."""
        sources = [rows for rows in self.sets if isinstance(rows, OperatorScatter)]
        known = any(rows.covariates is not None for rows in sources)
        few = self.n_features < LEAST_FEATURES * (n_columns + 1)
        if len(sources) < len(self.sets) or known or few:
            return self
        dtype = first_precision(sources)
        return self._replace(sketch=first_sketch(sources, n_columns, n_steps, dtype))

    def within(self, sketch: Sketch) -> "Data":
        """Return the rows in the subspace of a sketch."""
        found = sketch.scatters()
        variances, pooled = variances_of(found)
        return self._replace(
            sets=found,
            span=sketch,
            sketch=None,
            narrow=len(pooled) <= NARROW,
            variances=variances,
            variance=pooled,
        )

    def covariances(self) -> list[CovarianceOperator]:
        """Return the covariance of each set, for starts."""
        return [
            CovarianceOperator(
                s.covariance_product,
                s.square / s.counts,
                s.n_rows,
                s.matrix / s.n_rows if self.narrow and isinstance(s, DenseScatter) else None,
            )
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
    `span` allows a fit in the span of few rows, which assumes isotropic noise, and loadings without
    covariances and without priors that tell features apart. `covariates` are known columns of the
    rows of each set, (N, C).
    """
    given = [None] * len(sets) if weights is None else list(weights)
    totals = [X.shape[0] if w is None else float(w.sum()) for X, w in zip(sets, given, strict=True)]
    if not all(total > 0 for total in totals):
        raise ValueError("the weights of a set are all zero; give some rows a positive weight.")
    n_rows, D = sum(totals), sets[0].shape[1]
    few = n_rows < D and n_rows <= MOST_SPAN_ROWS
    loaded = [
        X.load() if isinstance(X, RowReader) and (few or X.shape[0] * D <= MOST_LOADED) else X
        for X in sets
    ]
    readers = [X if isinstance(X, RowReader) else LocalRows(X) for X in loaded]
    known = [None] * len(sets) if covariates is None else covariates
    clustered = len(readers) > 1 and all(reader.on_cluster for reader in readers)
    within: Span | None = None
    found: Sequence[RowSet]
    if not scale_mixture and span and few and not any(map(_sparse_or_missing, readers)):
        within = reduce_to_span([r.load() for r in readers], given, covariates)
        found = within.scatters
    else:
        most = MOST_FEATURES if all(r.in_memory for r in readers) else MOST_FEATURES_SQUARED
        dense = D <= most and (D <= 2 * n_rows or not readers[0].in_memory)
        sparse = span and not scale_mixture and all(map(is_sparse, loaded))
        if sparse and all(map(_squares_slowly, loaded)):
            dense = False  # a sketch takes less time
        make = ScaleMixtureRows if scale_mixture else partial(summarize, dense=dense)
        if clustered:
            own = list(zip(readers, given, known, strict=True))
            found = _at_once(lambda rows: make(*rows), own, readers)
        else:
            found = list(map(make, readers, given, known))
    variances, pooled = variances_of(found)
    return Data(
        found,
        readers,
        D,
        within,
        complete=not any(isinstance(s, MaskedRows | ScaleMixtureRows) for s in found),
        narrow=all(isinstance(s, DenseScatter) for s in found) and len(pooled) <= NARROW,
        variances=variances,
        variance=pooled,
        clustered=clustered,
        row_weights=given,
        row_covariates=known,
    )


def variances_of(sets: Sequence[RowSet]) -> tuple[list[Array], Array]:
    """Return the variances of the features of each set, and of all about their own means."""
    squares, counts = [s.square for s in sets], [s.counts for s in sets]
    with np.errstate(divide="ignore", invalid="ignore"):  # features without any entry
        variances = [square / count for square, count in zip(squares, counts, strict=True)]
        return variances, np.asarray(sum(squares) / sum(counts))


def _squares_slowly(rows: Rows) -> bool:
    """Tell whether `X' X` of sparse rows takes longer than some hundred products with a column."""
    if isinstance(rows, RowReader) or not is_sparse(rows) or has_missing(rows):
        return False
    stored = np.diff(rows.indptr).astype(np.float64)
    return float(stored @ stored) > max(SLOW_SQUARE, SLOW_SHARE * rows.nnz)


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


def check_memory(sets: Sequence[Rows], needed: int, what: str, instead: str) -> None:
    """Refuse sets of which something needs more bytes than this machine or container has."""
    total = total_memory()
    if total is not None and needed > total:
        reason = (
            f"is too large: {what} to {sum(X.shape[0] for X in sets)} rows of "
            f"{sets[0].shape[1]} features needs at least {needed / 1e9:.3g} GB of memory, but "
            f"there are {total / 1e9:.3g} GB; {instead}."
        )
        raise InvalidDataError("X", reason)


def bytes_of_rows(sets: Sequence[Rows]) -> int:
    """Return the bytes of the sets that are arrays or sparse matrices; readers count nothing."""
    local = [X for X in sets if not isinstance(X, RowReader)]
    parts = [(X.data, X.indices, X.indptr) if is_sparse(X) else (X,) for X in local]
    return sum(part.nbytes for own in parts for part in own)


def least_bytes(sets: Sequence[Rows], n_columns: int, likelihood: Likelihood) -> int:
    """Return the bytes that a fit holds at once, with its rows if they are in memory."""
    D, sizes = int(sets[0].shape[1]), [int(X.shape[0]) for X in sets]
    held = (X for X in sets if not isinstance(X, RowReader) or X.in_memory)
    local = [X.load() if isinstance(X, RowReader) else X for X in held]
    rows = bytes_of_rows(local)
    if not likelihood._has_closed_form:  # rows in which predictors are linear, and q of each row
        rows *= 2 if likelihood._has_counts(D).any() else 1
        kept, squares = n_columns * (n_columns + 3), 0
    elif likelihood._is_scale_mixture:
        kept, squares = likelihood._scale_width(D), len(sets)
    else:
        kept, squares = 0, len(sets) + 1
    if D > min(*sizes, MOST_FEATURES):
        squares = min(squares, _wide_squares(sets, local, likelihood))
    square = squares * D
    copies = COPIES if sum(sizes) > MOST_SPAN_ROWS else COPIES_IN_SPAN
    numbers = kept * sum(int(X.shape[0]) for X in local) + D * (copies * n_columns + square)
    return rows + 8 * numbers  # bytes, in double precision


def _wide_squares(sets: Sequence[Rows], local: list[Matrix], likelihood: Likelihood) -> int:
    """Return how many (D, D) matrices a fit holds when a set has fewer rows than features.

    `local` are the sets in memory. The numbers are those of `prepare`: none in the span of few
    rows or with many features, one in the first pass over rows with missing entries, and one for
    each set of complete rows in memory.
    """
    n_rows, D = sum(X.shape[0] for X in sets), sets[0].shape[1]
    few = n_rows < D and n_rows <= MOST_SPAN_ROWS and likelihood._is_isotropic
    if few or D > MOST_FEATURES or D > 2 * n_rows or len(local) < len(sets):
        return 0
    return len(sets) + 1 if not any(is_sparse(X) or has_missing(X) for X in local) else 1


@cache
def total_memory() -> int | None:
    """Return the memory and swap space of this machine or container; None if they are unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    limits = [sizes["MemTotal"]]
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):  # of the container
        with suppress(OSError, ValueError):  # no such file, or the word max
            limits.append(int(Path("/sys/fs/cgroup", limit).read_text(encoding="ascii")))
    return min(limits) + sizes.get("SwapTotal", 0)
