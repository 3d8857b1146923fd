"""Gaussian distributions of many short vectors: draws, and their densities.

The log density of q is taken at the draw with its own parameters held fixed: the same value, and a
gradient without bias whose noise vanishes where q is the posterior (Roeder, Wu & Duvenaud 2017).
"""

from typing import NamedTuple

import numpy as np

from contrastive_lvm._jax import AnyArray, JaxArray, jax, jnp
from contrastive_lvm.arrays import LOG_2PI

MOST_WRITTEN_OUT = 6  # columns of a triangular system that compiles faster written out


class RowGaussians(NamedTuple):
    """Gaussian distributions of N vectors of K values, `u = loc + diag(std) (I + T) noise`."""

    loc: AnyArray  # (N, K)
    log_std: AnyArray  # (N, K)
    root: AnyArray | None  # (N, K(K-1)/2) strictly lower T, packed by rows; None for zero

    def at(self, places: AnyArray | None) -> "RowGaussians":
        """Return those of some vectors; of all for None."""
        if places is None:
            return self
        root = None if self.root is None else self.root[places]
        return RowGaussians(self.loc[places], self.log_std[places], root)


class StandardNormals:
    """Standard normals, drawn at once and handed out in parts: one generator to compile."""

    def __init__(self, n: int, key: AnyArray, dtype: "np.dtype[np.floating]") -> None:
        self.values: JaxArray = jax.random.normal(key, (n,), dtype)
        self.used = 0

    def take(self, shape: tuple[int, ...]) -> JaxArray:
        """Return the next ones."""
        n = int(np.prod(shape))
        self.used += n
        return self.values[self.used - n : self.used].reshape(shape)


def draw_rows(rows: RowGaussians, normals: StandardNormals) -> tuple[JaxArray, JaxArray]:
    """Draw from each distribution, (N, K), with the log density of the draw, entry by entry.

    The value of the log density is that of the noise, and its gradient in u alone is
    `-diag(1/std) (I + T)^-T noise`.
    """
    stop = jax.lax.stop_gradient
    noise, log_std = normals.take(rows.loc.shape), stop(rows.log_std)
    mixed, pull = noise, noise
    if rows.root is not None:
        T = _unpacked(rows.root, noise.shape[1])
        mixed = noise + jnp.einsum("nij,nj->ni", T, noise)
        pull = _transposed_solve(stop(T), noise)
    u = jnp.asarray(rows.loc) + jnp.exp(rows.log_std) * mixed
    value = -0.5 * (noise**2 + LOG_2PI) - log_std
    return u, value - (u - stop(u)) * pull * jnp.exp(-log_std)


def _unpacked(root: AnyArray, K: int) -> JaxArray:
    """Return strictly lower triangular matrices, (N, K, K), from their rows, (N, K(K-1)/2)."""
    place = np.full((K, K), root.shape[1])
    place[np.tril_indices(K, -1)] = np.arange(root.shape[1])
    zero = jnp.zeros((root.shape[0], 1), root.dtype)
    return jnp.concatenate([root, zero], axis=1)[:, place]


def _transposed_solve(T: JaxArray, noise: JaxArray) -> JaxArray:
    """Return `(I + T)^-T noise` for (N, K, K) strictly lower triangular T.

    Written out for few columns, which compiles to less than a call of LAPACK for every row.
    """
    K = noise.shape[1]
    if K > MOST_WRITTEN_OUT:
        solve = jax.scipy.linalg.solve_triangular
        return solve(T, noise[:, :, None], trans=1, lower=True, unit_diagonal=True)[:, :, 0]
    columns: dict[int, JaxArray] = {}
    for k in reversed(range(K)):
        value = noise[:, k]
        for j in range(k + 1, K):
            value = value - T[:, j, k] * columns[j]
        columns[k] = value
    return jnp.stack([columns[k] for k in range(K)], axis=1)
