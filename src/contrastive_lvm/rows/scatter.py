"""Complete rows, compressed: the number of rows, their mean and their scatter.

The scatter `T = sum_i (x_i - mean)(x_i - mean)'` enters the model only through its diagonal and
through products `T @ M` with a few columns, so three kinds of data share one interface:

- `DenseScatter`: the (D, D) matrix, formed in one pass; iterations no longer depend on n;
- `RowScatter`: the rows themselves, `T M = Xc' (Xc M)`, for many features; sparse rows are
  centred implicitly, `T M = X' (X M) - n mean (mean' M)`, and stay sparse;

With fewer rows than features and isotropic noise, `span.reduce_to_span` first replaces the rows by
their coordinates in an orthonormal basis of their span.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from contrastive_lvm.arrays import Array, Matrix, Statistics
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import is_sparse, row_slices, widen
from contrastive_lvm.rows.masked_rows import LOG_2PI

SUMMED_AT_ONCE = 128  # rows whose sum loses no digits that a float32 has
WIDE_BLOCK = 1 << 21  # entries: products of narrow matrices want more rows than other work
WIDE_ROWS = 8192  # most rows of such a block
FIRST_ROWS = 64  # that say about where the others are
MOST_FEATURES = 3000  # above, products with the rows are cheaper than forming a (D, D) matrix


class Scatter(Protocol):
    """What the complete-data steps need to know of a row set."""

    @property
    def n_rows(self) -> int:
        """Rows compressed."""
        ...

    @property
    def mean(self) -> Array:
        """Their mean, (D,)."""
        ...

    @property
    def diagonal(self) -> Array:
        """Diagonal of the scatter, (D,)."""
        ...

    def product(self, M: Array) -> Array:
        """`T @ M`, (D, .)."""
        ...


class DenseScatter(NamedTuple):
    """The scatter as a matrix."""

    n_rows: int
    mean: Array
    matrix: Array

    @property
    def diagonal(self) -> Array:
        """Its diagonal, (D,)."""
        return np.ascontiguousarray(np.diagonal(self.matrix))

    def product(self, M: Array) -> Array:
        """`T @ M`."""
        return self.matrix @ M


class RowScatter(NamedTuple):
    """The scatter as an operator on the rows it comes from."""

    n_rows: int
    mean: Array
    diagonal: Array
    rows: Matrix

    def product(self, M: Array) -> Array:
        """`T @ M`, a block of rows at a time."""
        out = np.zeros_like(M)
        if not is_sparse(self.rows):
            for rows in row_slices(*self.rows.shape):
                centred = widen(self.rows[rows]) - self.mean
                out += centred.T @ (centred @ M)
            return out
        for block in sparse_blocks(self.rows):
            out += block.T @ (block @ M)
        return out - self.n_rows * np.outer(self.mean, self.mean @ M)


def sparse_blocks(X: Matrix) -> Iterator[Matrix]:
    """Row blocks of a CSR matrix as float64; the matrix itself when it is float64 already."""
    if X.dtype == np.float64:
        yield X
        return
    stored_in_a_row = X.nnz // max(1, X.shape[0]) + 1
    for rows in row_slices(X.shape[0], stored_in_a_row, most=X.shape[0]):
        yield X[rows].astype(np.float64)


def summarise(X: Matrix, *, dense: bool) -> Scatter:
    """Compress complete rows in one pass; rows with gaps leave NaN in a dense scatter's mean."""
    if not dense:
        return _summarise_sparse(X) if is_sparse(X) else _row_scatter(X)
    raw = raw_sums(X)
    offset = raw.total / X.shape[0]
    if not np.isnan(offset).any():
        raw.matrix[...] -= X.shape[0] * np.outer(offset, offset)
    return DenseScatter(X.shape[0], raw.origin + offset, raw.matrix)


class RawSums(NamedTuple):
    """Of rows and of their outer products, about an origin near them."""

    origin: Array  # (D,)
    total: Array  # (D,); NaN where a row has gaps
    matrix: Array  # (D, D)


