"""A sweep of EM for complete rows, Gaussian noise and no priors, with little besides its products.

A sweep of `coordinate_ascent.problem` on small scatters spends most of its time between products.
Resampling repeats the same sweep thousands of times, so that it is written out here: with
`A = I + L' psi^-1 L` over the columns that are active in a set of n rows with the scatter T,

    sum_i E[h_i h_i'] = n A^-1 + B' T B,    sum_i r_i E[h_i]' = T B,    B = psi^-1 L A^-1,

summed over the sets to `M` and `C`, the new loadings are `C M^-1` and the new noise is what they
leave of the squares.
"""

from collections.abc import Sequence

import numpy as np

from contrastive_lvm.arrays import LOG_2PI, Array
from contrastive_lvm.coordinate_ascent.problem import Problem
from contrastive_lvm.rows.scatter import DenseScatter


class ScatterSweep:
    """The map from a point of a problem to the next, and the log-likelihood at the point."""

    def __init__(self, problem: Problem) -> None:
        model, data = problem.model, problem.data
        self.shape = len(problem.unit), model.n_columns
        self.n_outside = data.n_features - len(problem.unit)
        self.isotropic = problem.likelihood._is_isotropic
        self.unit = problem.unit[:, None]
        n_noise = 1 if self.isotropic else len(problem.unit)
        limits = np.log(problem.floor[:n_noise]), np.log(problem.ceiling[:n_noise])
        self.low, self.high = limits
        self.active = [slice(None) if len(a) == self.shape[1] else a for a in problem.active]
        self.blocks = [np.ix_(a, a) for a in problem.active]
        self.eyes = [np.eye(len(a)) for a in problem.active]

    def __call__(self, scatters: Sequence[DenseScatter], point: Array) -> tuple[float, Array]:
        """Return the log-likelihood at a point, and where a sweep leads from there."""
        D, K = self.shape
        L = point[: D * K].reshape(D, K) * self.unit
        log_psi = np.minimum(np.maximum(point[D * K :], self.low), self.high)
        precision = np.exp(-log_psi)[:, None]  # (D or 1, 1)
        log_noise = float(log_psi.sum()) if not self.isotropic else self._features * log_psi[0]
        M, C = np.zeros((K, K)), np.zeros((D, K))
        square, weight, value = np.zeros(D), 0.0, 0.0
        for scatter, active, block, eye in zip(
            scatters, self.active, self.blocks, self.eyes, strict=True
        ):
            own, n = L[:, active], scatter.n_rows
            scaled = own * precision
            A = own.T @ scaled + eye
            cov = np.linalg.inv(A)
            product = scatter.matrix @ scaled
            explained = cov @ (scaled.T @ product)
            M[block] += n * cov + explained @ cov
            C[:, active] += product @ cov
            diagonal = scatter.matrix.diagonal()
            square += diagonal
            weight += n
            quadratic = float((diagonal * precision[:, 0]).sum()) - float(explained.trace())
            log_det = float(np.linalg.slogdet(A)[1]) + log_noise + self._features * LOG_2PI
            value -= 0.5 * (n * log_det + quadratic)
        new = np.linalg.solve(M, C.T).T
        rest = square - (new * C).sum(axis=1)
        psi = (
            rest.sum(keepdims=True) / (weight * self._features) if self.isotropic else rest / weight
        )
        log_psi = np.log(np.maximum(psi, np.exp(self.low)))
        return value, np.concatenate([(new / self.unit).ravel(), log_psi])

    @property
    def _features(self) -> int:
        return self.shape[0] + self.n_outside
