"""Rows whose entries are weighted: the row step of heavy-tailed likelihoods.

With `u` the scale of an entry (or of a row) and `w_id = E[u_id]` on observed entries,

    A_i = I + sum_d w_id / psi_d E[l_d l_d'],   E[h_i] = A_i^-1 sum_d w_id / psi_d E[l_d] r_id,
    E[e_id^2] = r_id^2 - 2 r_id E[l_d]' E[h_i] + tr( E[l_d l_d'] E[h_i h_i'] ),

and the likelihood turns `E[e^2] / psi` into new weights and its part of the bound. The latents
add `-KL(q(h) || N(0, I))` a row. Weights are carried from sweep to sweep; with them the bound
never falls. They are the only thing kept a row: per-row matrices live within a block.
"""

from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import Array, Matrix, Statistics
from contrastive_lvm.likelihoods.base import Scaler, Scales
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import is_sparse, row_slices, widen
from contrastive_lvm.linalg.scratch import gathered, room
from contrastive_lvm.rows.threads import in_order

BLOCK_ELEMENTS = 1 << 17  # a few arrays of a block's size live at once
# E[u] as it is kept, (N, D) or (N, 1).
Weights = npt.NDArray[np.float32] | npt.NDArray[np.float64]
EXACT = 1 << 21  # weights of a set that are kept in double precision


class WeightedBlock(NamedTuple):
    """The row step's outcome for a block of rows."""

    observed: Array | None  # (B, D) 0/1; None when nothing is missing
    residual: Array  # (B, D)
    mean: Array  # (K, B)
    cov: Array  # (Q, B)
    outer: Array  # (Q, B) E[h h']
    scales: Scales
    bound: Array  # (B,)


class RowStep:
    """The row step, then new scales, at given parameters."""

    def __init__(self, loadings: Loadings, psi: Array, mean: Array, scaler: Scaler) -> None:
        self._given = (loadings, psi, mean, scaler)
        self.mean, self.scaler, self.psi, self.L = mean, scaler, psi, loadings.mean
        self.K = loadings.mean.shape[1]
        self.i, self.j = packed.pair_indices(self.K)
        pairs = loadings.pairs() / psi
        self.precision = pairs
        self.doubled = np.where(self.i == self.j, 1.0, 2.0)[:, None] * pairs
        self.scaled = (loadings.mean / psi[:, None]).T
        self.constant = 0.5 * np.log(2.0 * np.pi * psi)

    def __reduce__(self) -> tuple[Any, ...]:
        """Only what it was given travels."""
        return RowStep, self._given

    def __call__(self, rows: Matrix, weights: Array | Weights) -> WeightedBlock:
        """For a block of rows with the weights they have had so far."""
        R = room("residual", rows.shape)
        np.subtract(widen(rows) if is_sparse(rows) else rows, self.mean, out=R)
        missing, observed = np.isnan(R, out=room("missing", R.shape, bool)), None
        if missing.any():  # masks as numbers: products with them are much faster than indexing
            np.copyto(R, 0.0, where=missing)
            observed = np.logical_not(missing, out=room("observed", R.shape))
        w = _weights_of_entries(weights, R.shape, observed)
        A = np.matmul(self.precision, w.T, out=room("precision", (len(self.precision), len(R))))
        A += packed.pack(np.eye(self.K))
        cov, logdet = packed.invert(A, out=A)
        w *= R
        h = packed.multiply(cov, self.scaled @ w.T)
        outer = gathered("outer", h, self.i)
        outer *= gathered("others", h, self.j)
        outer += cov
        chi2 = self._expected_squares(R, h, outer)
        if observed is None:
            entries, log_noise = np.full(len(R), float(R.shape[1])), self.constant.sum()
        else:
            chi2 *= observed
            entries, log_noise = observed.sum(axis=1), observed @ self.constant
        scales = self.scaler(chi2, entries)
        energy = outer[np.diagonal(packed.full_index(self.K))].sum(axis=0) if self.K else 0.0
        bound = scales.bound - log_noise + 0.5 * (self.K - logdet - energy)
        return WeightedBlock(observed, R, h, cov, outer, scales, bound)

    def _expected_squares(self, R: Array, h: Array, outer: Array) -> Array:
        """`E[e^2] / psi`, (B, D)."""
        linear: Array = np.matmul(h.T, self.L.T, out=room("squares", R.shape))
        linear *= -2.0
        linear += R
        linear *= R
        linear /= self.psi
        linear += np.matmul(outer.T, self.doubled, out=room("traces", R.shape))
        return np.maximum(linear, 0.0, out=linear)


