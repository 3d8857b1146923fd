"""Complete rows, compressed: the number of rows, their mean and their scatter.

The scatter `T = sum_i w_i (x_i - mean)(x_i - mean)'`, with w the weights of the rows, enters the
model only through its diagonal and through products `T @ M` with a few columns, so two kinds of
data share one interface:

- `DenseScatter`: the (D, D) matrix, formed in one pass; sweeps no longer depend on n;
- `OperatorScatter`: the rows themselves, `T M = Xc' (Xc M)`, for many features; sparse rows are
  centred implicitly and stay sparse.

With fewer rows than features and isotropic noise, `gram_trick.reduce_to_span` first replaces the
rows by their coordinates in an orthonormal basis of their span.

One pass over all rows (`first_pass`) finds out which kind they are. Moments of chunks add up to
those of all rows (Chan, Golub & LeVeque 1983, eq. 2.1), so that chunks may be anywhere, and each is
read only once: the pass also refuses bad values.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from functools import partial, reduce
from operator import add
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf, dtrtri

from contrastive_lvm.arrays import (
    LOG_2PI,
    TINY,
    Array,
    Dense,
    Floats,
    Matrix,
    Sparse,
    Statistics,
)
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import (
    has_missing,
    is_sparse,
    row_slices,
    shift_columns,
    transposed,
    widen,
)
from contrastive_lvm.rows.covariate_sums import CovariateSums
from contrastive_lvm.rows.reader import PRODUCT_ENTRIES, Chunk, RowReader
from contrastive_lvm.rows.row_cache import Cache

SUMMED_AT_ONCE = 128  # rows whose sum in single precision loses no digits
WIDE_ROWS = 8192  # of a block, at most: products of narrow matrices want more rows than other work
FIRST_ROWS = 64  # from which the location of the others is estimated
FAR = 1000.0  # squared mean over variance: sums about zero then lose three digits of sixteen
MOST_FEATURES = 3000  # above, products with rows in memory are cheaper than forming a (D, D) matrix


class Scatter(ABC):
    """Complete rows, summarised by what the steps of a fit need."""

    n_rows: float  # weight of all rows
    mean: Array  # (D,)
    square: Array  # (D,) diagonal of the scatter
    counts: Array  # (D,) weight of the entries of each feature
    n_outside = 0  # features beyond the span of the rows, which hold noise alone
    covariates: CovariateSums | None = None

    @property
    def covariate_mean(self) -> Array:
        """Return the covariates of a row at the mean, (C,)."""
        return np.empty(0) if self.covariates is None else self.covariates.mean

    @property
    def effects(self) -> Array | None:
        """Return the effects of covariates that the scatter is without, (D, C)."""
        return None if self.covariates is None else self.covariates.effects

    def sums_with_covariates(self) -> Statistics:
        """Return statistics of the covariates alone, for a start."""
        D = len(self.mean)
        return self.statistics(Loadings(np.empty((D, 0))), np.ones(D), self.mean, self.effects)

    def about(self, mean: Array, effects: Array, square: Array) -> "Scatter":
        """Return the rows without effects of their covariates, which leaves their mean."""
        return self.less(effects)

    @abstractmethod
    def less(self, effects: Array) -> "Scatter":
        """Return the rows without the effects of their covariates, (D, C)."""

    @abstractmethod
    def product(self, M: Array) -> Array:
        """Return `T @ M`, (D, .)."""

    def covariance_product(self, M: Array) -> Array:
        """Return `cov(x) @ M`, (D, .)."""
        return self.product(M) / self.n_rows

    def statistics(
        self, loadings: Loadings, psi: Array, mean: Array, effects: Array | None = None
    ) -> Statistics:
        """Return expected sufficient statistics of the rows, centred at their own mean.

        With `B = psi^-1 L A^-1` and `A = I + E[L' psi^-1 L]`: `sum_i r_i E[h_i]' = T B` and
        `sum_i E[h_i h_i'] = n A^-1 + B' T B`; covariates have `sum_i E[h_i] c_i' = B' T_rc`. The
        `n_outside` dimensions that were left out when the rows were reduced to their span hold
        noise alone, with variance `psi[0]`.
        """
        L, K = loadings.mean, loadings.mean.shape[1]
        scaled = L / psi[:, None]
        precision = L.T @ scaled
        precision.flat[:: K + 1] += 1.0
        if loadings.cov is not None:
            precision += loadings.cov.weighted_sum(1.0 / psi)
        # With A = C C' and loadings L C^-T, directions that the rows hardly have are small, not
        # differences of large products: nothing cancels even where there is next to no noise.
        C = dpotrf(precision, lower=True)[0]
        inverse = dtrtri(C, lower=True)[0] if K else C  # C^-1
        whitened = scaled @ inverse.T
        product, square, known = self.product(whitened), self.square, self.covariates
        if known is not None and effects is not None:
            change = effects - known.effects
            product = known.product(change, product, whitened)  # (D, K)
            square, known = known.square(change, square), known.less(change)
        inner = whitened.T @ product
        quadratic = float((square / psi).sum() - inner.trace())
        logdet = 2.0 * float(np.log(np.diagonal(C)).sum())
        n_features = len(psi) + self.n_outside
        log_psi = float(np.log(psi).sum()) + self.n_outside * float(np.log(psi[0]))
        bound = -0.5 * (self.n_rows * (n_features * LOG_2PI + log_psi + logdet) + quadratic)
        inner.flat[:: K + 1] += self.n_rows
        moment, cross = inverse.T @ inner @ inverse, product @ inverse
        pairs = latent = packed.pack(moment)
        if known is not None:
            mixed = inverse.T @ (whitened.T @ known.cross)  # (K, C)
            pairs = packed.pack(np.block([[moment, mixed], [mixed.T, known.second]]))
            cross = np.hstack([cross, known.cross])
        return Statistics(
            moment=pairs,
            first=np.zeros((cross.shape[1], 1)),
            cross=cross,
            residual=np.zeros(len(L)),
            square=square,
            weight=self.counts,
            entries=self.counts,
            latent=latent[:, 0],
            n_rows=self.n_rows,
            bound=bound,
        )


class DenseScatter(Scatter):
    """The scatter as a matrix."""

    def __init__(
        self,
        n_rows: float,
        mean: Array,
        matrix: Array,
        n_outside: int = 0,
        covariates: CovariateSums | None = None,
    ) -> None:
        self.n_rows, self.mean, self.matrix, self.n_outside = n_rows, mean, matrix, n_outside
        self.covariates = covariates
        self.square: Array = np.ascontiguousarray(np.diagonal(matrix))
        self.counts = np.full(len(matrix), n_rows)

    def less(self, effects: Array) -> "DenseScatter":
        """Return the rows without the effects of their covariates."""
        known = _known(self)
        change = effects - known.effects
        matrix = known.product(change, self.matrix, np.eye(len(self.matrix)))
        return DenseScatter(self.n_rows, self.mean, matrix, self.n_outside, known.less(change))

    def product(self, M: Array) -> Array:
        """`T @ M`."""
        return self.matrix @ M


class OperatorScatter(Scatter):
    """The scatter as an operator on the rows: a pass for each product."""

    def __init__(
        self,
        found: "Moments",
        reader: RowReader,
        weights: Array | None,
        covariates: CovariateSums | None = None,
    ) -> None:
        self.covariates = covariates
        self.n_rows, self.mean, self.square = found.n_rows, found.mean, found.square
        self.counts = np.full(len(found.mean), found.n_rows)
        self.reader, self.weights = reader, weights

        self.pivot = far_means(self.mean, self.square / self.n_rows)
        self.by_columns: Cache | None = None  # copies of sparse chunks for many products

    def with_columns(self) -> "OperatorScatter":
        """Return sparse rows in memory with a copy by columns in single precision: a pass.

        SciPy's products take half as long with it.
        """
        if self.reader.is_dense or not self.reader.in_memory:
            return self
        other, function = copy(self), partial(_by_columns, self.pivot)
        _, other.by_columns = self.reader.renew(function, add, weights=self.weights)
        return other

    def less(self, effects: Array) -> "OperatorScatter":
        """Return the rows without the effects of their covariates."""
        known, rest = _known(self), copy(self)
        change = effects - known.effects
        rest.covariates, rest.square = known.less(change), known.square(change, self.square)
        return rest

    def product(self, M: Floats) -> Array:
        """`T @ M`, in the precision of M, single or double."""
        centre: Floats = ((self.mean - self.pivot) @ M).astype(M.dtype)
        function = partial(_scatter_product, self.mean, self.pivot, centre, M)
        cache = self.by_columns if M.dtype == np.float32 else None
        product: Array = self.reader.reduce(
            function, np.add, weights=self.weights, cache=cache, squares=False
        )
        if self.covariates is None:
            return product
        effects = self.covariates.effects
        return self.covariates.less(-effects).product(effects, product, M)

    def random_combinations(self, n: int, rng: np.random.Generator) -> Array:
        """Return n random combinations of the centred rows, (D, n): half a product."""
        factors = rng.standard_normal((self.reader.shape[0], n))
        function = partial(_covariate_product, self.mean, self.pivot)
        return self.reader.reduce(
            function, np.add, weights=self.weights, covariates=factors, squares=False
        )


def _known(scatter: Scatter) -> CovariateSums:
    if scatter.covariates is None:
        raise ValueError("the rows have no covariates.")
    return scatter.covariates


def covariate_sums(
    reader: RowReader, found: "Moments", weights: Array | None, covariates: Array
) -> CovariateSums:
    """Sum the products of complete rows with their covariates: one pass."""
    mean = np.average(covariates, axis=0, weights=weights)
    centred = covariates - mean
    pivot = far_means(found.mean, found.square / found.n_rows)
    function = partial(_covariate_product, found.mean, pivot)
    cross = reader.reduce(function, np.add, weights=weights, covariates=centred)
    second = centred.T @ (centred if weights is None else weights[:, None] * centred)
    return CovariateSums(mean, cross, second, np.zeros_like(cross))


def _covariate_product(mean: Array, pivot: Array, chunk: Chunk) -> Array:
    rows, right = chunk.rows, np.asarray(chunk.covariates)
    right = right if chunk.weights is None else chunk.weights[:, None] * right
    if is_sparse(rows):
        moved = shift_columns(rows, pivot)
        return np.asarray(transposed(moved) @ right - np.outer(mean - pivot, right.sum(axis=0)))
    product: Array = np.zeros((len(mean), right.shape[1]))
    for at in row_slices(*rows.shape):
        product += (widen(rows[at]) - mean).T @ right[at]
    return product


class Copies(NamedTuple):
    """A chunk of sparse rows, about the pivot, as they are multiplied from the left and right."""

    by_rows: Sparse
    by_columns: Sparse | sp.csc_array | sp.csc_matrix


def _by_columns(pivot: Array, chunk: Chunk) -> tuple[int, Copies | None]:
    if not is_sparse(chunk.rows):
        return 0, None
    by_rows = shift_columns(chunk.rows, pivot, np.float32)
    return 0, Copies(by_rows, by_rows.tocsc())


def _scatter_product(mean: Array, pivot: Array, centre: Floats, M: Floats, chunk: Chunk) -> Array:
    rows, weights = chunk.rows, chunk.weights
    weights = None if weights is None else weights.astype(M.dtype, copy=False)
    if is_sparse(rows):
        moved = chunk.cached
        if moved is None:
            by_rows = shift_columns(rows, pivot, M.dtype)
            moved = Copies(by_rows, by_rows)
        inner = moved.by_columns @ M
        inner -= centre
        inner = inner if weights is None else weights[:, None] * inner
        return np.asarray(transposed(moved.by_rows) @ inner)  # rows of `inner` add up to zero
    product: Array = np.zeros(M.shape, M.dtype)
    for at in row_slices(*rows.shape):
        centred = (widen(rows[at]) - mean).astype(M.dtype, copy=False)
        inner = centred @ M
        product += centred.T @ (inner if weights is None else weights[at, None] * inner)
    return product


class RawSums(NamedTuple):
    """Sums of rows and of their outer products, about an origin near them."""

    origin: Array  # (D,)
    total: Array  # (D,); NaN where an entry is missing
    matrix: Array  # (D, D)


class Moments(NamedTuple):
    """Weighted moments of the observed entries, and of whole rows where nothing is missing."""

    n_rows: float  # weight of the rows that have an observed entry
    counts: Array  # (D,) weight of the observed entries
    mean: Array  # (D,)
    square: Array  # (D,) about the mean
    complete: bool  # whether nothing is missing
    n_empty: int = 0  # rows without any observed entry
    raw: RawSums | None = None  # None when not asked for, or entries are missing

    @property
    def scatter(self) -> Array:
        """Scatter of complete rows about their mean, (D, D)."""
        if self.raw is None:
            raise ValueError("rows with missing entries have no scatter; use MaskedRows.")
        centred: Array = np.outer(self.raw.total, self.raw.total / -self.n_rows)
        centred += self.raw.matrix  # in place: there may be many features
        return centred

    def plus(self, other: "Moments") -> "Moments":
        """Add the moments of other rows."""
        counts = self.counts + other.counts
        share = other.counts / np.maximum(counts, TINY)
        change, both = other.mean - self.mean, self.counts * share
        mean = self.mean + change * share
        return Moments(
            self.n_rows + other.n_rows,
            counts,
            mean,
            self.square + other.square + both * change**2,
            self.complete and other.complete,
            self.n_empty + other.n_empty,
            self._joint(other, mean, both * change, change),
        )

    def _joint(self, other: "Moments", mean: Array, scaled: Array, change: Array) -> RawSums | None:
        """Add raw sums: directly if they have the same origin, otherwise about the mean of both."""
        mine, its = self.raw, other.raw
        if mine is None or its is None:
            return None
        if np.array_equal(mine.origin, its.origin):
            return RawSums(mine.origin, mine.total + its.total, mine.matrix + its.matrix)
        matrix: Array = self.scatter
        matrix += other.scatter
        matrix += np.outer(scaled, change)
        return RawSums(mean, np.zeros(len(mean)), matrix)


def first_pass(reader: RowReader, weights: Array | None = None, *, scatter: bool) -> Moments:
    """Compute the moments of all rows, which are checked on the way."""
    function = partial(_moments, reader.checks.values, scatter)
    rows = reader.for_products() if scatter and len(reader.slices) > 1 else reader
    found = rows.reduce(function, Moments.plus, weights=weights)
    if not found.complete:
        reader.checks.counts(found.counts)
    return found


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows as a variance that is not finite
def _moments(check: Callable[[Matrix], None], scatter: bool, chunk: Chunk) -> Moments:  # noqa: FBT001
    """Compute a chunk's moments; with a scatter, rows are checked only if a sum is not finite."""
    rows, weights = chunk.rows, chunk.weights
    if not scatter:
        check(rows)
        return _column_moments(rows, weights)
    raw = raw_sums(rows, weights)
    if not np.isfinite(raw.total).all():
        check(rows)
        if has_missing(rows):
            return _column_moments(rows, weights)
    n = float(rows.shape[0] if weights is None else weights.sum())
    offset = raw.total / n
    square = np.diagonal(raw.matrix) - n * offset**2
    counts = np.full(rows.shape[1], n)
    mean, complete = raw.origin + offset, True
    return Moments(n, counts, mean, square, complete, raw=raw)