def raw_sums(X: Matrix) -> RawSums:
    """Sums of complete rows; about zero where nothing cancels there."""
    if is_sparse(X):
        return _raw_sums_sparse(X)
    shift = _shift(X)
    total, matrix, buffer = np.zeros(X.shape[1]), None, None
    for rows in row_slices(*X.shape, elements=WIDE_BLOCK, most=WIDE_ROWS):
        # Sums within a block of centred rows in the data's precision, over blocks in float64:
        # as accurate as widening everything, at half the cost for float32.
        centred = X[rows]
        if shift is not None:
            buffer = np.empty_like(centred) if buffer is None else buffer
            centred = np.subtract(centred, shift, out=buffer[: rows.stop - rows.start])
        total += _column_sums(centred)
        if np.isnan(total).any():
            break  # rows with gaps have no scatter, and the total says so
        product = centred.T @ centred
        if matrix is None:
            matrix = product.astype(np.float64, copy=False)
        else:
            matrix += product
    origin = np.zeros(X.shape[1]) if shift is None else shift.astype(np.float64)
    return RawSums(origin, total, np.zeros((0, 0)) if matrix is None else matrix)


def _shift(X: Matrix) -> Array | None:
    """About what the first rows are, in the data's precision; None if that is near zero.

    About means within a standard deviation of zero nothing cancels, so nothing need be moved.
    """
    first = widen(X[:FIRST_ROWS])
    mean = first.mean(axis=0)
    near = 2.0 * mean**2 <= np.einsum("nd,nd->d", first, first) / len(first)
    return None if near.all() else np.where(near, 0.0, mean).astype(X.dtype)


def _column_sums(rows: Matrix) -> Array:
    """Sums of a few rows in the data's precision, added up in double."""
    ones = np.ones(SUMMED_AT_ONCE, dtype=rows.dtype)
    even = len(rows) // len(ones) * len(ones)
    sums = np.matmul(ones, rows[:even].reshape(-1, len(ones), rows.shape[1]))
    total: Array = sums.sum(axis=0, dtype=np.float64)
    if even < len(rows):
        total += ones[: len(rows) - even] @ rows[even:]
    return total


def _row_scatter(X: Matrix) -> RowScatter:
    shift = widen(X[:1])[0]
    total, square = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for rows in row_slices(*X.shape):
        total += (widen(X[rows]) - shift).sum(axis=0)
    mean = shift + total / len(X)
    for rows in row_slices(*X.shape):
        square += ((widen(X[rows]) - mean) ** 2).sum(axis=0)
    return RowScatter(len(X), mean, square, X)


def _raw_sums_sparse(X: Matrix) -> RawSums:
    D = X.shape[1]
    total, matrix = np.zeros(D), np.zeros((D, D))
    for block in sparse_blocks(X):
        total += np.asarray(block.sum(axis=0)).ravel()
        matrix += (block.T @ block).toarray()
    return RawSums(np.zeros(D), total, matrix)


def _summarise_sparse(X: Matrix) -> RowScatter:
    n = X.shape[0]
    mean, square = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for block in sparse_blocks(X):
        mean += np.asarray(block.sum(axis=0)).ravel() / n
        square += np.asarray(block.multiply(block).sum(axis=0)).ravel()
    return RowScatter(n, mean, np.maximum(square - n * mean**2, 0.0), X)


def statistics(data: Scatter, loadings: Loadings, psi: Array, n_features: int) -> Statistics:
    """Expected sufficient statistics of complete rows, centred at their own mean.

    With `B = psi^-1 L A^-1` and `A = I + E[L' psi^-1 L]`: `sum_i r_i E[h_i]' = T B` and
    `sum_i E[h_i h_i'] = n A^-1 + B' T B`. `n_features` exceeds `len(L)` when the rows were
    reduced to their span; the dimensions left out hold noise alone, with variance `psi[0]`.
    """
    L, K = loadings.mean, loadings.mean.shape[1]
    scaled = L / psi[:, None]
    precision = np.eye(K) + L.T @ scaled
    if loadings.cov is not None:
        precision += loadings.cov.weighted_sum(1.0 / psi)
    cov = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    logdet = float(np.linalg.slogdet(precision)[1])
    product = data.product(scaled)  # (D, K)
    inner = scaled.T @ product
    quadratic = float((data.diagonal / psi).sum() - (cov * inner).sum())
    log_psi = float(np.log(psi).sum()) + (n_features - len(psi)) * float(np.log(psi[0]))
    bound = -0.5 * (data.n_rows * (n_features * LOG_2PI + log_psi + logdet) + quadratic)
    moment = packed.pack(data.n_rows * cov + cov @ inner @ cov)
    return Statistics(
        moment=moment,
        first=np.zeros((K, 1)),
        cross=product @ cov,
        residual=np.zeros(len(L)),
        square=data.diagonal,
        weight=np.full(len(L), float(data.n_rows)),
        entries=np.full(len(L), float(data.n_rows)),
        latent=moment[:, 0],
        n_rows=data.n_rows,
        bound=bound,
    )
