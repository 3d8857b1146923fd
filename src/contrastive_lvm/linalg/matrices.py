"""Matrices of rows, dense or sparse, a chunk of rows at a time.

A chunk never exceeds `BLOCK_ELEMENTS` entries, whatever the data's shape, kind or precision, so
float32 and sparse input are widened to dense float64 a chunk at a time and never as a whole.
"""

import mmap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from contrastive_lvm.arrays import Array, Dense, Matrix, Sparse

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Rows = TypeVar("Rows", Dense, Matrix)
BLOCK_ELEMENTS = 1 << 19  # of a block: 4 MB in double precision
SMALL_BLOCK = 1 << 17  # entries of a block where a few arrays of its size live at once
MOST_ROWS = 2048  # per-row K x K work stays in cache
LEAST_SHARE = 1e-9  # of a column's sum of squares; if others leave less, they determine it


def is_sparse(X: object) -> "TypeIs[Sparse]":
    """Tell whether rows are a sparse matrix or array of SciPy, which is CSR once it is read."""
    return bool(sp.issparse(X))


def row_slices(
    n_rows: int, n_features: int, *, elements: int = BLOCK_ELEMENTS, most: int = MOST_ROWS
) -> Iterator[slice]:
    """Yield consecutive slices of rows, each of at most `elements` entries (or one row)."""
    size = max(1, min(most, elements // max(1, n_features)))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def release(X: Any, rows: slice) -> None:
    """Give back the pages of rows of a memory map, which count as this process's memory.

    They stay in the system's cache. Pages of a map that is private to the process
    (`mode="c"`) may hold changes, and are kept.
    """
    if getattr(X, "mode", "c") == "c" or not hasattr(mmap, "MADV_DONTNEED"):
        return
    pages = X
    while isinstance(pages, np.ndarray):
        pages = pages.base
    if not isinstance(pages, mmap.mmap):
        return
    if not X.flags.c_contiguous:  # rows are spread over all pages
        pages.madvise(mmap.MADV_DONTNEED)
        return
    begin = X[rows].ctypes.data - np.frombuffer(pages, np.uint8).ctypes.data
    first = begin // mmap.PAGESIZE * mmap.PAGESIZE
    end = begin + X.strides[0] * (rows.stop - rows.start)
    pages.madvise(mmap.MADV_DONTNEED, first, end - first)


def blocks(X: Rows) -> Iterator[tuple[slice, Rows]]:
    """Yield blocks of consecutive rows; the memory of a map's block is given back after its use."""
    for rows in row_slices(*X.shape):
        yield rows, X[rows]
        release(X, rows)


def densify(rows: Matrix) -> Dense:
    """Return rows as an array in their own precision; a copy if they are sparse."""
    dense: Dense = rows.toarray() if is_sparse(rows) else rows
    return dense


def widen(rows: Matrix) -> Array:
    """Return a block as dense float64; NaN stays NaN."""
    return np.asarray(rows.toarray() if is_sparse(rows) else rows, dtype=np.float64)


def stacked(parts: Sequence[Matrix]) -> Matrix:
    """Join blocks to one array, or to one CSR matrix where they are sparse."""
    if any(is_sparse(part) for part in parts):
        return sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts]))
    return parts[0] if len(parts) == 1 else np.concatenate([densify(part) for part in parts])


def sparse_rows(X: Sparse, rows: slice) -> Sparse:
    """Return consecutive rows of a CSR matrix, without copying their entries."""
    first, last = X.indptr[rows.start], X.indptr[rows.stop]
    indptr = X.indptr[rows.start : rows.stop + 1] - first
    shape = (rows.stop - rows.start, X.shape[1])
    return _csr(X.data[first:last], X.indices[first:last], indptr, shape)


def transposed(X: Sparse) -> sp.csc_array:
    """Return the transpose of a CSR matrix, which may be a part of a larger one, without a copy."""
    found = sp.csc_array((X.shape[1], X.shape[0]), dtype=X.dtype)
    found.data, found.indices, found.indptr = X.data, X.indices, X.indptr
    return found


def _csr(
    data: Array, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]
) -> sp.csr_array:
    """Return a CSR array of these parts; the constructor copies parts of larger arrays."""
    found = sp.csr_array(shape, dtype=data.dtype)
    found.data, found.indices, found.indptr = data, indices, indptr
    return found


