"""The loading step: loadings and means given the expected statistics of all row sets.

For feature d, with `M, f, c, e, n` a set's `moment, first, cross, residual, weight` there and
prior precisions `Lambda_d`, the bound is quadratic in `(l_d, mean_1d, mean_2d, ...)`. The means are
points; eliminating them leaves

    [ sum_s M_s - f_s f_s' / n_s + psi_d diag Lambda_d ] l_d = sum_s [ c_s - f_s e_s / n_s ]

and `mean_s += (e_s - f_s' l_d) / n_s`. Under variational Bayes columns with a prior also have
`C_d = (sum_s M_s / psi_d + diag Lambda_d)^-1` over those columns; the others are points (the
paper's table of models; a posterior under a flat prior would be improper). All blocks are solved
jointly from `E[h h']`; the paper's separate updates drop the posterior covariance of z and t.

Covariates are treated as known latents, `E[h h'] = c c'` in their columns, without a prior. Their
columns follow those of the latents, their statistics are about the current effects, and what is
solved for is the change of the effects: loadings, effects and means are found jointly. Effects that
several sets share need that; where sets differ in their covariance, a regression beforehand is not
the maximum of the likelihood.

Where sets have noise variances of their own, psi is that of the first set, and the statistics of
set s are weighted by `psi / psi_s`: the equations stay as they are.
"""

from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Statistics
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import (
    Columns,
    Covariance,
    Loadings,
    PackedCovariance,
    SharedCovariance,
)


class LoadingStep(NamedTuple):
    """New loadings and expected squared residuals."""

    loadings: Loadings
    square: Array  # (D,) weighted, summed over rows and sets; (S, D) where noise is a set's own
    entries: Array  # (D,) or (S, D) observed entries


class NormalEquations(NamedTuple):
    """The quadratic form of every feature, summed over sets, with the means eliminated."""

    moment: Array  # (Q, D or 1) sum_s M_s
    reduced: Array  # (D, K, K) or (K, K): with the means eliminated
    cross: Array  # (D, K)


class SetStatistics(NamedTuple):
    """Statistics of a set's rows, and the columns of the loadings that the set uses."""

    statistics: Statistics
    columns: Columns  # increasing
    factor: Array | None = None  # (D,) or (1,) by which they are weighted; None if noise is shared


def loading_step(
    sets: list[SetStatistics], n_columns: int, psi: Array, precision: Array, uncertain: Columns
) -> LoadingStep:
    """Maximise over loadings; `mean_changes` gives the means that go with them.

    `precision` broadcasts to (D, K); the columns `uncertain` get covariances.
    """
    equations = normal_equations(sets, n_columns)
    return completed(sets, equations, solved(equations, psi, precision, uncertain))


def solved(
    equations: "NormalEquations", psi: Array, precision: Array, uncertain: Columns
) -> Loadings:
    """Return the loadings alone."""
    M = equations.reduced
    if M.ndim == 2 and not precision.any():
        return Loadings(np.asarray(np.linalg.solve(M, equations.cross.T).T, dtype=np.float64))
    if M.ndim == 2 and len(precision) == 1:
        return _solve_shared(equations, psi, precision[0], uncertain)
    return _solve_each(equations, psi, precision, uncertain)


