"""Size factors of rows of counts: how much of each row was counted."""

import numpy as np

from contrastive_lvm.core.blocks import column_sums, row_slices, widen
from contrastive_lvm.core.types import Array, Matrix
from contrastive_lvm.likelihoods.role import Likelihood


def mean_profile(likelihood: Likelihood, sets: list[Matrix]) -> Array:
    """Mean count of each feature that is sized, over both sets, (D,); zero elsewhere."""
    sums, counts = zip(*(column_sums(X) for X in sets), strict=True)
    mean = sum(sums) / np.maximum(sum(counts), 1.0)
    return np.where(likelihood.sized_columns(len(mean)), mean, 0.0)


def log_sizes(X: Matrix, profile: Array) -> Array:
    """Log of each row's total over that of the profile, observed entries only, (N,).

    An average row has 0. A row without any count gets half a count; rows without sized features
    have 0.
    """
    sizes = np.zeros(X.shape[0])
    sized = profile > 0
    if not sized.any():
        return sizes
    for rows in row_slices(*X.shape):
        block = widen(X[rows])[:, sized]
        total = np.nansum(block, axis=1)
        whole = (~np.isnan(block)) @ profile[sized]
        known = whole > 0
        sizes[rows][known] = np.log(np.maximum(total[known], 0.5) / whole[known])
    return sizes
