"""The canonical gauge: rotation, order and signs of the loadings.

The likelihood depends on `S` and `W` through `S S'` and `W W'` only, so each block is reported
with orthogonal columns, ordered by the variance they explain, the largest loading of each column
positive. Two fits that reach one optimum then give the same numbers. A prior that singles out
columns (ARD) keeps its own columns; they are ordered and signed.

Rotations to simple structure are for readers who want few large loadings in each column.
"""

import numpy as np

from contrastive_lvm.arrays import Array

MOST_ROTATIONS = 1000  # steps of varimax, of which well separated columns take ten
RANK_TOLERANCE = 1e-8  # of the largest singular value: smaller ones are no dimension of loadings
PROMAX_POWER = 4  # of the varimax loadings, as in Hendrickson & White (1964)
LEAST_INFORMATION = 1e-12  # of the most: below it a dimension has no loadings
TIE = 1e-6  # loadings this close to the largest, relatively, count as largest: the first decides


def canonical(block: Array) -> Array:
    """Rotate a (D, K) block of loadings to orthogonal, ordered, signed columns.

    >>> import numpy as np
    >>> turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    >>> canonical(np.array([[-3.0, 0.0], [0.0, 2.0], [0.0, 0.0]]) @ turn).round(12) + 0.0
    array([[3., 0.],
           [0., 2.],
           [0., 0.]])
    """
    return np.ascontiguousarray(block @ canonical_rotation(block))


def canonical_rotation(block: Array, *, keep_columns: bool = False) -> Array:
    """Return the orthogonal matrices, (..., K, K), that make (..., D, K) blocks canonical."""
    K = block.shape[-1]
    if K == 0:
        return np.empty((*block.shape[:-2], 0, 0))
    if keep_columns:
        R = np.eye(K)[np.argsort(-(block**2).sum(axis=-2), kind="stable")]
    else:
        R = np.linalg.svd(np.linalg.qr(block, mode="r"))[2]
    R = np.swapaxes(R, -1, -2)
    return np.ascontiguousarray(R * signs(block @ R)[..., None, :])


def in_standard_errors(information: Array) -> tuple[Array, Array]:
    """Return A that turns latents `A^-1 h` to their axes of most information, in standard errors.

    The information M, (K, K), is what a row tells of its latents h: its likelihood is like that of
    h with an error of covariance `M^-1`. With `M = U diag(s^2) U'` the matrix is `U diag(1 / s)`.
    The new latents have errors of variance 1, and N(0, I) becomes `N(0, diag(s^2))`. The other
    matrix that is returned is diag(s^2).

    >>> import numpy as np
    >>> A, information = in_standard_errors(np.array([[4.0, 0.0], [0.0, 9.0]]))
    >>> np.abs(A).round(3)
    array([[0.   , 0.5  ],
           [0.333, 0.   ]])
    >>> information
    array([[9., 0.],
           [0., 4.]])
    """
    values, U = np.linalg.eigh(information)
    values, U = values[::-1], U[:, ::-1]
    most = values.max(initial=0.0)
    least = LEAST_INFORMATION * most if most > 0 else 1.0
    values = np.maximum(values, least)
    return np.asarray(U / np.sqrt(values)), np.diag(values)


def signs(block: Array) -> Array:
    """Return signs, (..., K), that make the largest entry of each column of blocks positive."""
    size = np.abs(block)
    largest = (size >= (1.0 - TIE) * size.max(axis=-2, keepdims=True)).argmax(axis=-2)
    found = np.take_along_axis(block, largest[..., None, :], axis=-2)[..., 0, :]
    return np.where(found < 0, -1.0, 1.0)


def signed(block: Array) -> Array:
    """Return columns with their largest entry positive."""
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
    block, R, reached = _in_own_units(block), np.eye(block.shape[1]), 0.0
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
    """Return the transformation, (K, K), to still simpler columns, whose latents are correlated.

    The loadings are fitted by least squares to the varimax loadings raised to a power, with their
    signs kept (Hendrickson & White 1964). `h' = A^-1 h` then has unit variances and the
    correlations `(A' A)^-1`.
    """
    block = _in_own_units(block)
    _, s, Vt = np.linalg.svd(block, full_matrices=False)
    rank = int((s > RANK_TOLERANCE * s.max(initial=0.0)).sum())
    if rank == 0:
        return np.eye(len(s))
    A = Vt.T.copy()  # columns beyond the rank have no loadings, and stay as they are
    R = A[:, :rank] @ varimax(block @ A[:, :rank])
    simple = block @ R
    U = np.linalg.lstsq(simple, simple * np.abs(simple) ** (PROMAX_POWER - 1), rcond=None)[0]
    A[:, :rank] = R @ (U * np.sqrt(np.diagonal(np.linalg.inv(U.T @ U))))
    return _ordered(block, A)


def _in_own_units(block: Array) -> Array:
    """Return a block divided by the power of two beyond its largest loading, which rounds nothing.

    Powers of large or small loadings may be no numbers.
    """
    return np.asarray(np.ldexp(block, -np.frexp(np.abs(block).max(initial=0.0))[1]))


def _ordered(block: Array, A: Array) -> Array:
    """Return the transformation with columns of its result ordered by size and signed."""
    A = A[:, np.argsort(-((block @ A) ** 2).sum(axis=0), kind="stable")]
    return np.ascontiguousarray(A * signs(block @ A))


ROTATIONS = {"varimax": varimax, "promax": promax}
