"""Rows less what covariates explain, for tests that permute rows between sets.

Each set is regressed on its own covariates, so that nothing is supposed about their effects.
Least squares lower the variance of residuals: with H the projection onto the covariates and the
constant, the residuals of replicate g have the covariance `I - H_gg` in place of I. That is undone
by `(I - H_gg)^-1/2` (Bell & McCaffrey 2002), for which rows of a replicate count as equally and
weakly correlated; a constant alone gives the stretch of replicate means by `(1 - 1/R)^-1/2`.
Directions that the covariates determine altogether stay zero.
"""

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.resampling.replicates import Integers

DETERMINED = 1e-8  # least share of a direction's variance that is restored
RANK = 1e-9  # of the largest singular value: columns below are combinations of others


def design_basis(covariates: Array) -> Array:
    """Return an orthonormal basis of the constant and the covariates, (N, P)."""
    design = np.column_stack([np.ones(len(covariates)), covariates])
    U, s, _ = np.linalg.svd(design, full_matrices=False)
    return np.asarray(U[:, s > RANK * s[0]])


def residuals(rows: Array, basis: Array) -> Array:
    """Return rows less their regression on a basis; NaN stays where it is.

    Examples
    --------
    >>> basis = design_basis(np.array([[0.0], [1.0], [2.0]]))
    >>> residuals(np.array([[1.0], [3.0], [5.0]]), basis).round(9) + 0.0
    array([[0.],
           [0.],
           [0.]])
    """
    left = rows - basis @ (basis.T @ np.nan_to_num(rows))
    for d in np.flatnonzero(np.isnan(rows).any(axis=0)):
        seen = ~np.isnan(rows[:, d])
        fitted = np.linalg.lstsq(basis[seen], rows[seen, d], rcond=RANK)[0]
        left[:, d] = rows[:, d] - basis @ fitted
    return np.asarray(left)


def restore_variance(rows: Array, basis: Array, numbers: Integers) -> Array:
    """Give residuals of replicates, named by `numbers`, the variance that they have lost."""
    restored = rows.copy()
    order = np.argsort(numbers, kind="stable")
    ends = np.flatnonzero(np.diff(numbers[order])) + 1
    for own in np.split(order, ends):
        P, s, _ = np.linalg.svd(basis[own], full_matrices=False)
        left = 1.0 - np.minimum(s**2, 1.0)
        stretch = np.where(left > DETERMINED, 1.0 / np.sqrt(np.maximum(left, DETERMINED)), 1.0)
        restored[own] += P @ ((stretch - 1.0)[:, None] * (P.T @ rows[own]))
    return restored
