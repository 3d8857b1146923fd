"""One canonical answer: rotation, order and signs of the loadings.

The likelihood depends on `S` and `W` through `S S'` and `W W'` only, so each block is reported
with orthogonal columns, ordered by the variance they explain, the largest loading of each column
positive. Two fits that reach one optimum then give the same numbers.
"""

import numpy as np

from contrastive_lvm.core.types import Array

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
    if block.shape[1] == 0:
        return block
    U, s, _ = np.linalg.svd(block, full_matrices=False)
    return signed(U * s)


def signed(block: Array) -> Array:
    """Columns with their largest entry positive."""
    size = np.abs(block)
    largest = (size >= (1.0 - TIE) * size.max(axis=0)).argmax(axis=0)
    signs = np.where(block[largest, np.arange(block.shape[1])] < 0, -1.0, 1.0)
    return np.ascontiguousarray(block * signs)


def canonical_loadings(L: Array, n_shared: int) -> Array:
    """`[S | W]` with each block in its canonical form."""
    return np.hstack([canonical(L[:, :n_shared]), canonical(L[:, n_shared:])])
