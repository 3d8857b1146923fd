"""Checks of sparse matrices that users pass in, whose indices SciPy's routines would trust.

A matrix of SciPy that was built from its parts, or read from a file, may hold indices outside of
its shape, pointers that are out of order, or a shape that only its header claims.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from contrastive_lvm.arrays import Sparse
from contrastive_lvm.exceptions import InvalidDataError

# More rows or columns than that (a vector over them takes 34 MB) must be supported by entries.
MOST_EMPTY = 1 << 22


def as_csr(X: Any, name: str) -> Sparse:
    """Check a sparse matrix of any format, and return it as CSR with sorted, distinct indices.

    Duplicates are added up, as SciPy defines them. The matrix itself is not changed.
    """
    _check_kind(X.dtype, name)
    if X.format in ("csr", "csc"):
        axis = 0 if X.format == "csr" else 1
        check_compressed(name, X.data, X.indices, X.indptr, X.shape, axis=axis)
    elif X.format == "bsr":
        blocks = tuple(n // b for n, b in zip(X.shape, X.blocksize, strict=True))
        check_compressed(name, X.data, X.indices, X.indptr, blocks)
    elif X.format == "coo":
        for axis in (0, 1):
            _check_indices(name, (X.row, X.col)[axis], X.shape[axis], len(X.data))
    else:  # dia, dok and lil have no indices that only SciPy's own routines see
        _check_claims(name, X.shape, X.nnz)
    found = (X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)).tocsr()
    fresh = sp.csr_array((found.data, found.indices, found.indptr), shape=found.shape)
    if not fresh.has_canonical_format:
        fresh = fresh.copy()
        fresh.sum_duplicates()
    return fresh


def check_compressed(
    name: str, data: Any, indices: Any, indptr: Any, shape: tuple[int, ...], *, axis: int = 0
) -> None:
    """Refuse parts of a CSR (`axis=0`) or CSC (`axis=1`) matrix that contradict one another.

    The parts are arrays as they were stored; call this before a matrix is made of them. Errors
    begin with `name`, the argument or the file.
    """
    if np.ndim(indptr) != 1 or np.asarray(indptr).dtype.kind not in "iu":
        raise _damaged(name, "has pointers that are not a list of whole numbers")
    if len(indptr) != shape[axis] + 1:
        things = ("rows", "columns")[axis]
        raise _damaged(name, f"has {shape[axis]} {things}, but pointers of {len(indptr) - 1}")
    if indptr[0] != 0 or (np.diff(np.asarray(indptr).astype(np.int64)) < 0).any():
        raise _damaged(name, "has pointers that do not increase from 0")
    if indptr[-1] != len(data):
        raise _damaged(name, f"has {len(data)} entries, but pointers to {indptr[-1]}")
    _check_indices(name, indices, shape[1 - axis], len(data))


def _check_indices(name: str, indices: np.ndarray, size: int, n_entries: int) -> None:
    if np.ndim(indices) != 1 or np.asarray(indices).dtype.kind not in "iu":
        raise _damaged(name, "has indices that are not a list of whole numbers")
    if len(indices) != n_entries:
        raise _damaged(name, f"has {n_entries} entries, but {len(indices)} indices")
    if n_entries and (np.min(indices) < 0 or np.max(indices) >= size):
        wrong = np.min(indices) if np.min(indices) < 0 else np.max(indices)
        raise _damaged(name, f"has the index {wrong} in an axis of length {size}")
    _check_claims(name, (size,), n_entries)


def _check_claims(name: str, sizes: tuple[int, ...], n_entries: int) -> None:
    """Refuse a shape that the stored entries do not support, before it is allocated."""
    if max(sizes) > n_entries + MOST_EMPTY:
        reason = (
            f"claims {max(sizes)} rows or columns, but stores {n_entries} entries; "
            "leave out what is empty."
        )
        raise InvalidDataError(name, reason)


def _check_kind(dtype: np.dtype, name: str) -> None:
    if np.dtype(dtype).kind not in "biuf":
        reason = f"has dtype {dtype}, which is not of real numbers; convert it to float."
        raise InvalidDataError(name, reason)


def _damaged(name: str, what: str) -> InvalidDataError:
    return InvalidDataError(name, f"is a damaged sparse matrix: it {what}; build or save it again.")
