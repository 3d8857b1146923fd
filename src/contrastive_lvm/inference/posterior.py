"""What inference returns: point values and the way there."""

from typing import NamedTuple

from contrastive_lvm.core.types import Array


class Posterior(NamedTuple):
    """Fitted parameters of a linear model in the canonical gauge, and the fit's trace."""

    shared_loadings: Array  # (D, n_shared) S
    target_loadings: Array  # (D, n_target) W
    noise_variance: Array  # (D,) psi
    target_mean: Array  # (D,)
    background_mean: Array  # (D,) the target's when no background was given
    bound_trace: Array  # log-likelihood after each accepted sweep
    n_sweeps: int
    converged: bool

    @property
    def bound(self) -> float:
        """Log-likelihood of both sets at the fitted parameters."""
        return float(self.bound_trace[-1])