def _column_moments(rows: Matrix, weights: Array | None) -> Moments:
    if is_sparse(rows) and not has_missing(rows):
        return _sparse_moments(rows, weights)
    return reduce(
        Moments.plus,
        (
            _slice_moments(widen(rows[at]), None if weights is None else weights[at])
            for at in row_slices(*rows.shape)
        ),
    )


def _slice_moments(rows: Array, weights: Array | None) -> Moments:
    seen = ~np.isnan(rows)
    w = np.ones(len(rows)) if weights is None else weights
    counts, complete = w @ seen, bool(seen.all())
    filled = rows if complete else np.where(seen, rows, 0.0)
    total = filled.sum(axis=0) if weights is None else w @ filled
    mean = total / np.maximum(counts, TINY)
    centred = np.where(seen, rows - mean, 0.0)
    square = (centred**2).sum(axis=0) if weights is None else w @ centred**2
    some = seen.any(axis=1)
    return Moments(float(w @ some), counts, mean, square, complete, int((~some).sum()))


def _sparse_moments(rows: Sparse, weights: Array | None) -> Moments:
    ones = np.ones(rows.shape[0]) if weights is None else weights
    n = float(ones.sum())
    wide = shift_columns(rows, np.zeros(rows.shape[1]))
    total, square = _sparse_sums(wide, ones)
    pivot = far_means(total / n, square / n - (total / n) ** 2)
    if pivot.any():
        total, square = _sparse_sums(shift_columns(wide, pivot), ones)
    square = np.maximum(square - total**2 / n, 0.0)
    return Moments(n, np.full(rows.shape[1], n), pivot + total / n, square, complete=True)


