"""Gaussian rows with their latents integrated out: their density, and draws of the latents.

The row step of `rows/masked_rows.py` in JAX: with `A = I + sum_{d observed} l_d l_d' / psi_d` and
`b = sum_d l_d r_d / psi_d`, `h | x ~ N(A^-1 b, A^-1)` and
`-2 ln p(x) = n ln 2 pi + sum_d ln psi_d + ln|A| + sum_d r_d^2 / psi_d - b' A^-1 b`. Complete rows
share A, and their number, mean and scatter say all that their density depends on.
"""

from typing import Any, NamedTuple

from contrastive_lvm._jax import load, module
from contrastive_lvm.arrays import Array


class RowLaw(NamedTuple):
    """The posterior of the latents of rows, and the density of the rows."""

    mean: Any  # (N, K)
    root: Any  # (N, K, K) Cholesky factor of the precision A
    log_density: Any  # (N,)


def row_law(rows: Any, mean: Any, L: Any, noise: Any) -> RowLaw:
    """Of every row, missing entries (NaN) left out."""
    jnp, linalg = load().jnp, module("jax.scipy.linalg")
    observed = ~jnp.isnan(rows)
    seen, precision = observed.astype(L.dtype), 1.0 / jnp.broadcast_to(noise, rows.shape[1:])
    residual = jnp.where(observed, rows - mean, 0.0)
    D, K = L.shape
    pairs = (L[:, :, None] * L[:, None, :]).reshape(D, K * K)
    A = jnp.eye(K) + ((seen * precision) @ pairs).reshape(len(rows), K, K)
    root = jnp.linalg.cholesky(A)
    b = (residual * precision) @ L
    half = linalg.solve_triangular(root, b[:, :, None], lower=True)
    h = linalg.solve_triangular(root, half, lower=True, trans=1)[:, :, 0]
    logdet = 2.0 * jnp.log(jnp.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    constant = seen @ (jnp.log(2.0 * jnp.pi) - jnp.log(precision))
    square = (residual**2) @ precision - (half**2).sum(axis=(1, 2))
    return RowLaw(h, root, -0.5 * (constant + logdet + square))


class Moments(NamedTuple):
    """Complete rows, in place of the rows themselves."""

    n: Any
    mean: Any  # (D,)
    scatter: Any  # (D, D) about the mean

    @property
    def shape(self) -> tuple[Any, int]:
        """Of the rows."""
        return self.n, len(self.mean)


def moments_of(rows: Array) -> Moments:
    """Of rows without missing entries."""
    mean = rows.mean(axis=0)
    return Moments(float(len(rows)), mean, (rows - mean).T @ (rows - mean))


def moments_log_density(moments: Moments, mean: Any, L: Any, noise: Any) -> Any:
    """Of all rows together."""
    jnp, linalg = load().jnp, module("jax.scipy.linalg")
    n, centre, scatter = moments
    precision, residual = 1.0 / jnp.broadcast_to(noise, mean.shape), centre - mean
    weighted = precision[:, None] * L
    root = jnp.linalg.cholesky(jnp.eye(L.shape[1]) + L.T @ weighted)
    half = linalg.solve_triangular(root, weighted.T, lower=True)
    logdet = 2.0 * jnp.log(jnp.diagonal(root)).sum() - jnp.log(precision).sum()
    square = (jnp.diagonal(scatter) + n * residual**2) @ precision
    square -= ((half @ scatter) * half).sum() + n * ((half @ residual) ** 2).sum()
    return -0.5 * (n * (len(mean) * jnp.log(2.0 * jnp.pi) + logdet) + square)


def marginal_factor(name: str, rows: Any, mean: Any, L: Any, noise: Any) -> None:
    """A NumPyro factor of rows, or of their moments."""
    numpyro, _, jnp = load()
    if isinstance(rows, Moments):
        numpyro.factor(name, moments_log_density(rows, mean, L, noise))
    else:
        numpyro.factor(name, row_law(jnp.asarray(rows), mean, L, noise).log_density.sum())
