"""Automatic relevance determination: columns that the data does not support vanish."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from contrastive_lvm._jax import AnyArray, JaxArray, load, normal_loadings
from contrastive_lvm.arrays import LOG_2PI, Array
from contrastive_lvm.checks import check_positive
from contrastive_lvm.linalg.inverse_gamma import (
    InverseGamma,
    expected_log_prior,
    from_log_moments,
)
from contrastive_lvm.priors.base import LEAST_SHARE, PEAKS_AT_ZERO, LogMoments, Prior

DAMPING = 1e-6  # of rotations between columns of equal size, which gain nothing and vary wildly


@dataclass(frozen=True)
class ARD(Prior[InverseGamma]):
    """A variance for every column: `L_dk ~ N(0, alpha_k)`, `alpha_k ~ IG(a0, b0)`.

    `q(alpha_k) = IG(a0 + D/2, b0 + 1/2 sum_d E[L_dk^2])` (the paper's "cLVM with automatic model
    selection"; Bishop 1999). Columns whose removal raises the bound are dropped during the fit.
    With `drop=False`, the default for counts, they stay, with loadings and latents near zero.

    Parameters
    ----------
    a0, b0 : float
        Shape and rate of the inverse gamma. Estimators read the rate as a multiple of the mean
        variance of the features (of 1 for counts and binary data), so the number of dimensions does
        not depend on the units of the data. In a `density` the rate is in the units of the data.
    drop : bool
        Whether columns without support are dropped.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.ARD()
    ARD(a0=0.001, b0=0.001, drop=True)
    """

    a0: float = 1e-3
    b0: float = 1e-3
    drop: bool = True

    _has_own_columns: ClassVar[bool] = True
    _treats_features_alike: ClassVar[bool] = True
    _why_no_points: ClassVar[str | None] = PEAKS_AT_ZERO
    _loading_site: ClassVar[str | None] = " standard"
    _column_sites: ClassVar[tuple[str, ...]] = ("variance",)

    def __post_init__(self) -> None:
        check_positive("a0", self.a0)
        check_positive("b0", self.b0)
        object.__setattr__(self, "_drops_columns", self.drop)

    def init(self, shape: tuple[int, int]) -> InverseGamma:
        """Return a state with wide posteriors of the variances."""
        return InverseGamma(np.full(shape[1], self.a0 + shape[0] / 2.0), np.ones(shape[1]))

    def update(self, state: InverseGamma, squares: Array) -> InverseGamma:
        """Return the conjugate update."""
        return InverseGamma(state.a, self.b0 + 0.5 * squares.sum(axis=0))

    def precision(self, state: InverseGamma) -> Array:
        """Return `E[1 / alpha_k]`, (1, K)."""
        return state.mean_inverse()[None, :]

    def bound(self, state: InverseGamma, squares: Array) -> float:
        """Return the contribution of the columns and their variances."""
        energy = state.mean_inverse() * squares.sum(axis=0)
        given = -0.5 * len(squares) * (LOG_2PI + state.mean_log()) - 0.5 * energy
        prior = expected_log_prior(state, self.a0, self.b0, np.log(self.b0))
        return float(given.sum()) + prior + state.entropy()

    def sample(self, name: str, shape: tuple[int, int], *, augmented: bool = True) -> JaxArray:
        """Draw variances and loadings from NumPyro sites."""
        numpyro, dist, jnp = load()
        variances = dist.InverseGamma(self.a0, self.b0).expand((shape[1],)).to_event(1)
        variance = numpyro.sample(f"{name} variance", variances)
        return normal_loadings(name, jnp.sqrt(variance), shape, augmented=augmented)

    def _in_units_of(self, variance: float) -> Self:
        return replace(self, b0=self.b0 * variance)

    def _best_coordinates(
        self, loadings: Array, latents: Array, n_rows: float, n_features: int
    ) -> Array:
        """Return the best of three changes of coordinates, so that the bound never falls.

        `L z = (L R)(R^-1 z)` for every invertible R, so a change of coordinates of `q(z)` and
        `q(L)` together leaves the likelihood as it is and moves only priors and entropies.
        Coordinate ascent alone walks along these valleys in very many small steps (Luttinen &
        Ilin 2010). With `Z = sum_i E[z_i z_i']` over N rows, `M = sum_d E[l_d l_d']` over D
        features and the variances at their best, the part of the bound that moves is

            (D - N) ln|R| - 1/2 tr(R^-1 Z R^-T) - (a0 + D/2) sum_k ln(b0 + 1/2 [R' M R]_kk).

        It is stationary at R = I where M and Z are diagonal (Hadamard's inequality; M as far as
        its diagonal has distinct values) with `Z_kk = N - D + (2 a0 + D) M_kk / (2 b0 + M_kk)`.
        Candidates are: Z made right for the present M, then M rotated towards a diagonal; this
        rotation alone; no change. All are smooth functions of M and Z, which acceleration needs.
        """
        M, Z, N, D = loadings, latents, n_rows, n_features
        size = np.diagonal(M)
        wanted = N - D + (2.0 * self.a0 + D) * size / (2.0 * self.b0 + size)
        values, U = np.linalg.eigh(Z)
        root = (U * np.sqrt(np.maximum(values, 0.0))) @ U.T
        scaled = root / np.sqrt(np.maximum(wanted, 0.01 * N))
        rescaled = scaled @ _rotation_towards_diagonal(scaled.T @ M @ scaled)
        candidates = [rescaled, _rotation_towards_diagonal(M), np.eye(len(M))]

        def gain(R: Array) -> float:
            inverse = np.linalg.inv(R)
            logdet = float(np.linalg.slogdet(R)[1])
            spread = float(np.log(self.b0 + 0.5 * ((M @ R) * R).sum(axis=0)).sum())
            energy = float(((inverse @ Z) * inverse).sum())
            return (D - N) * logdet - 0.5 * energy - (self.a0 + D / 2) * spread

        return max(candidates, key=gain)

    def _site_values(self, L: Array, unit: float, *, augmented: bool) -> dict[str, Array]:
        return {"variance": np.maximum((L**2).mean(axis=0), LEAST_SHARE * unit)}

    def _site_variance(self, values: Mapping[str, AnyArray], n_features: int) -> AnyArray:
        return values["variance"]

    def _state_from(
        self, log_moments: Callable[[str], LogMoments | None], shape: tuple[int, int]
    ) -> InverseGamma:
        found = log_moments("variance")
        return self.init(shape) if found is None else from_log_moments(*found)


def _rotation_towards_diagonal(A: Array) -> Array:
    """Return an orthogonal O with `O' A O` nearer to a diagonal: a damped Jacobi step."""
    A = A / A.max()  # positive definite; without the scaling its squares may overflow
    size = np.diagonal(A)
    apart = size - size[:, None]  # antisymmetric, as the angles are
    angle = A * apart / (apart**2 + DAMPING * np.outer(size, size))
    half = 0.5 * angle
    eye = np.eye(len(A))
    return np.asarray(np.linalg.solve(eye - half, eye + half), dtype=np.float64)  # Cayley's