def _sparse_sums(X: Sparse, weights: Array) -> tuple[Array, Array]:
    """Return the sums of the entries of rows and of their squares, both (D,)."""
    return transposed(X) @ weights, transposed(squared(X)) @ weights


def raw_sums(X: Matrix, weights: Array | None = None) -> RawSums:
    """Sum complete rows, about zero where this loses no digits.

    Sums within a block of centred rows are taken in the data's precision, over blocks in float64:
    as accurate as widening everything, at half the cost for float32. Weighted rows are widened.
    """
    if is_sparse(X):
        return _raw_sums_sparse(X, weights)
    shift = _shift(X)
    total, matrix, buffer = np.zeros(X.shape[1]), None, None
    for at in row_slices(*X.shape, elements=PRODUCT_ENTRIES, most=WIDE_ROWS):
        centred = scaled = X[at]
        if shift is not None:
            buffer = np.empty_like(centred) if buffer is None else buffer
            centred = scaled = np.subtract(centred, shift, out=buffer[: at.stop - at.start])
        if weights is not None:
            centred = widen(centred)
            scaled = centred * weights[at, None]
        total += _column_sums(scaled)
        if np.isnan(total).any():
            break  # rows with missing entries have no scatter, and the total says so
        product = scaled.T @ centred
        if matrix is None:
            matrix = product.astype(np.float64, copy=False)
        else:
            matrix += product
    origin = np.zeros(X.shape[1]) if shift is None else shift.astype(np.float64)
    return RawSums(origin, total, np.zeros((0, 0)) if matrix is None else matrix)


