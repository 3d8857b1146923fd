"""Size factors of rows of counts: how much of each row was counted."""

from functools import partial

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.linalg.matrices import column_sums, row_slices, widen
from contrastive_lvm.rows.reader import Chunk, RowReader, Rows

Sums = tuple[Array, Array]  # of columns, and numbers of their entries


def mean_profile(likelihood: Likelihood, sets: list[Rows]) -> Array:
    """Mean count of each feature that is sized, over all sets, (D,); zero for other features."""
    sized = likelihood._sized_features(sets[0].shape[1])
    if not sized.any():
        return np.zeros(len(sized))
    sums, counts = zip(
        *(X.reduce(_sums, _added) if isinstance(X, RowReader) else column_sums(X) for X in sets),
        strict=True,
    )
    return np.where(sized, sum(sums) / np.maximum(sum(counts), 1.0), 0.0)


def _sums(chunk: Chunk) -> Sums:
    return column_sums(chunk.rows)


def _added(one: Sums, other: Sums) -> Sums:
    return one[0] + other[0], one[1] + other[1]


def log_sizes(X: Rows, profile: Array) -> Array:
    """Log of each row's total over that of the profile, observed entries only, (N,).

    An average row has 0. A row without any count gets half a count; rows without sized features
    have 0.
    """
    sizes = np.zeros(X.shape[0])
    sized = profile > 0
    if not sized.any():
        return sizes
    if isinstance(X, RowReader):
        return np.asarray(X.map(partial(_block_sizes, profile)))
    for rows in row_slices(*X.shape):
        block = widen(X[rows])[:, sized]
        total = np.nansum(block, axis=1)
        whole = (~np.isnan(block)) @ profile[sized]
        known = whole > 0
        sizes[rows][known] = np.log(np.maximum(total[known], 0.5) / whole[known])
    return sizes


def _block_sizes(profile: Array, block: Matrix, rows: slice) -> Array:
    return log_sizes(block, profile)
