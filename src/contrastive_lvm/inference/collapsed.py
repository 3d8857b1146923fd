"""Gaussian rows with their latents integrated out: their density, and draws of the latents.

The row step of `core/rows.py` in JAX: with `A = I + sum_{d observed} l_d l_d' / psi_d` and
`b = sum_d l_d r_d / psi_d`, `h | x ~ N(A^-1 b, A^-1)` and
`-2 ln p(x) = n ln 2 pi + sum_d ln psi_d + ln|A| + sum_d r_d^2 / psi_d - b' A^-1 b`.
"""

from typing import Any, NamedTuple

from contrastive_lvm.core.blackbox import load, module


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
    pairs = (L[:, :, None] * L[:, None, :]).reshape(len(L), -1)
    A = jnp.eye(L.shape[1]) + ((seen * precision) @ pairs).reshape(-1, L.shape[1], L.shape[1])
    root = jnp.linalg.cholesky(A)
    b = (residual * precision) @ L
    half = linalg.solve_triangular(root, b[:, :, None], lower=True)
    h = linalg.solve_triangular(root, half, lower=True, trans=1)[:, :, 0]
    logdet = 2.0 * jnp.log(jnp.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    constant = seen @ (jnp.log(2.0 * jnp.pi) - jnp.log(precision))
    square = (residual**2) @ precision - (half**2).sum(axis=(1, 2))
    return RowLaw(h, root, -0.5 * (constant + logdet + square))


def marginal_factor(name: str, rows: Any, mean: Any, L: Any, noise: Any) -> None:
    """A NumPyro factor of the rows."""
    load().numpyro.factor(name, row_law(rows, mean, L, noise).log_density.sum())
