"""Predictions: one row step with fitted parameters, a block of rows at a time.

Missing entries are marginalised exactly, never imputed first. A row without any observed entry
has the prior as its posterior and a log-likelihood of zero.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from contrastive_lvm.core import packed
from contrastive_lvm.core.blocks import Block, make_block, row_slices
from contrastive_lvm.core.rows import RowMoments, prepare, residual_of, row_step
from contrastive_lvm.core.types import Array, Matrix


class Linear(NamedTuple):
    """One set's view of the model: `x = L h + mean + noise`."""

    L: Array  # (D, K)
    mean: Array  # (D,)
    psi: Array  # (D,)


def _row_posteriors(model: Linear, X: Matrix) -> Iterator[tuple[slice, Block, RowMoments]]:
    coefficients = prepare(model.L, model.psi)
    for rows in row_slices(*X.shape):
        block = make_block(X[rows])
        yield rows, block, row_step(coefficients, residual_of(block, model.mean), block)


def latent_means(model: Linear, X: Matrix) -> Array:
    """`E[h | x]`, (N, K)."""
    means = np.empty((X.shape[0], model.L.shape[1]))
    for rows, _, moments in _row_posteriors(model, X):
        means[rows] = moments.mean.T
    return means


def latent_moments(model: Linear, X: Matrix) -> tuple[Array, Array]:
    """`E[h | x]`, (N, K), and `cov(h | x)`, (N, K, K).

    The covariance depends only on which entries are missing; when none is, one matrix is
    repeated without being copied.
    """
    N, K = X.shape[0], model.L.shape[1]
    means, covs, complete = np.empty((N, K)), [], True
    for rows, block, moments in _row_posteriors(model, X):
        means[rows] = moments.mean.T
        complete &= bool(block.observed.all())
        cov = packed.unpack(moments.cov)
        covs.append(cov if complete else cov[block.pattern])
        if complete:
            covs = covs[:1]
    if complete:
        return means, np.broadcast_to(covs[0][0], (N, K, K))
    return means, _stack_covariances(covs, N, K)


def _stack_covariances(covs: list[Array], N: int, K: int) -> Array:
    """Rows before the first missing entry share the single matrix at the front."""
    stacked = np.empty((N, K, K))
    rest = sum(len(c) for c in covs[1:])
    stacked[: N - rest] = covs[0] if len(covs[0]) in (1, N - rest) else covs[0][:1]
    if rest:
        stacked[N - rest :] = np.concatenate(covs[1:])
    return stacked


def log_likelihoods(model: Linear, X: Matrix) -> Array:
    """Exact marginal log-density of the observed entries of each row, (N,)."""
    values = np.empty(X.shape[0])
    for rows, _, moments in _row_posteriors(model, X):
        values[rows] = moments.log_likelihood
    return values


def fill(model: Linear, X: Matrix, *, with_std: bool) -> tuple[Array, Array | None]:
    """Rows with missing entries replaced by their conditional means, and standard deviations.

    `x_d | x_O ~ N(mean_d + l_d' E[h], l_d' cov(h) l_d + psi_d)`; an observed entry is itself, with
    standard deviation zero. In the precision of the input.
    """
    filled = np.empty(X.shape, dtype=X.dtype)
    std = np.zeros(X.shape, dtype=X.dtype) if with_std else None
    pairs = _symmetric_pairs(model.L) if with_std else None
    for rows, block, moments in _row_posteriors(model, X):
        observed = block.observed[block.pattern] > 0
        predicted = model.mean + moments.mean.T @ model.L.T
        filled[rows] = np.where(observed, block.values, predicted)
        if std is not None and pairs is not None:
            variance = (moments.cov.T @ pairs + model.psi)[block.pattern]
            std[rows] = np.where(observed, 0.0, np.sqrt(variance))
    return filled, std


def draw(model: Linear, n: int, rng: np.random.RandomState, *, active: int | None = None) -> Array:
    """`n` new rows; only the leading `active` latents vary when given."""
    h = rng.standard_normal((n, model.L.shape[1]))
    if active is not None:
        h[:, active:] = 0.0
    noise = rng.standard_normal((n, len(model.mean))) * np.sqrt(model.psi)
    drawn: Array = model.mean + h @ model.L.T + noise
    return drawn


def _symmetric_pairs(L: Array) -> Array:
    """(Q, D) with off-diagonal pairs doubled, so that `cov_packed @ pairs` is `l' cov l`."""
    i, j = packed.pair_indices(L.shape[1])
    pairs = packed.pack_products(L, np.ones(len(L)))
    pairs[i != j] *= 2.0
    return pairs
