"""A change of latent coordinates that raises the bound, in closed form.

`L z = (L R)(R^-1 z)` for every invertible R, so a change of coordinates of `q(z)` and `q(L)`
together leaves the likelihood as it is and moves only priors and entropies. Coordinate ascent
alone walks along these valleys in very many small steps (Luttinen & Ilin 2010). With
`Z = sum_i E[z_i z_i']` over N rows, `M = sum_d E[l_d l_d']` over D features and ARD's
`alpha_k ~ IG(a0, b0)` at its best, the part of the bound that moves is

    (D - N) ln|R| - 1/2 tr(R^-1 Z R^-T) - (a0 + D/2) sum_k ln(b0 + 1/2 [R' M R]_kk).

It is stationary at R = I where M and Z are diagonal (Hadamard's inequality; M as far as its
diagonal has distinct values) with `Z_kk = N - D + (2 a0 + D) M_kk / (2 b0 + M_kk)`.
"""

import numpy as np

from contrastive_lvm.arrays import Array

DAMPING = 1e-6  # of turns between columns of equal size, which gain nothing and vary wildly


def best_turn(M: Array, Z: Array, n_rows: float, n_features: int, a0: float, b0: float) -> Array:
    """R (K, K): Z made right for the present M, then M turned towards a diagonal.

    Of this turn, its orthogonal part alone, and none, the best is taken, so that the bound never
    falls. All three are smooth functions of M and Z, which acceleration needs.
    """
    size = np.diagonal(M)
    wanted = n_rows - n_features + (2.0 * a0 + n_features) * size / (2.0 * b0 + size)
    values, U = np.linalg.eigh(Z)
    root = (U * np.sqrt(np.maximum(values, 0.0))) @ U.T
    scaled = root / np.sqrt(np.maximum(wanted, 0.01 * n_rows))
    eye = np.eye(len(M))
    turns = [scaled @ _towards_diagonal(scaled.T @ M @ scaled), _towards_diagonal(M), eye]

    def gain(R: Array) -> float:
        inverse = np.linalg.inv(R)
        logdet = float(np.linalg.slogdet(R)[1])
        spread = float(np.log(b0 + 0.5 * ((M @ R) * R).sum(axis=0)).sum())
        energy = float(((inverse @ Z) * inverse).sum())
        return (n_features - n_rows) * logdet - 0.5 * energy - (a0 + n_features / 2) * spread

    return max(turns, key=gain)


def _towards_diagonal(A: Array) -> Array:
    """An orthogonal O with `O' A O` nearer to a diagonal: a damped Jacobi step for all pairs."""
    size = np.diagonal(A)
    apart = size - size[:, None]  # antisymmetric, as the angles are
    angle = A * apart / (apart**2 + DAMPING * np.outer(size, size))
    half = 0.5 * angle
    eye = np.eye(len(A))
    return np.asarray(np.linalg.solve(eye - half, eye + half), dtype=np.float64)  # Cayley's