def shift_columns(X: Sparse, pivot: Array, dtype: DTypeLike = np.float64) -> Sparse:
    """Subtract a pivot from every row, in float64; columns with a pivot are stored in full.

    The result has the given precision.
    """
    columns = np.flatnonzero(pivot)
    first = np.float64 if len(columns) else dtype
    # `astype` of a sparse array copies indices too.
    wide = _csr(X.data.astype(first, copy=False), X.indices, X.indptr, X.shape)
    if not len(columns):
        return wide
    n_rows, n = X.shape[0], len(columns)
    indptr = np.arange(0, n_rows * n + 1, n)
    parts = (np.tile(pivot[columns], n_rows), np.tile(columns, n_rows), indptr)
    moved = sp.csr_array(wide - sp.csr_array(parts, shape=wide.shape))
    moved.data = moved.data.astype(dtype, copy=False)
    return moved


def own_rows(rows: Matrix) -> Matrix:
    """Return rows that do not keep alive the block of which they are a part."""
    return rows if is_sparse(rows) else rows.copy()


def missing_mask(rows: Matrix) -> np.ndarray:
    """Return True where an entry is NaN; entries that a sparse matrix does not store are zeros."""
    return np.isnan(widen(rows))


def has_missing(X: Matrix) -> bool:
    """Tell whether any entry is NaN, given that all are finite or NaN."""
    if not isinstance(X, np.memmap):
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite((X.data if is_sparse(X) else X).sum()):
                return False
    if is_sparse(X):
        return bool(np.isnan(X.data).any())
    return any(bool(np.isnan(rows).any()) for _, rows in blocks(X))


class RowBlock(NamedTuple):
    """Rows with their missingness patterns: rows that miss the same entries share one pattern."""

    values: Array  # (B, D) zeros where missing
    observed: Array  # (P, D) 0/1
    pattern: np.ndarray  # (B,) pattern of each row


def patterns_of(missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows of a boolean mask, as (index of a representative row, pattern of each row)."""
    bits = np.ascontiguousarray(np.packbits(missing, axis=1))
    keys = bits.view([("bits", np.void, bits.shape[1])]).ravel()
    _, representative, pattern = np.unique(keys, return_index=True, return_inverse=True)
    return representative, pattern.ravel()


def make_block(rows: Matrix) -> RowBlock:
    """Return a block of rows as zero-filled values, distinct patterns and their index."""
    values = widen(rows)
    missing = np.isnan(values)
    if not missing.any():
        everything = np.ones((1, values.shape[1]))
        return RowBlock(values, everything, np.zeros(len(values), dtype=np.intp))
    representative, pattern = patterns_of(missing)
    if len(representative) == len(values):  # every row has its own: keep the rows' order
        representative = pattern = np.arange(len(values))
    observed = (~missing[representative]).astype(np.float64)
    return RowBlock(np.where(missing, 0.0, values), observed, pattern)


def column_means(X: Matrix) -> Array:
    """Means of the observed entries of each column, (D,); zero where there is none."""
    total, count = column_sums(X)
    means: Array = total / np.maximum(count, 1.0)
    return means


def column_sums(X: Matrix) -> tuple[Array, Array]:
    """Sums and numbers of the observed entries of each column, both (D,)."""
    total, count = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for _, rows in blocks(X):
        block = widen(rows)
        total += np.nansum(block, axis=0)
        count += (~np.isnan(block)).sum(axis=0)
    return total, count


def column_variances(X: Matrix) -> tuple[Array, Array]:
    """Variances and means of the observed entries of each column, both (D,)."""
    mean, count, square = column_means(X), np.zeros(X.shape[1]), np.zeros(X.shape[1])
    with np.errstate(over="ignore"):  # an overflow shows as a variance that is not finite
        for _, rows in blocks(X):
            block = widen(rows) - mean
            count += (~np.isnan(block)).sum(axis=0)
            square += np.nansum(block**2, axis=0)
    variances: Array = square / np.maximum(count, 1.0)
    return variances, mean


def first_determined(matrix: Array, sizes: Array) -> int | None:
    """Return the first column that those before it determine; None if there is none.

    The matrix has the columns' inner products. The part of a column that those before it leave
    unexplained is the square of its pivot in a Cholesky factor, which is compared with the column's
    size, (C,).
    """
    left = matrix.copy()
    for j in range(len(left)):
        if left[j, j] <= LEAST_SHARE * sizes[j]:
            return j
        left[j:, j:] -= np.outer(left[j:, j], left[j, j:]) / left[j, j]
    return None


def column_space(M: Array) -> Array:
    """Return an orthonormal basis of the columns of a matrix, without directions of nearly zero.

    Examples
    --------
    >>> column_space(np.array([[3.0, 3.0], [0.0, 0.0]])).shape, column_space(np.zeros((2, 1))).shape
    ((2, 1), (2, 0))
    """
    U, s, _ = np.linalg.svd(M, full_matrices=False)
    return np.asarray(U[:, s > 1e-10 * max(float(s.max(initial=0.0)), 1e-300)])
