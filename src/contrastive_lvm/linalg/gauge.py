"""One canonical answer: rotation, order and signs of the loadings.

The likelihood depends on `S` and `W` through `S S'` and `W W'` only, so each block is reported
with orthogonal columns, ordered by the variance they explain, the largest loading of each column
positive. Two fits that reach one optimum then give the same numbers. A prior that singles out
columns (ARD) keeps its own columns; they are ordered and signed.

Rotations to simple structure are for readers who want few large loadings in each column.
"""

import numpy as np

from contrastive_lvm.arrays import Array

MOST_ROTATIONS = 1000  # steps of varimax, of which well separated columns take ten
PROMAX_POWER = 4  # of the varimax loadings, as in Hendrickson & White (1964)
TIE = 1e-6  # loadings this close to the largest, relatively, count as largest: the first decides


def canonical(block: Array) -> Array:
    """A (D, K) block of loadings rotated to orthogonal, ordered, signed columns.

    >>> import numpy as np
    >>> turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    >>> canonical(np.array([[-3.0, 0.0], [0.0, 2.0], [0.0, 0.0]]) @ turn).round(12) + 0.0
    array([[3., 0.],
           [0., 2.],
           [0., 0.]])
    """
    return np.ascontiguousarray(block @ canonical_rotation(block))


def canonical_rotation(block: Array, *, keep_columns: bool = False) -> Array:
    """The (..., K, K) orthogonal matrices that bring (..., D, K) blocks to their canonical form."""
    K = block.shape[-1]
    if K == 0:
        return np.empty((*block.shape[:-2], 0, 0))
    if keep_columns:
        R = np.eye(K)[np.argsort(-(block**2).sum(axis=-2), kind="stable")]
    else:
        R = np.linalg.svd(np.linalg.qr(block, mode="r"))[2]
    R = np.swapaxes(R, -1, -2)
    return np.ascontiguousarray(R * signs(block @ R)[..., None, :])


def signs(block: Array) -> Array:
    """What makes the largest entry of each column of (..., D, K) blocks positive, (..., K)."""
    size = np.abs(block)
    largest = (size >= (1.0 - TIE) * size.max(axis=-2, keepdims=True)).argmax(axis=-2)
    found = np.take_along_axis(block, largest[..., None, :], axis=-2)[..., 0, :]
    return np.where(found < 0, -1.0, 1.0)


def signed(block: Array) -> Array:
    """Columns with their largest entry positive."""
    return np.ascontiguousarray(block * signs(block))


def varimax(block: Array) -> Array:
    """Return the rotation, (K, K), under which squared loadings vary most within columns.

    The criterion of Kaiser (1958) without his weights of rows, `sum_k var_d(l_dk^2)`, raised by the
    orthogonal matrix nearest to its gradient until it stands still.

    >>> import numpy as np
    >>> turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    >>> simple = np.array([[3.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 1.0]])
    >>> (simple @ turn @ varimax(simple @ turn)).round(6) + 0.0
    array([[3., 0.],
           [2., 0.],
           [0., 2.],
           [0., 1.]])
    """
    R, reached = np.eye(block.shape[1]), 0.0
    for _ in range(MOST_ROTATIONS):
        rotated = block @ R
        gradient = block.T @ (rotated**3 - rotated * (rotated**2).mean(axis=0))
        U, sizes, Vt = np.linalg.svd(gradient)
        R = U @ Vt
        if sizes.sum() <= reached * (1.0 + 1e-12):
            break
        reached = float(sizes.sum())
    return _ordered(block, R)


def promax(block: Array) -> Array:
    """Return the transformation, (K, K), to columns that are simpler still, of correlated latents.

    The varimax loadings, raised to a power that keeps their signs, are what the loadings are fitted
    to by least squares (Hendrickson & White 1964). `h' = A^-1 h` then has unit variances and the
    correlations `(A' A)^-1`.
    """
    R = varimax(block)
    simple = block @ R
    U = np.linalg.lstsq(simple, simple * np.abs(simple) ** (PROMAX_POWER - 1), rcond=None)[0]
    A = R @ (U * np.sqrt(np.diagonal(np.linalg.inv(U.T @ U))))
    return _ordered(block, A)


def _ordered(block: Array, A: Array) -> Array:
    """Return the transformation with columns of its result ordered by size and signed."""
    A = A[:, np.argsort(-((block @ A) ** 2).sum(axis=0), kind="stable")]
    return np.ascontiguousarray(A * signs(block @ A))


ROTATIONS = {"varimax": varimax, "promax": promax}
