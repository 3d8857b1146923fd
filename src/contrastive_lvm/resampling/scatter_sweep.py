"""Sweeps of EM for complete rows, Gaussian noise and no priors, for many resamples at once.

A sweep of `coordinate_ascent.problem` on small scatters spends most of its time outside of
products. Resampling repeats the same sweep thousands of times; here it is written out for a stack
of problems: with `A = I + L' psi^-1 L` over the columns that are active in a set of n rows with the
scatter T,

    sum_i E[h_i h_i'] = n A^-1 + B' T B,    sum_i r_i E[h_i]' = T B,    B = psi^-1 L A^-1,

summed over the sets to `M` and `C`, the new loadings are `C M^-1`, and the new noise is the mean
square that they do not explain. Newton's method starts near the optimum, so that the change of
latent coordinates that ends a sweep of the problem is left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import LOG_2PI, Array
from contrastive_lvm.coordinate_ascent.problem import Problem
from contrastive_lvm.rows.scatter import DenseScatter


class ScatterStack(NamedTuple):
    """The scatters of one set in each of B resamples; one stands for any number of equal ones."""

    n_rows: Array  # (B,)
    matrices: tuple[Array, ...]  # B of shape (D, D)
    squares: Array  # (B, D) diagonals of the matrices

    @classmethod
    def of(cls, scatters: Sequence[DenseScatter]) -> "ScatterStack":
        """Join scatters, whose matrices are not copied."""
        n_rows, squares = (
            np.array([s.n_rows for s in scatters]),
            np.array([s.square for s in scatters]),
        )
        return cls(n_rows, tuple(s.matrix for s in scatters), squares)

    def product(self, M: Array) -> Array:
        """`T @ M` for each scatter T and its M, (B, D, k)."""
        if len(self.matrices) == 1:  # a product of wide matrices is faster than many
            B, D, k = M.shape
            side_by_side = self.matrices[0] @ np.swapaxes(M, 0, 1).reshape(D, B * k)
            return np.ascontiguousarray(np.swapaxes(side_by_side.reshape(D, B, k), 0, 1))
        return np.array([T @ own for T, own in zip(self.matrices, M, strict=True)])


class ScatterSweep:
    """The map from points of problems to the next ones, and the log-likelihoods at the points."""

    def __init__(self, problem: Problem) -> None:
        model, data = problem.model, problem.data
        self.shape = len(problem.unit), model.n_columns
        self.n_features = data.n_features
        self.isotropic = problem.likelihood._is_isotropic
        self.unit = problem.unit[:, None]
        n_noise = 1 if self.isotropic else len(problem.unit)
        limits = np.log(problem.floor[:n_noise]), np.log(problem.ceiling[:n_noise])
        self.low, self.high = limits
        columns = np.eye(model.n_columns)
        self.active = [columns[:, active] for active in problem.active]  # (K, k) of each set

    def __call__(self, sets: Sequence[ScatterStack], points: Array) -> tuple[Array, Array]:
        """Return the log-likelihood at each point, (B,), and its image under a sweep, (B, P)."""
        (D, K), B = self.shape, len(points)
        L = points[:, : D * K].reshape(B, D, K) * self.unit
        log_psi = np.minimum(np.maximum(points[:, D * K :], self.low), self.high)
        precision = np.exp(-log_psi)[:, :, None]  # (B, D or 1, 1)
        log_noise = self.n_features * (log_psi.mean(axis=1) + LOG_2PI)
        M, C = np.zeros((B, K, K)), np.zeros((B, D, K))
        square, weight, value = np.zeros((B, D)), np.zeros(B), np.zeros(B)
        for scatters, active in zip(sets, self.active, strict=True):
            n, own = scatters.n_rows, L @ active
            scaled = own * precision
            A = np.swapaxes(own, 1, 2) @ scaled + np.eye(active.shape[1])
            cov = np.linalg.inv(A)
            product = scatters.product(scaled)
            explained = cov @ (np.swapaxes(scaled, 1, 2) @ product)
            M += active @ (n[:, None, None] * cov + explained @ cov) @ active.T
            C += product @ (cov @ active.T)
            square, weight = square + scatters.squares, weight + n
            quadratic = (scatters.squares * precision[:, :, 0]).sum(axis=1)
            quadratic = quadratic - np.trace(explained, axis1=1, axis2=2)
            value = value - 0.5 * (n * (np.linalg.slogdet(A)[1] + log_noise) + quadratic)
        new = C @ np.linalg.inv(M)
        rest = square - np.einsum("bdk,bdk->bd", new, C)
        if self.isotropic:
            rest = rest.sum(axis=1, keepdims=True) / self.n_features
        log_psi = np.log(np.maximum(rest / weight[:, None], np.exp(self.low)))
        return value, np.hstack([(new / self.unit).reshape(B, -1), log_psi])
