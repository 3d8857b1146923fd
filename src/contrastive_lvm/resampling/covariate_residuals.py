"""Rows less what covariates explain, for tests that permute rows between sets.

Each set is regressed on its own covariates, so that nothing is supposed about their effects. With H
the projection onto the P columns of covariates and constant, residuals have the covariance `I - H`
in place of I: they are not exchangeable with those of another set, since N rows have only N - P
directions. Without replicates P rows J' are left out, and the residuals of the others become
`(I - H)_JJ^-1/2 r_J`, which are uncorrelated and have the variance of the rows: Theil's BLUS
residuals (1965), the closest to `r_J` that have. The rows left out are those that a pivoted QR
decomposition of the covariates takes first, which have most leverage.

Residuals of whole replicates would have to be made uncorrelated as blocks; restoring their
variance alone (Bell & McCaffrey 2002) left the test with a level of 11 to 17 % where there are more
features than rows, so that there is no test with covariates and replicates.
"""

import numpy as np
from scipy.linalg import qr

from contrastive_lvm.arrays import Array
from contrastive_lvm.resampling.replicates import Flags

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


def independent_rows(basis: Array) -> Flags:
    """Choose the rows whose residuals are kept: all but as many as the basis has columns."""
    order = qr(basis.T, mode="r", pivoting=True)[1]
    kept = np.ones(len(basis), dtype=bool)
    kept[order[: basis.shape[1]]] = False
    return kept


def uncorrelated(rows: Array, basis: Array) -> Array:
    """Return residuals of the rows that are kept, with the covariance of the rows.

    Examples
    --------
    >>> rows = np.array([[3.0], [0.0], [1.0], [0.0]])
    >>> float((uncorrelated(rows, design_basis(np.empty((4, 0)))) ** 2).sum().round(9))
    6.0
    """
    left, kept = residuals(rows, basis), independent_rows(basis)
    P, s, _ = np.linalg.svd(basis[kept], full_matrices=False)
    stretch = 1.0 / np.sqrt(1.0 - s**2)
    return np.asarray(left[kept] + P @ ((stretch - 1.0)[:, None] * (P.T @ left[kept])))
