"""Rows whose entries are weighted: the row step of heavy-tailed likelihoods.

With `u` the scale of an entry (or of a row) and `w_id = E[u_id]` on observed entries,

    A_i = I + sum_d w_id / psi_d E[l_d l_d'],   E[h_i] = A_i^-1 sum_d w_id / psi_d E[l_d] r_id,
    E[e_id^2] = r_id^2 - 2 r_id E[l_d]' E[h_i] + tr( E[l_d l_d'] E[h_i h_i'] ),

and the likelihood turns `E[e^2] / psi` into new weights and its part of the bound. The latents
add `-KL(q(h) || N(0, I))` a row. Weights are carried from sweep to sweep; with them the bound
never falls. They are the only thing kept a row: per-row matrices live within a block.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.core import packed
from contrastive_lvm.core.blocks import row_slices, widen
from contrastive_lvm.core.covariance import Loadings
from contrastive_lvm.core.types import Array, Matrix, Statistics


class Scales(NamedTuple):
    """What a likelihood makes of expected squared residuals."""

    weights: Array  # (B, D) or (B, 1): E[u]
    bound: Array  # (B,) without the noise's ln psi
    log_excess: float  # sum of E[ln u] - E[u], for learning the degrees of freedom
    n_scales: int


BLOCK_ELEMENTS = 1 << 17  # a dozen arrays of a block's size live at once
Weights = npt.NDArray[np.float32]  # E[u] as it is kept, (N, D) or (N, 1)
Scaler = Callable[[Array, Array], Scales]  # (E[e^2] / psi, observed) -> Scales


class WeightedBlock(NamedTuple):
    """The row step's outcome for a block of rows."""

    rows: slice
    observed: Array  # (B, D) 0/1
    residual: Array  # (B, D)
    mean: Array  # (K, B)
    cov: Array  # (Q, B)
    scales: Scales
    bound: Array  # (B,)


def row_blocks(
    X: Matrix,
    loadings: Loadings,
    psi: Array,
    mean: Array,
    weights: Array | Weights,
    scaler: Scaler,
) -> Iterator[WeightedBlock]:
    """One row step, then new scales, for every block."""
    pairs, K = loadings.pairs(), loadings.mean.shape[1]
    i, j = packed.pair_indices(K)
    precision = pairs / psi
    doubled = np.where(i == j, 1.0, 2.0)[:, None] * pairs
    scaled = (loadings.mean / psi[:, None]).T
    constant = 0.5 * np.log(2.0 * np.pi * psi)
    for rows in row_slices(*X.shape, elements=BLOCK_ELEMENTS):
        values = widen(X[rows])
        observed = (~np.isnan(values)).astype(np.float64)
        R = np.where(observed > 0, values - mean, 0.0)
        w = weights[rows] * observed
        cov, logdet = packed.invert(precision @ w.T + packed.pack(np.eye(K)))
        h = packed.multiply(cov, scaled @ (w * R).T)
        outer = cov + h[i] * h[j]
        square = R**2 - 2.0 * R * (loadings.mean @ h).T + outer.T @ doubled
        chi2 = np.maximum(square, 0.0) * observed / psi
        scales = scaler(chi2, observed)
        energy = outer[np.diagonal(packed.full_index(K))].sum(axis=0) if K else 0.0
        bound = scales.bound - observed @ constant + 0.5 * (K - logdet - energy)
        yield WeightedBlock(rows, observed, R, h, cov, scales, bound)


def weighted_statistics(
    X: Matrix, loadings: Loadings, psi: Array, mean: Array, weights: Weights, scaler: Scaler
) -> tuple[Statistics, Weights, tuple[float, int]]:
    """Expected statistics under the new weights, those weights, and what the df step needs."""
    D, K = loadings.mean.shape
    i, j = packed.pair_indices(K)
    moment, first = np.zeros((len(i), D)), np.zeros((K, D))
    cross, residual, square = np.zeros((D, K)), np.zeros(D), np.zeros(D)
    total, entries, latent = np.zeros(D), np.zeros(D), np.zeros(len(i))
    bound, excess, n_scales = 0.0, 0.0, 0
    renewed = np.empty_like(weights)
    for block in row_blocks(X, loadings, psi, mean, weights, scaler):
        w = block.scales.weights * block.observed
        renewed[block.rows] = block.scales.weights
        outer = block.cov + block.mean[i] * block.mean[j]
        moment += outer @ w
        latent += outer.sum(axis=1)
        first += block.mean @ w
        wR = w * block.residual
        cross += wR.T @ block.mean.T
        residual += wR.sum(axis=0)
        square += np.einsum("bd,bd->d", wR, block.residual)
        total += w.sum(axis=0)
        entries += block.observed.sum(axis=0)
        bound += float(block.bound.sum())
        excess, n_scales = excess + block.scales.log_excess, n_scales + block.scales.n_scales
    statistics = Statistics(
        moment, first, cross, residual, square, total, entries, latent, X.shape[0], bound
    )
    return statistics, renewed, (excess, n_scales)