def _shift(X: Dense) -> Array | None:
    """Estimate the mean from the first rows, in the data's precision; None if it is near zero.

    Columns whose means are within a standard deviation of zero lose no digits and are not moved.
    """
    first = np.asarray(X[:FIRST_ROWS], dtype=np.float64)
    mean = first.mean(axis=0)
    near = 2.0 * mean**2 <= np.einsum("nd,nd->d", first, first) / len(first)
    return None if near.all() else np.where(near, 0.0, mean).astype(X.dtype)


def _column_sums(rows: Dense) -> Array:
    """Sum a few rows at a time in the data's precision, and those sums in double."""
    ones = np.ones(SUMMED_AT_ONCE, dtype=rows.dtype)
    even = len(rows) // len(ones) * len(ones)
    sums = np.matmul(ones, rows[:even].reshape(-1, len(ones), rows.shape[1]))
    total: Array = sums.sum(axis=0, dtype=np.float64)
    if even < len(rows):
        total += ones[: len(rows) - even] @ rows[even:]
    return total


def _raw_sums_sparse(X: Sparse, weights: Array | None) -> RawSums:
    moved, pivot = centre_sparse(X, weights)
    scaled = moved if weights is None else sp.csr_array(moved.multiply(weights[:, None]))
    total = np.asarray(scaled.sum(axis=0), dtype=np.float64)
    return RawSums(pivot, total, (scaled.T @ moved).toarray())


def centre_sparse(X: Sparse, weights: Array | None) -> tuple[Sparse, Array]:
    """Subtract the means of the columns that are far from zero; return these, (D,), too.

    Sums of squares about zero would cancel there. Of such a column nearly all entries are stored:
    if a share f is, `mean^2 <= var f / (1 - f)`, so that at most one in `FAR` is added.
    """
    wide = shift_columns(X, np.zeros(X.shape[1]))
    ones = np.ones(X.shape[0]) if weights is None else weights
    n = float(ones.sum())
    total, square = _sparse_sums(wide, ones)
    pivot = far_means(total / n, square / n - (total / n) ** 2)
    return shift_columns(wide, pivot), pivot


def squared(X: Sparse) -> Sparse:
    """Return the squares of the entries."""
    return sp.csr_array((X.data**2, X.indices, X.indptr), shape=X.shape)


def far_means(mean: Array, variance: Array) -> Array:
    """Means of the columns that are far from zero, in their standard deviations; zero elsewhere."""
    return np.where(mean**2 > FAR * variance, mean, 0.0)