def _weights_of_entries(
    weights: Array | Weights, shape: tuple[int, ...], observed: Array | None
) -> Array:
    """(B, D), zero where missing; a copy."""
    copy: Array = room("weights", shape)
    if observed is not None:
        return np.multiply(weights, observed, out=copy)
    copy[...] = weights
    return copy


class Swept(NamedTuple):
    """Statistics of weighted rows, and what the df step needs."""

    statistics: Statistics
    log_excess: float
    n_scales: float

    def plus(self, other: "Swept") -> "Swept":
        """Of the rows of both."""
        return Swept(
            self.statistics.plus(other.statistics),
            self.log_excess + other.log_excess,
            self.n_scales + other.n_scales,
        )


def swept(step: RowStep, rows: Matrix, weights: Array | Weights) -> tuple[Swept, Array]:
    """Expected statistics of a block under new weights, and those weights."""
    block = step(rows, weights)
    scales = block.scales
    sums = float(scales.log_excess.sum()), float(scales.n_scales.sum())
    return Swept(_block_statistics(block), *sums), scales.weights


def weights_shape(scaler: Scaler, n_rows: int, n_features: int) -> tuple[int, type]:
    """How many weights a row has, and the precision in which those of so many rows are kept.

    Many weights are kept in single precision: a weight is a stationary point, so that its rounding
    changes the bound by its square, and there may be one for every entry of the data. But it does
    change the way to the optimum, and with few rows where on that way a fit stops, so that few are
    kept as they are.
    """
    n_columns = scaler(np.zeros((1, n_features)), np.ones(1)).weights.shape[1]
    return n_columns, np.float32 if n_rows * n_columns > EXACT else np.float64


def weighted_statistics(
    X: Matrix, loadings: Loadings, psi: Array, mean: Array, weights: Weights, scaler: Scaler
) -> tuple[Swept, Weights]:
    """The same of many rows, a block at a time.

    `weights` may have one column to begin with; the new ones have as many as there are scales.
    """
    step = RowStep(loadings, psi, mean, scaler)
    n_columns, kind = weights_shape(scaler, *X.shape)
    renewed = np.empty((X.shape[0], n_columns), kind)

    def of_block(rows: slice) -> Swept:
        found, renewed[rows] = swept(step, X[rows], weights[rows])
        return found

    blocks = in_order(of_block, list(row_slices(*X.shape, elements=BLOCK_ELEMENTS)))
    return reduce(Swept.plus, blocks), renewed


def _block_statistics(block: WeightedBlock) -> Statistics:
    (Q, B), K = block.outer.shape, len(block.mean)
    w = _weights_of_entries(block.scales.weights, block.residual.shape, block.observed)
    stack = room("stack", (Q + K + 1, B))
    stack[:Q], stack[Q:-1], stack[-1] = block.outer, block.mean, 1.0
    weighted = stack @ w  # (Q + K + 1, D)
    w *= block.residual
    crossed = stack[Q:] @ w  # (K + 1, D)
    entries = (
        np.full(w.shape[1], float(B)) if block.observed is None else block.observed.sum(axis=0)
    )
    return Statistics(
        moment=weighted[:Q],
        first=weighted[Q : Q + K],
        cross=crossed[:K].T,
        residual=crossed[K],
        square=np.einsum("bd,bd->d", w, block.residual),
        weight=weighted[-1],
        entries=entries,
        latent=block.outer.sum(axis=1),
        n_rows=B,
        bound=float(block.bound.sum()),
    )
