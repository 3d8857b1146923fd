"""One canonical answer: rotation, order and signs of the loadings.

The likelihood depends on `S` and `W` through `S S'` and `W W'` only, so each block is reported
with orthogonal columns, ordered by the variance they explain, the largest loading of each column
positive. Two fits that reach one optimum then give the same numbers. A prior that singles out
columns (ARD) keeps its own columns; they are ordered and signed.
"""

import numpy as np

from contrastive_lvm.arrays import Array

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
