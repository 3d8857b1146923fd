"""What inference returns: the fitted values and the way there."""

from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.draws import Draws
from contrastive_lvm.linalg import packed
from contrastive_lvm.rows.scale_mixture_rows import Weights


class Posterior(NamedTuple):
    """Fitted values of a linear model in the canonical gauge, and the fit's trace."""

    shared_loadings: Array  # (D, n_shared) S, posterior means under variational Bayes
    target_loadings: Array  # (D, n_target) W
    noise_variance: Array  # (D,) psi, zero where the likelihood has none
    target_mean: Array  # (D,)
    background_mean: Array  # (D,) the target's when no background was given
    bound_trace: Array  # after each accepted sweep; under NUTS log densities of draws
    n_sweeps: int
    converged: bool
    loading_covariance: Array | None = None  # (Q, D) packed, columns [S | W]; None for points
    bound_parts: dict[str, float] | None = None  # named contributions; they sum to the bound
    prior_states: tuple[Any, Any] = (None, None)  # of the priors on S and W
    weights: tuple[Weights, ...] = ()  # E[u] of the rows of each set, under Student-t noise
    df: float | None = None  # degrees of freedom, under Student-t noise
    unit_variance: float = 1.0  # mean variance of the data's features
    dispersion: Array | None = None  # (D,) of negative binomials, zero for other features
    bound_error: float = 0.0  # Monte-Carlo standard error of the bound
    state: Any = None  # of SVI, to go on from
    profile: Array | None = None  # (D,) mean counts of features with size factors, zero elsewhere
    draws: Draws | None = None  # of everything that is not observed, under NUTS

    @property
    def bound(self) -> float:
        """The bound at the end: the log-likelihood for Gaussian noise and flat priors under EM."""
        return float(self.bound_trace[-1])

    def loading_stds(self) -> tuple[Array | None, Array | None]:
        """Posterior standard deviations of S' and W', each None when its block is points."""
        if self.loading_covariance is None:
            return None, None
        k = self.shared_loadings.shape[1]
        diagonal = np.diagonal(packed.full_index(packed.size_of(self.loading_covariance)))
        std = np.sqrt(self.loading_covariance[diagonal])
        shared, target = (part if part.any() else None for part in (std[:k], std[k:]))
        return shared, target