def normal_equations(sets: list[SetStatistics], K: int) -> NormalEquations:
    """Sum the sets' statistics over the columns that each of them uses."""
    D = len(sets[0].statistics.square)
    shared = all(s.moment.shape[1] == 1 for s, *_ in sets)
    moment = np.zeros((K * (K + 1) // 2, 1 if shared else D))
    cross = np.zeros((D, K))
    eliminated = np.zeros((D, K, K)) if not shared else None
    for s, columns, _ in sets:
        moment[packed.pair_positions(K, columns)] += s.moment
        cross[:, columns] += s.cross
        if eliminated is not None:
            first = np.broadcast_to(s.first, (len(columns), D)).T  # (D, k)
            per_weight = first / s.weight[:, None]
            product = first[:, :, None] * per_weight[:, None, :]
            eliminated[:, columns[:, None], columns] += product
            cross[:, columns] -= per_weight * s.residual[:, None]
    reduced = packed.unpack(moment)
    return NormalEquations(
        moment, reduced[0] if eliminated is None else reduced - eliminated, cross
    )


def _solve_shared(
    equations: NormalEquations, psi: Array, precision: Array, uncertain: Columns
) -> Loadings:
    """Solve for complete rows: one eigendecomposition serves all features."""
    M, cross = equations.reduced, equations.cross
    V, s = _diagonalised(M, psi, precision)
    mean = np.asarray((((cross / psi[:, None]) @ V) * s) @ V.T)
    if len(uncertain) == 0:
        return Loadings(mean)
    if len(uncertain) < len(M):
        V_own, s = _diagonalised(M[np.ix_(uncertain, uncertain)], psi, precision[uncertain])
        V = np.zeros((len(M), len(uncertain)))
        V[uncertain] = V_own
    else:
        V_own = V
    logdet = np.zeros(len(psi)) + np.log(s).sum(axis=1) + 2.0 * float(np.linalg.slogdet(V_own)[1])
    return Loadings(mean, SharedCovariance(V, s, np.asarray(logdet), len(uncertain)))


def _diagonalised(M: Array, psi: Array, precision: Array) -> tuple[Array, Array]:
    """Return V (K, K), s (D or 1, K) with `(M / psi_d + diag Lambda)^-1 = V diag(s_d) V'`.

    With `M = R R'` and `R^-1 diag(Lambda) R^-T = U diag(g) U'`: `V = R^-T U`,
    `s_d = 1 / (1 / psi_d + g)`. One noise variance for all needs no eigenvectors.
    """
    if (psi == psi[0]).all():
        R = np.linalg.cholesky(M / psi[0] + np.diag(precision))
        return np.asarray(np.linalg.inv(R).T), np.ones((1, len(M)))
    R_inverse = np.linalg.inv(np.linalg.cholesky(M))
    g, U = np.linalg.eigh((R_inverse * precision) @ R_inverse.T)
    return np.asarray(R_inverse.T @ U), 1.0 / (1.0 / psi[:, None] + np.maximum(g, 0.0))


def _solve_each(
    equations: NormalEquations, psi: Array, precision: Array, uncertain: Columns
) -> Loadings:
    D, K = equations.cross.shape
    ridge = np.broadcast_to(precision, (D, K))
    matrix = np.array(np.broadcast_to(equations.reduced, (D, K, K)))
    matrix[:, np.arange(K), np.arange(K)] += psi[:, None] * ridge
    mean = np.asarray(np.linalg.solve(matrix, equations.cross[:, :, None])[:, :, 0])
    if len(uncertain) == 0:
        return Loadings(mean)
    return Loadings(mean, _covariances(equations.moment, psi, ridge, uncertain))


def _covariances(moment: Array, psi: Array, ridge: Array, uncertain: Columns) -> Covariance:
    """Return covariances of the uncertain columns, packed among all columns."""
    where = packed.pair_positions(ridge.shape[1], uncertain)
    precision = np.array(np.broadcast_to(moment[where], (len(where), len(psi)))) / psi
    precision[np.diagonal(packed.full_index(len(uncertain)))] += ridge[:, uncertain].T
    inverse, logdet = packed.invert(precision)
    values = np.zeros((len(moment), len(psi)))
    values[where] = inverse
    return PackedCovariance(values, -logdet, len(uncertain))


def completed(
    sets: list[SetStatistics], equations: NormalEquations, loadings: Loadings
) -> LoadingStep:
    """Return the expected squared residuals that go with given loadings."""
    entries = [s.entries for s, *_ in sets]
    own = [_own_squares(s, loadings, s.factor) for s in sets if s.factor is not None]
    if own:
        return LoadingStep(loadings, np.stack(own), np.stack(entries))
    L, square = loadings.mean, np.zeros(len(loadings.mean))
    for s, *_ in sets:
        square += s.square - s.residual**2 / s.weight
    # With the means at their best, what is left is quadratic in the loadings alone.
    product = (
        L @ equations.reduced
        if equations.reduced.ndim == 2
        else np.einsum("dij,dj->di", equations.reduced, L)
    )
    square += np.einsum("dk,dk->d", L, product - 2.0 * equations.cross)
    if loadings.cov is not None:
        square += loadings.cov.inner(equations.moment)
    square = np.maximum(square, 0.0)
    return LoadingStep(loadings, square, np.asarray(sum(entries)))


def mean_changes(sets: list[SetStatistics], loadings: Loadings) -> tuple[Array, ...]:
    """Return the changes of the means that go with given loadings, (D,) for each set."""
    found = []
    for s, columns, _ in sets:
        fitted = (loadings.mean[:, columns] * s.first.T).sum(axis=1)
        found.append(np.asarray((s.residual - fitted) / s.weight))
    return tuple(found)


def _own_squares(own: SetStatistics, loadings: Loadings, factor: Array) -> Array:
    """Return a set's expected squared residuals, the factor undone, (D,)."""
    alone = [own._replace(columns=np.arange(len(own.columns)), factor=None)]
    equations = normal_equations(alone, len(own.columns))
    return completed(alone, equations, loadings.columns(own.columns)).square / factor
