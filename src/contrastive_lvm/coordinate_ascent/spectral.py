"""Starts: deterministic ones from spectra, random ones for restarts.

Given the shared part `C = S S' + psi` of the covariance, the `W` that maximises the target's
likelihood is closed form: with `R = C^-1/2` and `R cov_x R = V diag(lambda) V'`,
`W = R^-1 V (lambda - 1)^1/2` over the leading eigenpairs (probabilistic PCA in the whitened
space). `S` comes from the leading eigenvectors of the background, or of both sets pooled. Only
products of covariances with a few columns are needed, so every kind of row set starts alike;
features are measured in units of their noise throughout.
"""

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.ard_rank import supported_rank
from contrastive_lvm.rows.data import CovarianceOperator, Product

DENSE_BELOW = 150  # dimensions up to which a full eigendecomposition is as cheap as iterating
POWER_STEPS = 6
OVERSAMPLING = 10
LEAST_NOISE = 1e-3  # share of the variance left to isotropic noise at the start
LEAST_FEATURE_NOISE = 0.05  # of each feature's variance, to its own noise


def spectral_starts(
    target: CovarianceOperator,
    background: CovarianceOperator | None,
    k: int,
    t: int,
    *,
    isotropic: bool,
) -> list[tuple[Array, Array]]:
    """Deterministic starts `(L, psi)`, the most promising first."""
    sources = [_pooled(target, background)]
    if background is not None and k and t:
        sources.insert(0, background)
    return [_start_from(source, target, k, t, isotropic=isotropic) for source in sources]


def sized_start(
    target: CovarianceOperator,
    background: CovarianceOperator | None,
    k: int,
    t: int,
    *,
    isotropic: bool,
    supported: bool,
) -> tuple[Array, Array]:
    """A start `(L, psi)` with no more shared columns than the data supports, if `supported`.

    `S` from the background gives `W`; what `W` leaves of both sets gives the final `S`, and that
    the final `W`. A pooled `S` with columns to spare would take the target's own directions, and
    coordinate ascent is slow to give them back.
    """

    def width(source: CovarianceOperator) -> int:
        return supported_columns(source, k, isotropic=isotropic) if supported else k

    if background is None or t == 0:
        source = _pooled(target, background)
        return _start_from(source, target, width(source), t, isotropic=isotropic)
    first = width(background)
    L, _ = _start_from(background, target, first, t, isotropic=isotropic)
    source = _pooled(_without(target, L[:, first:]), background)
    return _start_from(source, target, width(source), t, isotropic=isotropic)


def supported_columns(source: CovarianceOperator, most: int, *, isotropic: bool) -> int:
    """At least one; features are measured in units of a first guess of their noise."""
    root = np.sqrt(_first_noise(source, isotropic=isotropic))
    values, _ = leading_eigenpairs(_scaled(source, root), len(root), most)
    total = float((source.variance / root**2).sum())
    return max(1, supported_rank(values, total, source.weight, len(root)))


def random_start(
    target: CovarianceOperator,
    background: CovarianceOperator | None,
    K: int,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Loadings in random directions of the data, with half the variance left to the noise."""
    pooled = _pooled(target, background)
    variance = np.maximum(pooled.variance, np.finfo(float).tiny)
    L = pooled.product(rng.standard_normal((len(variance), K)))
    L *= np.sqrt(0.5 * variance.sum() / max(float((L**2).sum()), np.finfo(float).tiny))
    return L, np.full(len(variance), 0.5 * variance.mean())


def _start_from(
    source: CovarianceOperator,
    target: CovarianceOperator,
    k: int,
    t: int,
    *,
    isotropic: bool,
) -> tuple[Array, Array]:
    root = np.sqrt(_first_noise(source, isotropic=isotropic))
    values, V = leading_eigenpairs(_scaled(source, root), len(root), k + t)
    total = float((source.variance / root**2).sum())
    level = max(total - float(values[:k].sum()), LEAST_NOISE * total) / (len(root) - k)
    S = root[:, None] * V[:, :k] * np.sqrt(np.maximum(values[:k] - level, 0.01 * level))
    if isotropic:
        psi = level * root**2
    else:
        rest = source.variance - (S**2).sum(axis=1)
        psi = np.maximum(rest, LEAST_FEATURE_NOISE * np.maximum(source.variance, root**2))
    W = _target_loadings(target, S, psi, t)
    return np.hstack([S, W]), psi


def _first_noise(source: CovarianceOperator, *, isotropic: bool) -> Array:
    """Half of the variance; features that do not vary borrow from the others."""
    variance = source.variance
    mean = float(variance.mean())
    if isotropic:
        return np.full(len(variance), 0.5 * mean)
    return 0.5 * np.where(variance > 1e-24 * mean, variance, mean)


def _target_loadings(target: CovarianceOperator, S: Array, psi: Array, t: int) -> Array:
    root = np.sqrt(psi)
    U, s, _ = np.linalg.svd(S / root[:, None], full_matrices=False)
    shrink = 1.0 / np.sqrt(1.0 + s**2)

    def whiten(M: Array, factor: Array) -> Array:
        return M + U @ ((factor - 1.0)[:, None] * (U.T @ M))

    scaled = _scaled(target, root)
    values, V = leading_eigenpairs(
        lambda M: whiten(scaled(whiten(M, shrink)), shrink), len(root), t
    )
    W: Array = whiten(V * np.sqrt(np.maximum(values - 1.0, 0.01)), 1.0 / shrink)
    return root[:, None] * W


def _scaled(source: CovarianceOperator, root: Array) -> Product:
    """Products with the covariance of `x / root`."""
    return lambda M: source.product(M / root[:, None]) / root[:, None]


def _pooled(
    target: CovarianceOperator, background: CovarianceOperator | None
) -> CovarianceOperator:
    if background is None:
        return target
    share = target.weight / (target.weight + background.weight)
    return CovarianceOperator(
        lambda M: share * target.product(M) + (1.0 - share) * background.product(M),
        share * target.variance + (1.0 - share) * background.variance,
        target.weight + background.weight,
    )


def _without(source: CovarianceOperator, W: Array) -> CovarianceOperator:
    """The covariance less `W W'`; variances stay positive."""
    variance = np.maximum(source.variance - (W**2).sum(axis=1), 1e-3 * source.variance)
    return CovarianceOperator(lambda M: source.product(M) - W @ (W.T @ M), variance, source.weight)


def leading_eigenpairs(product: Product, dim: int, rank: int) -> tuple[Array, Array]:
    """Largest eigenvalues, descending, and eigenvectors of a symmetric operator.

    Exact up to `DENSE_BELOW` dimensions; above, subspace iteration (Halko et al. 2011, alg. 4.4)
    from a fixed random matrix, which is all that a start needs.
    """
    if rank == 0:
        return np.empty(0), np.empty((dim, 0))
    if dim <= DENSE_BELOW or rank + OVERSAMPLING >= dim:
        dense = product(np.eye(dim))
        values, V = np.linalg.eigh((dense + dense.T) / 2.0)
    else:
        V = np.random.default_rng(0).standard_normal((dim, rank + OVERSAMPLING))
        for _ in range(POWER_STEPS):
            V = np.linalg.qr(product(V))[0]
        small = V.T @ product(V)
        values, rotation = np.linalg.eigh((small + small.T) / 2.0)
        V = V @ rotation
    return values[::-1][:rank], V[:, ::-1][:, :rank]
