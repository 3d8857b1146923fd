"""Residuals of rows after regression on covariates, for tests that permute rows between sets.

Each set is regressed on its own covariates, so that nothing is assumed about their effects. With H
the projection onto the P columns of covariates and constant, residuals have the covariance `I - H`
in place of I: they are not exchangeable with those of another set, since N rows have only N - P
directions. Without replicates P rows J' are left out, and the residuals of the others become `(I -
H)_JJ^-1/2 r_J`, which are uncorrelated and have the variance of the rows: Theil's BLUS residuals
(1965), the closest to `r_J` that have. The rows left out are those that a pivoted QR decomposition
of the covariates takes first, which have most leverage.

Replicates are whole, so that none of their rows can be left out. Both sets are then regressed
together, on the means of the sets and the covariates (Freedman & Lane 1983, who permute residuals
under the null hypothesis): every division of the replicates has the same residuals. Those of a
replicate g become `(I - H)_gg^-1/2 r_g`, which have its variance (Bell & McCaffrey 2002).
"""

import numpy as np
from scipy.linalg import qr

from contrastive_lvm.arrays import Array
from contrastive_lvm.resampling.replicates import Flags, Integers

RANK = 1e-9  # of the largest singular value: columns below are combinations of others


def design_basis(design: Array) -> Array:
    """Return an orthonormal basis of the columns of a design, (N, P)."""
    U, s, _ = np.linalg.svd(design, full_matrices=False)
    return np.asarray(U[:, s > RANK * s[0]])


def residuals(rows: Array, basis: Array) -> Array:
    """Return the residuals of rows regressed on a basis; NaN stays NaN.

    Examples
    --------
    >>> basis = design_basis(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]))
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
    >>> float((uncorrelated(rows, design_basis(np.ones((4, 1)))) ** 2).sum().round(9))
    6.0
    """
    left, kept = residuals(rows, basis), independent_rows(basis)
    P, s, _ = np.linalg.svd(basis[kept], full_matrices=False)
    stretch = 1.0 / np.sqrt(1.0 - s**2)
    return np.asarray(left[kept] + P @ ((stretch - 1.0)[:, None] * (P.T @ left[kept])))


def restored(left: Array, basis: Array, unit: Integers) -> Array:
    """Return residuals with the variance of the rows of each unit.

    Examples
    --------
    >>> left = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    >>> restored(left, design_basis(np.ones((4, 1))), np.array([0, 0, 1, 1]))[:, 0].round(3)
    array([ 1.414,  1.414, -1.414, -1.414])
    """
    if len(np.unique(unit)) == len(unit):
        rest = 1.0 - (basis**2).sum(axis=1, keepdims=True)
        return np.asarray(left / np.sqrt(np.where(rest > RANK, rest, 1.0)))
    found, order = left.copy(), np.argsort(unit, kind="stable")
    for own in np.split(order, np.flatnonzero(np.diff(unit[order])) + 1):
        P, s, _ = np.linalg.svd(basis[own], full_matrices=False)
        rest = 1.0 - np.minimum(s, 1.0) ** 2
        stretch = np.where(rest > RANK, 1.0 / np.sqrt(np.maximum(rest, RANK)), 1.0)
        found[own] += P @ ((stretch - 1.0)[:, None] * (P.T @ left[own]))
    return np.asarray(found)
