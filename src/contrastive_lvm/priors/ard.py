"""Automatic relevance determination: columns that the data does not support vanish."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from contrastive_lvm._jax import load, normal_loadings
from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_positive
from contrastive_lvm.linalg.inverse_gamma import InverseGamma, expected_log_prior

LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class ARD:
    """A variance for every column: `L_dk ~ N(0, alpha_k)`, `alpha_k ~ IG(a0, b0)`.

    `q(alpha_k) = IG(a0 + D/2, b0 + 1/2 sum_d E[L_dk^2])` (the paper's "cLVM with automatic model
    selection"; Bishop 1999). Columns whose removal raises the bound are dropped during the fit.

    Parameters
    ----------
    a0, b0 : float
        Shape and rate of the inverse gamma.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.ARD()
    ARD(a0=0.001, b0=0.001)
    """

    a0: float = 1e-3
    b0: float = 1e-3

    def __post_init__(self) -> None:
        check_positive("a0", self.a0)
        check_positive("b0", self.b0)

    def init(self, shape: tuple[int, int]) -> InverseGamma:
        """Wide variances."""
        return InverseGamma(np.full(shape[1], self.a0 + shape[0] / 2.0), np.ones(shape[1]))

    def update(self, state: InverseGamma, squares: Array) -> InverseGamma:
        """Conjugate."""
        return InverseGamma(state.a, self.b0 + 0.5 * squares.sum(axis=0))

    def precision(self, state: InverseGamma) -> Array:
        """`E[1 / alpha_k]`, (1, K)."""
        return state.mean_inverse()[None, :]

    def bound(self, state: InverseGamma, squares: Array) -> float:
        """Of the columns and their variances."""
        D = len(squares)
        given = -0.5 * D * (LOG_2PI + state.mean_log()) - 0.5 * state.mean_inverse() * squares.sum(
            axis=0
        )
        prior = expected_log_prior(state, self.a0, self.b0, np.log(self.b0))
        return float(given.sum()) + prior + state.entropy()

    def sample(self, name: str, shape: tuple[int, int], *, augmented: bool = True) -> Any:
        """NumPyro sites of the variances and the loadings."""
        numpyro, dist, jnp = load()
        law = dist.InverseGamma(self.a0, self.b0).expand((shape[1],)).to_event(1)
        variance = numpyro.sample(f"{name} variance", law)
        return normal_loadings(name, jnp.sqrt(variance), shape, augmented=augmented)
