"""The loading and noise steps: the M-step of the general, non-orthogonal model.

For feature d the expected complete-data log-likelihood is a weighted least-squares problem in
`(l_d, mean_1d, mean_2d)`. Eliminating the means (each set has its own) leaves

    [ sum_s M_s - f_s f_s' / n_s ] l_d = sum_s [ c_s - f_s e_s / n_s ]

with `M, f, c, e, n` the set's `moment, first, cross, residual, entries` at feature d, and
`mean_s += (e_s - f_s' l_d) / n_s`. The least-squares residual at the optimum,
`sum_s q_s - l_d' c_s - dmean_s e_s`, is the noise step's numerator. `S` and `W` are solved
jointly from `E[h h']`; the paper's separate updates drop the posterior covariance of z and t.
"""

from typing import NamedTuple

import numpy as np

from contrastive_lvm.core import packed
from contrastive_lvm.core.types import Array, Statistics


class LoadingStep(NamedTuple):
    """New loadings, changes of the means, and expected squared residuals."""

    L: Array  # (D, K)
    mean_change: tuple[Array, ...]  # one (D,) a set
    square: Array  # (D,) summed over rows and sets
    entries: Array  # (D,) observed entries of all sets


def loading_step(sets: list[Statistics], n_columns: int) -> LoadingStep:
    """Maximise over loadings and means; sets with fewer columns use the leading ones."""
    D = len(sets[0].square)
    if all(s.moment.shape[1] == 1 for s in sets):
        L = _solve_shared(sets, D, n_columns)
    else:
        L = _solve_each_feature(sets, D, n_columns)
    square, changes = np.zeros(D), []
    for s in sets:
        active = L[:, : len(s.first)]
        change = s.residual - np.einsum(
            "dk,kd->d", active, np.broadcast_to(s.first, active.T.shape)
        )
        change = change / s.entries
        square += s.square - np.einsum("dk,dk->d", active, s.cross) - change * s.residual
        changes.append(change)
    entries = np.sum([s.entries for s in sets], axis=0)
    return LoadingStep(L, tuple(changes), np.maximum(square, 0.0), entries)


def _solve_shared(sets: list[Statistics], D: int, K: int) -> Array:
    """Nothing missing: one K x K system for all features (the means are the sample means)."""
    moment, cross = np.zeros((K, K)), np.zeros((D, K))
    for s in sets:
        k = len(s.first)
        moment[:k, :k] += packed.unpack(s.moment)[0]
        cross[:, :k] += s.cross
    return np.asarray(np.linalg.solve(moment, cross.T).T, dtype=np.float64)


def _solve_each_feature(sets: list[Statistics], D: int, K: int) -> Array:
    moment, cross = np.zeros((D, K, K)), np.zeros((D, K))
    for s in sets:
        k = len(s.first)
        first = np.broadcast_to(s.first, (k, D)).T  # (D, K)
        moment[:, :k, :k] += packed.unpack(s.moment)
        moment[:, :k, :k] -= first[:, :, None] * (first / s.entries[:, None])[:, None, :]
        cross[:, :k] += s.cross - first * (s.residual / s.entries)[:, None]
    return np.asarray(np.linalg.solve(moment, cross[:, :, None])[:, :, 0], dtype=np.float64)
