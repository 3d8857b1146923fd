"""Slow, obvious references: dense covariances, one row at a time, nothing shared with the package.

The letters are the paper's: `x = S z + W t + mean + noise`, `y = S z + mean + noise`. Latents are
stacked as `h = [t; z]` with loadings `L = [W | S]`, the order in which the estimator reports them.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

Array = npt.NDArray[np.float64]


class Point(NamedTuple):
    """Parameters of the model; `background_mean` is unused when there is no background."""

    S: Array  # (D, k)
    W: Array  # (D, t)
    psi: Array  # (D,)
    mean: Array  # (D,)
    background_mean: Array  # (D,)


class Side(NamedTuple):
    """What the rows of one set follow: `x ~ N(mean, L L' + diag(psi))`."""

    L: Array
    mean: Array
    psi: Array

    @property
    def cov(self) -> Array:
        dense: Array = self.L @ self.L.T + np.diag(self.psi)
        return dense


def sides(point: Point) -> tuple[Side, Side]:
    """The target's and the background's side."""
    L = np.hstack([point.W, point.S])
    return Side(L, point.mean, point.psi), Side(point.S, point.background_mean, point.psi)


def fitted_point(model: Any) -> Point:
    """The parameters that a fitted `ContrastiveLVM` publishes."""
    D = model.n_features_in_
    psi = np.broadcast_to(np.asarray(model.noise_variance_, dtype=float), (D,)).copy()
    S, W = model.shared_components_.T, model.target_components_.T
    return Point(S, W, psi, model.mean_, model.background_mean_)


def log_densities(side: Side, X: Array) -> Array:
    """Log-density of the observed entries of each row; 0 for a row without any."""
    values, cov = np.zeros(len(X)), side.cov
    for i, x in enumerate(X):
        o = ~np.isnan(x)
        if o.any():
            values[i] = multivariate_normal(side.mean[o], cov[np.ix_(o, o)]).logpdf(x[o])
    return values


def log_likelihood(point: Point, X: Array, B: Array | None) -> float:
    """Log-likelihood of both sets."""
    total = float(log_densities(sides(point)[0], X).sum())
    if B is not None:
        total += float(log_densities(sides(point)[1], B).sum())
    return total


class Conditional(NamedTuple):
    """Posterior of the latents and of all features of one row, given its observed entries."""

    mean: Array  # (K,)
    cov: Array  # (K, K)
    entries: Array  # (D,) observed entries as they are
    std: Array  # (D,) zero where observed


def conditional(side: Side, x: Array) -> Conditional:
    """Condition the joint normal of `(h, x)` on what is observed of x."""
    K = side.L.shape[1]
    joint_mean = np.concatenate([np.zeros(K), side.mean])
    joint = np.block([[np.eye(K), side.L.T], [side.L, side.cov]])
    seen = np.concatenate([np.zeros(K, dtype=bool), ~np.isnan(x)])
    gain = joint[:, seen] @ np.linalg.pinv(joint[np.ix_(seen, seen)], hermitian=True)
    mean = joint_mean + gain @ (x[seen[K:]] - joint_mean[seen])
    cov = joint - gain @ joint[seen]
    std = np.sqrt(np.where(seen[K:], 0.0, np.diag(cov)[K:]))
    return Conditional(mean[:K], cov[:K, :K], np.where(seen[K:], x, mean[K:]), std)


# --- direct maximisation of the marginal likelihood --------------------------------------------


class Shape(NamedTuple):
    """How a flat vector of parameters is cut."""

    D: int
    k: int
    t: int
    isotropic: bool
    has_background: bool

    def pack(self, point: Point) -> Array:
        psi = point.psi[:1] if self.isotropic else point.psi
        parts = [point.S.ravel(), point.W.ravel(), np.log(psi), point.mean]
        return np.concatenate([*parts, point.background_mean] if self.has_background else parts)

    def unpack(self, theta: Array) -> Point:
        noise = 1 if self.isotropic else self.D
        sizes = [self.D * self.k, self.D * self.t, noise, self.D]
        S, W, log_psi, mean, rest = np.split(theta, np.cumsum(sizes))
        psi = np.broadcast_to(np.exp(log_psi), (self.D,)).copy()
        other = rest if self.has_background else mean
        return Point(S.reshape(self.D, self.k), W.reshape(self.D, self.t), psi, mean, other)


def shape_of(point: Point, *, isotropic: bool, has_background: bool = True) -> Shape:
    return Shape(len(point.psi), point.S.shape[1], point.W.shape[1], isotropic, has_background)


def _by_pattern(X: Array) -> Iterator[tuple[npt.NDArray[np.bool_], Array]]:
    patterns, index = np.unique(~np.isnan(X), axis=0, return_inverse=True)
    for j, o in enumerate(patterns):
        if o.any():
            yield o, X[index.ravel() == j][:, o]


def side_gradient(side: Side, X: Array) -> tuple[float, Array, Array]:
    """Log-likelihood of a set and its derivatives in the covariance and in the mean."""
    cov = side.cov
    value, d_cov, d_mean = 0.0, np.zeros_like(cov), np.zeros_like(side.mean)
    for o, rows in _by_pattern(X):
        precision = np.linalg.inv(cov[np.ix_(o, o)])
        R = rows - side.mean[o]
        Z = R @ precision
        logdet = np.linalg.slogdet(precision)[1]
        value += 0.5 * (len(R) * (logdet - o.sum() * np.log(2.0 * np.pi)) - float((R * Z).sum()))
        d_cov[np.ix_(o, o)] += 0.5 * (Z.T @ Z - len(R) * precision)
        d_mean[o] += Z.sum(axis=0)
    return value, d_cov, d_mean


def gradient(theta: Array, shape: Shape, X: Array, B: Array | None) -> tuple[float, Array]:
    """Marginal log-likelihood of both sets and its gradient in `theta`."""
    point = shape.unpack(theta)
    target, background = sides(point)
    value, d_cov, d_mean = side_gradient(target, X)
    d_W, d_S, d_psi = 2.0 * d_cov @ point.W, 2.0 * d_cov @ point.S, np.diag(d_cov).copy()
    d_other = np.zeros_like(d_mean)
    if B is not None:
        more, d_cov, d_other = side_gradient(background, B)
        value, d_S, d_psi = value + more, d_S + 2.0 * d_cov @ point.S, d_psi + np.diag(d_cov)
    d_log = point.psi * d_psi
    d_log = np.array([d_log.sum()]) if shape.isotropic else d_log
    parts = [d_S.ravel(), d_W.ravel(), d_log, d_mean]
    return value, np.concatenate([*parts, d_other] if shape.has_background else parts)


class Optimum(NamedTuple):
    """The best of several direct maximisations."""

    point: Point
    value: float


def maximise(shape: Shape, X: Array, B: Array | None, *, n_starts: int, seed: int) -> Optimum:
    """L-BFGS-B on the marginal likelihood from random starts; the best end."""
    rng, best = np.random.default_rng(seed), None
    sets = [X] if B is None else [X, B]
    spread = float(np.mean([np.nanvar(rows) for rows in sets])) ** 0.5
    means = [np.nanmean(rows, axis=0) for rows in sets]

    def negative(theta: Array) -> tuple[float, Array]:
        value, slope = gradient(theta, shape, X, B)
        return -value, -slope

    for _ in range(n_starts):
        S = 0.7 * spread * rng.standard_normal((shape.D, shape.k))
        W = 0.7 * spread * rng.standard_normal((shape.D, shape.t))
        start = shape.pack(Point(S, W, np.full(shape.D, spread**2), means[0], means[-1]))
        options: Any = {"maxiter": 20_000, "maxfun": 20_000, "ftol": 1e-14, "gtol": 1e-7}
        end = minimize(negative, start, jac=True, method="L-BFGS-B", options=options)
        if best is None or -float(end.fun) > best.value:
            best = Optimum(shape.unpack(np.asarray(end.x, dtype=np.float64)), -float(end.fun))
    assert best is not None
    return best


# --- M-steps ------------------------------------------------------------------------------------


def joint_update(point: Point, X: Array, B: Array, *, isotropic: bool) -> Point:
    """One exact EM step, row by row: regress each feature on `E[h]` with `E[h h']`, means too.

    The latents are extended by a constant 1 for each set, so the means are two more loadings.
    """
    target, background = sides(point)
    (D, t), k = point.W.shape, point.S.shape[1]
    size = t + k + 2
    moments, crosses = np.zeros((D, size, size)), np.zeros((D, size))
    squares, counts = np.zeros(D), np.zeros(D)
    for rows, side, columns in ((X, target, np.arange(t + k)), (B, background, t + np.arange(k))):
        one = size - 2 if rows is X else size - 1
        for x in rows:
            c = conditional(side, x)
            mean, second = np.zeros(size), np.zeros((size, size))
            mean[columns], mean[one] = c.mean, 1.0
            second[np.ix_(columns, columns)] = c.cov
            second += np.outer(mean, mean)
            for d in np.flatnonzero(~np.isnan(x)):
                moments[d] += second
                crosses[d] += x[d] * mean
                squares[d] += x[d] ** 2
                counts[d] += 1.0
    C = np.array([np.linalg.solve(m, c) for m, c in zip(moments, crosses, strict=True)])
    left = squares - np.einsum("dk,dk->d", C, crosses)
    psi = np.full(D, left.sum() / counts.sum()) if isotropic else left / counts
    return Point(C[:, t : t + k], C[:, :t], psi, C[:, -2], C[:, -1])


def scatter_about_mean(X: Array) -> Array:
    centred = X - X.mean(axis=0)
    product: Array = centred.T @ centred
    return product


def orthogonal_update(point: Point, X: Array, B: Array) -> tuple[Array, Array]:
    """The paper's simplified updates of `S` and `W` (main text), with their misprints corrected.

    `I - S M^-1 S'` with the transpose, residuals `x - mean - S E[z]`, and scatters in place of
    covariances, so that the noise terms carry the numbers of rows. They suppose `W' S = 0`, and
    each holds the other block at its old value.
    """
    S, W, noise = point.S, point.W, float(point.psi[0])
    T, other, D = scatter_about_mean(X), scatter_about_mean(B), len(S)
    M = noise * np.eye(S.shape[1]) + S.T @ S
    R = noise * np.eye(W.shape[1]) + W.T @ W
    without_W = np.eye(D) - W @ np.linalg.solve(R, W.T)
    without_S = np.eye(D) - S @ np.linalg.solve(M, S.T)
    n, both = len(X), len(X) + len(B)
    right_S = both * noise * np.eye(S.shape[1]) + np.linalg.solve(M, S.T @ (other + T) @ S)
    right_W = n * noise * np.eye(W.shape[1]) + np.linalg.solve(R, W.T @ T @ W)
    new_S: Array = (other + without_W @ T) @ S @ np.linalg.inv(right_S)
    new_W: Array = without_S @ T @ W @ np.linalg.inv(right_W)
    return new_S, new_W


# --- data ---------------------------------------------------------------------------------------


def planted(
    seed: int,
    *,
    n: int = 60,
    m: int = 50,
    D: int = 7,
    k: int = 2,
    t: int = 1,
    noise: str = "isotropic",
    signal: float = 1.0,
) -> tuple[Point, Array, Array]:
    """Parameters and both sets drawn from the model."""
    rng = np.random.default_rng(seed)
    S, W = signal * rng.standard_normal((D, k)), signal * rng.standard_normal((D, t))
    psi = np.full(D, 0.5) if noise == "isotropic" else rng.uniform(0.2, 1.0, D)
    point = Point(S, W, psi, rng.normal(0.0, 2.0, D), rng.normal(0.0, 2.0, D))
    X, B = draw(point, n, m, rng)
    return point, X, B


def draw(point: Point, n: int, m: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows of the target and of the background."""
    rows = []
    for side, size in zip(sides(point), (n, m), strict=True):
        h = rng.standard_normal((size, side.L.shape[1]))
        noise = rng.standard_normal((size, len(side.psi))) * np.sqrt(side.psi)
        rows.append(side.mean + h @ side.L.T + noise)
    return rows[0], rows[1]


