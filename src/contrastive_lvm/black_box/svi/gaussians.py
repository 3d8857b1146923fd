"""Gaussian distributions of many short vectors: draws, and their densities.

The log density of q is taken at the draw with its own parameters held fixed: the same value, and a
gradient without bias whose noise vanishes where q is the posterior (Roeder, Wu & Duvenaud 2017).
"""

from typing import NamedTuple

import numpy as np

from contrastive_lvm._jax import AnyArray, JaxArray, dist, jax, jnp
from contrastive_lvm.arrays import LOG_2PI, Array

MOST_WRITTEN_OUT = 8  # columns of a triangular system that is faster written out


class Gaussians(NamedTuple):
    """Gaussian distributions of N vectors of K values, `u = loc + diag(std) (I + T) noise`.

    A single vector may have a covariance of low rank instead, `diag(std) (I + F F') diag(std)`.
    """

    loc: AnyArray  # (N, K)
    log_std: AnyArray  # (N, K)
    root: AnyArray | None = None  # (N, K(K-1)/2) strictly lower T, packed by rows; None for zero
    factor: AnyArray | None = None  # (K, rank) F

    @property
    def n_normals(self) -> int:
        """Return how many standard normals a draw takes."""
        rank = 0 if self.factor is None else self.factor.shape[1]
        return int(np.prod(self.loc.shape)) + rank

    def at(self, places: AnyArray | None) -> "Gaussians":
        """Return those of some vectors; of all for None."""
        if places is None:
            return self
        root = None if self.root is None else self.root[places]
        return Gaussians(self.loc[places], self.log_std[places], root)

    def draw(self, normals: JaxArray) -> tuple[JaxArray, JaxArray]:
        """Draw from each, (N, K), with the log density of the draw, by entry or in one number.

        The value of the log density is that of the noise, and its gradient in u alone is
        `-diag(1/std) (I + T)^-T noise`.
        """
        if self.factor is not None:
            return self._draw_of_low_rank(jnp.asarray(self.factor), normals)
        stop = jax.lax.stop_gradient
        noise, log_std = normals.reshape(self.loc.shape), stop(self.log_std)
        mixed = pull = noise
        if self.root is not None:
            T = _unpacked(self.root, noise.shape[1])
            mixed = noise + jnp.einsum("nij,nj->ni", T, noise)
            pull = _transposed_solve(stop(T), noise)
        u = jnp.asarray(self.loc) + jnp.exp(self.log_std) * mixed
        value = -0.5 * (noise**2 + LOG_2PI) - log_std
        return u, value - (u - stop(u)) * pull * jnp.exp(-log_std)

    def _draw_of_low_rank(self, F: JaxArray, normals: JaxArray) -> tuple[JaxArray, JaxArray]:
        stop, loc, std = jax.lax.stop_gradient, self.loc[0], jnp.exp(self.log_std[0])
        noise, others = normals[: len(std)], normals[len(std) :]
        u = loc + std * (noise + F @ others)
        q = dist.LowRankMultivariateNormal(stop(loc), stop(std[:, None] * F), stop(std) ** 2)
        return u[None], q.log_prob(u)

    def roots(self) -> Array:
        """Return the matrices `diag(std) (I + T)`, (N, K, K)."""
        N, K = self.loc.shape
        roots = np.zeros((N, K, K))
        roots[:, np.arange(K), np.arange(K)] = 1.0
        if self.root is not None:
            i, j = np.tril_indices(K, -1)
            roots[:, i, j] = self.root
        return roots * np.exp(np.asarray(self.log_std, dtype=np.float64))[:, :, None]


def _unpacked(root: AnyArray, K: int) -> JaxArray:
    """Return strictly lower triangular matrices, (N, K, K), from their rows, (N, K(K-1)/2)."""
    place = np.full((K, K), root.shape[1])
    place[np.tril_indices(K, -1)] = np.arange(root.shape[1])
    zero = jnp.zeros((root.shape[0], 1), root.dtype)
    return jnp.concatenate([root, zero], axis=1)[:, place]


def _transposed_solve(T: JaxArray, noise: JaxArray) -> JaxArray:
    """Return `(I + T)^-T noise` of every row, the last column first."""
    K, columns = noise.shape[1], noise
    if K > MOST_WRITTEN_OUT:
        for j in reversed(range(1, K)):
            columns = columns - T[:, j] * columns[:, j : j + 1]
        return columns
    found: list[JaxArray] = []
    for k in reversed(range(K)):
        later = zip(range(K - 1, k, -1), found, strict=True)
        found.append(noise[:, k] - sum((T[:, j, k] * x for j, x in later), jnp.zeros(())))
    return jnp.stack(found[::-1], axis=1)
