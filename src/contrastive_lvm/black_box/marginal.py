"""Gaussian rows with their latents integrated out: their density, and draws of the latents.

The row step of `rows/masked_rows.py` in JAX: with `A = I + sum_{d observed} l_d l_d' / psi_d` and
`b = sum_d l_d r_d / psi_d`, `h | x ~ N(A^-1 b, A^-1)` and
`-2 ln p(x) = n ln 2 pi + sum_d ln psi_d + ln|A| + sum_d r_d^2 / psi_d - b' A^-1 b`. Complete rows
share A, and their number, mean and scatter say all that their density depends on.
"""

from typing import NamedTuple

from contrastive_lvm._jax import AnyArray, JaxArray, jax, jnp, numpyro
from contrastive_lvm.arrays import Array


class LatentGaussians(NamedTuple):
    """Posterior of the latents of rows, and the marginal density of the rows."""

    mean: JaxArray  # (N, K)
    root: JaxArray  # (N, K, K) Cholesky factor of the precision A
    log_density: JaxArray  # (N,)


def latent_gaussians(
    rows: JaxArray, mean: JaxArray, L: JaxArray, noise: JaxArray
) -> LatentGaussians:
    """Condition the latents of every row on its observed entries; missing ones are NaN."""
    observed = ~jnp.isnan(rows)
    seen, precision = observed.astype(L.dtype), 1.0 / jnp.broadcast_to(noise, rows.shape[1:])
    residual = jnp.where(observed, rows - mean, 0.0)
    D, K = L.shape
    pairs = (L[:, :, None] * L[:, None, :]).reshape(D, K * K)
    A = jnp.eye(K) + ((seen * precision) @ pairs).reshape(len(rows), K, K)
    root = jnp.linalg.cholesky(A)
    b = (residual * precision) @ L
    half = jax.scipy.linalg.solve_triangular(root, b[:, :, None], lower=True)
    h = jax.scipy.linalg.solve_triangular(root, half, lower=True, trans=1)[:, :, 0]
    logdet = 2.0 * jnp.log(jnp.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    constant = seen @ (jnp.log(2.0 * jnp.pi) - jnp.log(precision))
    square = (residual**2) @ precision - (half**2).sum(axis=(1, 2))
    return LatentGaussians(h, root, -0.5 * (constant + logdet + square))


class CompleteRows(NamedTuple):
    """Number, mean and scatter of rows without missing entries, in place of the rows."""

    n: float
    mean: AnyArray  # (D,)
    scatter: AnyArray  # (D, D) about the mean

    @property
    def shape(self) -> tuple[float, int]:
        """Return the shape of the rows."""
        return self.n, len(self.mean)


def complete_rows(rows: Array) -> CompleteRows:
    """Summarise rows without missing entries."""
    mean = rows.mean(axis=0)
    return CompleteRows(float(len(rows)), mean, (rows - mean).T @ (rows - mean))


def _joint_log_density(
    moments: CompleteRows, mean: JaxArray, L: JaxArray, noise: JaxArray
) -> JaxArray:
    """Return the log density of all rows together."""
    n, centre, scatter = moments
    precision, residual = 1.0 / jnp.broadcast_to(noise, mean.shape), centre - mean
    weighted = precision[:, None] * L
    root = jnp.linalg.cholesky(jnp.eye(L.shape[1]) + L.T @ weighted)
    half = jax.scipy.linalg.solve_triangular(root, weighted.T, lower=True)
    logdet = 2.0 * jnp.log(jnp.diagonal(root)).sum() - jnp.log(precision).sum()
    square = (jnp.diagonal(scatter) + n * residual**2) @ precision
    square -= ((half @ scatter) * half).sum() + n * ((half @ residual) ** 2).sum()
    return jnp.asarray(-0.5 * (n * (len(mean) * jnp.log(2.0 * jnp.pi) + logdet) + square))


def marginal_factor(
    name: str,
    rows: AnyArray | CompleteRows,
    mean: JaxArray,
    L: JaxArray,
    noise: JaxArray,
) -> None:
    """Add rows, or their summary, to a NumPyro model with their latents integrated out."""
    if isinstance(rows, CompleteRows):
        numpyro.factor(name, _joint_log_density(rows, mean, L, noise))
    else:
        each = latent_gaussians(jnp.asarray(rows), mean, L, noise).log_density
        numpyro.factor(name, each.sum())