def with_missing(X: Array, share: float, seed: int) -> Array:
    """A copy with entries missing at random, at least one entry left in every column."""
    rng = np.random.default_rng(seed)
    missing = rng.random(X.shape) < share
    missing[rng.integers(len(X), size=X.shape[1]), np.arange(X.shape[1])] = False
    return np.where(missing, np.nan, X)


# Shares of missing entries in the target and in the background.
MISSING = {
    "complete": (0.0, 0.0),
    "target": (0.2, 0.0),
    "background": (0.0, 0.2),
    "both": (0.2, 0.2),
}


def sets_with_missing(X: Array, B: Array, where: str, seed: int = 0) -> tuple[Array, Array]:
    """Both sets with missing entries as the table `MISSING` says."""
    in_target, in_background = MISSING[where]
    return with_missing(X, in_target, seed + 1), with_missing(B, in_background, seed + 2)


# --- derivatives --------------------------------------------------------------------------------


def slopes(function: Callable[[Array], float], at: Array, *, step: float) -> Array:
    """Central differences in each entry."""
    result = np.zeros_like(at)
    for i in np.ndindex(*at.shape):
        more, less = at.copy(), at.copy()
        more[i], less[i] = at[i] + step, at[i] - step
        result[i] = (function(more) - function(less)) / (2.0 * step)
    return result
