"""Many small symmetric positive definite matrices at once, packed and rows-last.

A stack of P symmetric K x K matrices is stored as `(Q, P)`: row q of the lower triangle, one
matrix a column. The loops below run over K and every operation is a long vector over the
stack, which is several times faster than a LAPACK call per matrix at K of 2 to 30. From
Q = K (K + 1) / 2 follows that K is the integer part of the root of 2 Q.
"""

from functools import cache
from math import isqrt

import numpy as np

from contrastive_lvm.arrays import Array


@cache
def pair_indices(K: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each packed entry, the lower triangle row by row."""
    rows, columns = np.tril_indices(K)
    rows.flags.writeable = columns.flags.writeable = False
    return rows, columns


@cache
def full_index(K: int) -> np.ndarray:
    """The (K, K) array of packed positions: `packed[full_index(K)]` unpacks."""
    rows, columns = pair_indices(K)
    index = np.empty((K, K), dtype=np.intp)
    index[rows, columns] = index[columns, rows] = np.arange(len(rows))
    index.flags.writeable = False
    return index


def pair_positions(K: int, columns: np.ndarray) -> np.ndarray:
    """Packed positions, among K columns, of the pairs of some columns in increasing order."""
    i, j = pair_indices(len(columns))
    positions: np.ndarray = full_index(K)[columns[i], columns[j]]
    return positions


def pack(matrix: Array) -> Array:
    """Lower triangle of a (K, K) matrix as a (Q, 1) column."""
    column: Array = matrix[pair_indices(len(matrix))][:, None]
    return column


def pack_products(rows: Array, scale: Array) -> Array:
    """Packed `scale_d l_d l_d'` for every row `l_d` of a (D, K) array, as (Q, D)."""
    i, j = pair_indices(rows.shape[1])
    transposed = np.ascontiguousarray(rows.T)
    products: Array = transposed[i] * transposed[j] * scale
    return products


def unpack(packed: Array) -> Array:
    """Unpack (Q, P) to (P, K, K)."""
    full = packed[full_index(isqrt(2 * len(packed)))]  # (K, K, P)
    return np.ascontiguousarray(full.transpose(2, 0, 1))


def invert(packed: Array, out: Array | None = None) -> tuple[Array, Array]:
    """Return packed inverses and log-determinants, by Cholesky `A = C C'`, `A^-1 = C^-T C^-1`.

    The inverses are written to `out`, which may be the stack itself.

    >>> import numpy as np
    >>> inverse, logdet = invert(np.array([[2.0], [0.0], [4.0]]))
    >>> inverse.ravel(), float(logdet[0].round(4))
    (array([0.5 , 0.  , 0.25]), 2.0794)
    """
    K = isqrt(2 * len(packed))
    C = np.empty((0, 0, packed.shape[1]))
    if K:
        C = _cholesky(_unpacked(packed, K))
    logdet = 2.0 * np.log(np.einsum("iip->ip", C)).sum(axis=0)
    X = _triangular_inverse(C)
    inverse = np.empty_like(packed) if out is None else out
    for i in range(K):
        start = i * (i + 1) // 2
        row = inverse[start : start + i + 1]
        np.einsum("kp,kjp->jp", X[i:, i], X[i:, : i + 1], out=row)
    return inverse, logdet


def _unpacked(packed: Array, K: int) -> Array:
    """Expand (Q, P) to (K, K, P)."""
    full: Array = packed.take(full_index(K), axis=0, mode="clip")  # twice as fast as indexing
    return full


def pairwise_products(left: Array, right: Array) -> Array:
    """Packed `left_i right_j` of (K, P) vectors, (Q, P)."""
    i, j = pair_indices(len(left))
    products: Array = left.take(i, axis=0, mode="clip")
    products *= right.take(j, axis=0, mode="clip")
    return products


def _cholesky(A: Array) -> Array:
    """Compute lower factors of a (K, K, P) stack in place, column by column."""
    for j in range(len(A)):
        if j:
            A[j:, j] -= np.einsum("ikp,kp->ip", A[j:, :j], A[j, :j])
        A[j:, j] /= np.sqrt(A[j, j])
    return A


def _triangular_inverse(C: Array) -> Array:
    """Inverses of lower triangular (K, K, P) factors, row by row (zeros above the diagonal)."""
    X: Array = np.zeros(C.shape)
    for i in range(len(C)):
        X[i, i] = 1.0 / C[i, i]
        if i:
            np.einsum("kp,kjp->jp", C[i, :i], X[:i, :i], out=X[i, :i])
            X[i, :i] *= -X[i, i]
    return X


def multiply(packed: Array, vectors: Array) -> Array:
    """Return `A_p v_p` for a (Q, P) stack and (K, P) vectors."""
    product: Array = np.einsum("ijp,jp->ip", _unpacked(packed, len(vectors)), vectors)
    return product
