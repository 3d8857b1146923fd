"""Charts of new rows against normal ones: how far out a row lies, and in which features.

Normal rows follow the background, `x = m + S z + e` with `e ~ N(0, psi)`. With `d = x - m` and
generalised least squares, which estimates z (or t and z) from a row alone,

    shared T2:  z' (I + (S' psi^-1 S)^-1)^-1 z,    chi-square with as many degrees as z
    SPE:        sum_d r_d^2 / psi_d,  r = d - S z,  chi-square with (features - columns of S)
    target T2:  t' (V_tt)^-1 t,  V = (L' psi^-1 L)^-1,  L = [W S],  chi-square with as many as t

for normal rows, exactly where the parameters are the true ones. z and r are independent, and
shared T2 and SPE add up to the Mahalanobis distance `d' (S S' + psi)^-1 d`, of which feature j
contributes `d_j [(S S' + psi)^-1 d]_j` (the complete decomposition; Alcala and Qin 2009).

Rows with missing entries have fewer degrees of freedom. Their statistics are brought to those of
complete rows at the same tail probability, so that one limit serves all rows.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln
from scipy.stats import chi2

from contrastive_lvm.arrays import Array
from contrastive_lvm.linalg.matrices import column_space

LEAST_TAIL = 1e-290  # of probabilities; those far below are no longer numbers
NEWTON_STEPS = 10  # after which values differ by rounding only


class Monitoring(NamedTuple):
    """Charts of rows, their limits, and what each feature contributes."""

    t2: Array  # (N,) along the dimensions that only the target has
    t2_limit: float
    shared_t2: Array  # (N,) along the dimensions of the background
    shared_t2_limit: float
    spe: Array  # (N,) outside them, in units of the noise
    spe_limit: float
    alarms: np.ndarray  # (N,) bool, beyond some limit
    contributions: Array  # (N, D) to shared_t2 + spe; zero where missing


class NormalRows(NamedTuple):
    """The model of normal rows, and the loadings of directions that only the target has."""

    mean: Array  # (D,)
    psi: Array  # (D,)
    shared: Array  # (D, K) loadings
    target: Array  # (D, T) loadings


class Charts(NamedTuple):
    """Statistics of rows, (N,) each, and their contributions, (N, D)."""

    t2: Array
    shared_t2: Array
    spe: Array
    contributions: Array


def chart(X: Array, normal: NormalRows) -> Charts:
    """Return the statistics of rows, NaN being missing entries."""
    n, d = X.shape
    observed = ~np.isnan(X)
    patterns, which = np.unique(observed, axis=0, return_inverse=True)
    found = Charts(np.zeros(n), np.zeros(n), np.zeros(n), np.zeros((n, d)))
    whole = _degrees(normal, np.ones(d, dtype=bool))
    for p, seen in enumerate(patterns):
        rows = np.flatnonzero(which.ravel() == p)
        part = _chart(X[np.ix_(rows, seen)], _observed(normal, seen))
        own = _degrees(normal, seen)
        for name, k, full in zip(Charts._fields[:3], own, whole, strict=True):
            getattr(found, name)[rows] = _as_complete(getattr(part, name), k, full)
        found.contributions[np.ix_(rows, seen)] = part.contributions
    return found


def limits(normal: NormalRows, alpha: float) -> tuple[float, float, float]:
    """Return limits that a share of at most alpha of normal rows exceeds, in one chart or another.

    Charts share alpha evenly (Bonferroni).
    """
    degrees = _degrees(normal, np.ones(len(normal.mean), dtype=bool))
    each = alpha / max(sum(k > 0 for k in degrees), 1)
    t2, shared, spe = (float(chi2.isf(each, k)) if k else np.inf for k in degrees)
    return t2, shared, spe


def calibrated_limits(reference: Charts, alpha: float) -> tuple[float, float, float]:
    """Return limits from normal rows that the model has not seen.

    Charts are put on one scale by their ranks among these rows; the limit is the rank of the worst
    chart that a share alpha of the rows exceeds, `ceil((n + 1) (1 - alpha))` of n, as in conformal
    prediction: the rate for further rows of the same kind is at most alpha.
    """
    statistics = np.array(reference[:3])
    n = statistics.shape[1]
    order = np.sort(statistics, axis=1)
    ranks = np.array(
        [np.searchsorted(o, s, side="left") for o, s in zip(order, statistics, strict=True)]
    )
    worst = np.sort(ranks.max(axis=0))
    last = worst[int(np.ceil((n + 1) * (1.0 - alpha))) - 1]
    t2, shared, spe = (float(own[last]) if own[-1] > 0 else np.inf for own in order)
    return t2, shared, spe


def _chart(X: Array, normal: NormalRows) -> Charts:
    d = X - normal.mean
    S, psi = normal.shared, normal.psi
    weighted = d / psi
    gram = S.T @ (S / psi[:, None])
    z = weighted @ S @ np.linalg.pinv(gram, hermitian=True)
    residual = d - z @ S.T
    inverse = weighted - (weighted @ S) @ np.linalg.solve(
        np.eye(len(gram)) + gram, (S / psi[:, None]).T
    )
    spe = (residual**2 / psi).sum(axis=1)
    contributions = d * inverse
    shared = np.maximum(contributions.sum(axis=1) - spe, 0.0)
    return Charts(_target_t2(weighted, normal), shared, spe, contributions)


def _target_t2(weighted: Array, normal: NormalRows) -> Array:
    """Return the part of weighted squares that only target loadings explain.

    `t' V_tt^-1 t` is the drop of the residual sum of squares when t joins z in the regression.
    """
    W, S, psi = normal.target, normal.shared, normal.psi
    root = np.sqrt(psi)[:, None]
    Q = column_space(S / root)
    own = column_space(W / root - Q @ (Q.T @ (W / root)))
    return np.asarray((((weighted * root.T) @ own) ** 2).sum(axis=1))


def _observed(normal: NormalRows, seen: np.ndarray) -> NormalRows:
    return NormalRows(*(part[seen] for part in normal))


def _degrees(normal: NormalRows, seen: np.ndarray) -> tuple[int, int, int]:
    """Return the degrees of freedom of the three charts."""
    own = _observed(normal, seen)
    shared = column_space(own.shared).shape[1]
    both = column_space(np.hstack([own.shared, own.target])).shape[1]
    return both - shared, shared, int(seen.sum()) - shared


def _as_complete(values: Array, degrees: int, whole: int) -> Array:
    """Return values with the degrees of freedom of complete rows and the same tail probability."""
    if degrees == whole:
        return values
    if degrees == 0:
        return np.zeros_like(values)
    tail = chi2.sf(values, degrees)
    found, far = chi2.isf(tail, whole), tail < LEAST_TAIL
    found[far] = _of_log_tail(_log_tail(values[far], degrees), whole)
    return np.asarray(found)


def _log_tail(values: Array, degrees: int) -> Array:
    """Return the log of a probability that is too small for a number.

    With `a` half the degrees and `u` half the value, `Gamma(a, u) / Gamma(a)` is about
    `u^(a - 1) exp(-u) / Gamma(a) / (1 - (a - 1) / u)` for u far beyond a.
    """
    a, u = 0.5 * degrees, 0.5 * values
    return np.asarray((a - 1.0) * np.log(u) - u - gammaln(a) - np.log1p((1.0 - a) / u))


def _of_log_tail(log_tail: Array, degrees: int) -> Array:
    """Return the value with such a tail, by Newton's method.

    `ln P(x > u) <= -u / 2 + a ln 2` for half the value (Chernoff), so that it starts beyond the
    answer; the log of the tail is concave, and steps go down to it.
    """
    a = 0.5 * degrees
    u = 2.0 * (a * np.log(2.0) - log_tail)
    for _ in range(NEWTON_STEPS):
        u += (_log_tail(2.0 * u, degrees) - log_tail) / (1.0 - (a - 1.0) / u)
    return np.asarray(2.0 * u)
