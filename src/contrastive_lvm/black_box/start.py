"""The start of black-box inference: probabilistic PCA of one block after another, then EM.

Random starts of gradient ascent end at poor optima; this one costs less than the first steps. Rows
of counts and binary data are first replaced by rows that are nearly linear in the predictor. Large
sets are represented by random rows; only the latents are found for all of them, in one pass.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Matrix, noise_of
from contrastive_lvm.coordinate_ascent.generalised_start import MOST_LOADING
from contrastive_lvm.coordinate_ascent.starts import SpectralStarts
from contrastive_lvm.likelihoods.base import FLOOR, Likelihood, ScaleMixture
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.values import Nuisance
from contrastive_lvm.linalg.matrices import row_slices, widen
from contrastive_lvm.model import Model
from contrastive_lvm.rows.data import CovarianceOperator
from contrastive_lvm.rows.minibatches import taken
from contrastive_lvm.rows.reader import RowReader, Rows
from contrastive_lvm.rows.scale_mixture_rows import CLIP

START_ENTRIES = 1 << 22  # of all sets, from which a start is found
SWEEPS = 50  # of EM from each of two starts; more gain less than 1 nat on 350 rows
START_ROWS = 1000  # of each set, at least


class StartingPoint(NamedTuple):
    """Values of everything that is not observed; the model has the sizes that it begins with.

    Means, latents and their standard deviations are in the order of `model.sets`; the columns of a
    set's latents are its active columns of L.
    """

    model: Model
    L: Array  # (D, K)
    means: tuple[Array, ...]  # (D,)
    nuisance: Nuisance
    latents: tuple[Array, ...]  # (N, active columns)
    latent_stds: tuple[Array, ...]  # (active columns,)
    unit: Array  # (D,) of loadings and means: standard deviations of the predictor


class _CentredRows(NamedTuple):
    """Rows of a set about their centre, clipped so that outliers have little influence."""

    centre: Array  # (D,)
    limit: Array  # (D,) where entries are clipped
    rows: Array  # (N, D); missing entries are zero
    covariance: CovarianceOperator  # of available pairs of entries
    counts: Array  # (D,) of observed entries


def starting_point(
    model: Model,
    sets: Sequence[Rows],
    log_sizes: Sequence[Array],
    *,
    seed: int = 0,
    restart: bool = False,
) -> StartingPoint:
    """Return the start of a fit; a restart begins with random combinations of rows as loadings."""
    likelihood, rng = model.likelihood, np.random.default_rng(seed)
    some = [_some_rows(X, s, sets, rng) for X, s in zip(sets, log_sizes, strict=True)]
    linear = [likelihood._linearize(X, s) for X, s in some]
    heavy = likelihood._is_scale_mixture
    rows = [_centred(widen(one.rows), heavy=heavy) for one in linear]
    gaussian = likelihood if isinstance(likelihood, ScaleMixture) else Gaussian("feature")
    stand_in, L, psi, unit = _loadings_and_noise(
        replace(model, likelihood=gaussian), gaussian, rows
    )
    if restart:
        L = np.asarray(sum(R.rows.T @ rng.standard_normal((len(R.rows), L.shape[1])) for R in rows))
        L *= np.sqrt(0.5 * len(L) / max(float(((L / unit[:, None]) ** 2).sum()), FLOOR))
    latents, stds = [], []
    for i, (name, X, R) in enumerate(zip(model.sets, sets, rows, strict=True)):
        own = L[:, stand_in.active_columns(name)]
        scaled = own / noise_of(psi, i)[:, None]
        covariance = np.linalg.inv(np.eye(own.shape[1]) + scaled.T @ own)
        known = (likelihood, R.centre, R.limit, scaled @ covariance, log_sizes[i])
        find: Callable[[Matrix, slice], Array] = partial(_latents, *known)
        if isinstance(X, RowReader):
            latents.append(np.asarray(X.map(find)))
        else:
            latents.append(np.concatenate([find(X[at], at) for at in row_slices(*X.shape)]))
        stds.append(np.sqrt(np.diagonal(covariance)))
    slope = np.average([one.slope for one in linear], axis=0, weights=[len(R.rows) for R in rows])
    on_scale = likelihood._is_on_data_scale(len(L))
    shrunk = np.clip(L / slope[:, None], -MOST_LOADING, MOST_LOADING)
    return StartingPoint(
        replace(stand_in, likelihood=likelihood),
        np.where(on_scale[:, None], L, shrunk),
        tuple(R.centre if heavy else one.intercept for R, one in zip(rows, linear, strict=True)),
        likelihood._first_nuisance(psi),
        tuple(latents),
        tuple(stds),
        np.where(on_scale, unit, 1.0),
    )


def _some_rows(
    X: Rows, log_sizes: Array, sets: Sequence[Rows], rng: np.random.Generator
) -> tuple[Matrix, Array]:
    """Return rows in memory and their log sizes; of large sets, random ones."""
    n_rows, n_features = X.shape
    share = START_ENTRIES / (n_features * sum(other.shape[0] for other in sets))
    n = min(n_rows, max(START_ROWS, int(share * n_rows)))
    at = np.arange(n_rows) if n == n_rows else np.sort(rng.choice(n_rows, n, replace=False))
    return taken(X, at), log_sizes[at]


def _centred(rows: Array, *, heavy: bool) -> _CentredRows:
    """Centre rows at their means; heavy-tailed ones at their medians, with entries clipped."""
    rows = np.where(np.isnan(rows).all(axis=0), 0.0, rows)  # features that none of them observes
    centre, limit = np.nanmean(rows, axis=0), np.full(rows.shape[1], np.inf)
    if heavy:
        spread, centre = np.nanstd(rows, axis=0), np.nanmedian(rows, axis=0)
        robust = 1.4826 * np.nanmedian(np.abs(rows - centre), axis=0)
        limit = CLIP * np.where(robust > 0, robust, spread)
    n, share = len(rows), (~np.isnan(rows)).mean(axis=0)
    residual = np.clip(np.nan_to_num(rows - centre), -limit, limit)
    variance, scaled = (residual**2).mean(axis=0) / share, residual / share
    excess = (variance / share - variance)[:, None]  # of the diagonal, where entries are missing
    covariance = CovarianceOperator(
        lambda M: scaled.T @ (scaled @ M) / n - excess * M, variance, float(n)
    )
    return _CentredRows(centre, limit, residual, covariance, n * share)


def _loadings_and_noise(
    model: Model, likelihood: ScaleMixture, rows: Sequence[_CentredRows]
) -> tuple[Model, Array, Array, Array]:
    """Return the model with the sizes that rows support, loadings, noise variances and units."""
    covariances, D = [R.covariance for R in rows], len(rows[0].centre)
    variances, counts = np.stack([c.variance for c in covariances]), [R.counts for R in rows]
    floor = likelihood._noise_floor(np.average(variances, axis=0, weights=counts), D)
    unit = np.sqrt(floor / FLOOR)
    if likelihood._has_own_noise:
        own = [likelihood._noise_floor(variance, D) for variance in variances]
        floor = np.maximum(own, FLOOR * floor)
    if any(block.automatic for block in model.blocks):
        model = SpectralStarts(model, covariances, floor, D).sized_model()
    found = []
    for start in SpectralStarts(model, covariances, floor, D).deterministic():
        sized = model.with_sizes({name: L.shape[1] for name, L in start.loadings.items()})
        L, psi = np.hstack([start.loadings[block.name] for block in model.blocks]), start.psi
        log_likelihood = 0.0
        for _ in range(SWEEPS if np.all(counts == np.max(counts, axis=1)[:, None]) else 0):
            L, psi, log_likelihood = _sweep(sized, likelihood, rows, L, np.maximum(psi, floor))
        found.append((log_likelihood, sized, L, np.maximum(psi, floor)))
    _, sized, L, psi = max(found, key=lambda one: one[0])
    return sized, L, psi, unit


def _sweep(
    model: Model, likelihood: ScaleMixture, rows: Sequence[_CentredRows], L: Array, psi: Array
) -> tuple[Array, Array, float]:
    """Take a sweep of EM over complete rows; the log-likelihood is that before it."""
    moments, products = FLOOR * np.eye(L.shape[1]), np.zeros(L.shape)
    of_sets, log_likelihood = [], 0.0
    for i, (name, R) in enumerate(zip(model.sets, rows, strict=True)):
        at, noise, n = model.active_columns(name), noise_of(psi, i), len(R.rows)
        scaled = L[:, at] / noise[:, None]
        covariance = np.linalg.inv(np.eye(len(at)) + scaled.T @ L[:, at])
        h = R.rows @ (scaled @ covariance)
        square, product = n * R.covariance.variance, R.rows.T @ h
        second = h.T @ h + n * covariance
        logdet = float(np.log(noise).sum() - np.linalg.slogdet(covariance)[1])
        log_likelihood -= 0.5 * (n * logdet + float((square / noise).sum()))
        log_likelihood += 0.5 * float((scaled * product).sum())
        # Noise of each set's own weights features one by one; for a start, one weight is enough.
        moments[np.ix_(at, at)] += second / noise.mean()
        products[:, at] += product / noise.mean()
        of_sets.append((at, square, product, second))
    L = np.asarray(np.linalg.solve(moments, products.T).T)
    squares, counts = [], [R.counts for R in rows]
    for at, square, product, second in of_sets:
        own = L[:, at]
        squares.append(square + (own * (own @ second - 2.0 * product)).sum(axis=1))
    own_noise = likelihood._has_own_noise
    square, count = (np.stack(x) if own_noise else np.sum(x, axis=0) for x in (squares, counts))
    return L, likelihood._noise_step(square, count, len(L)), log_likelihood


def _latents(
    likelihood: Likelihood,
    centre: Array,
    limit: Array,
    weights: Array,
    log_sizes: Array,
    X: Matrix,
    at: slice,
) -> Array:
    """Return posterior means of the latents of rows under Gaussian noise."""
    rows = widen(likelihood._linearize(X, log_sizes[at]).rows)
    return np.asarray(np.clip(np.nan_to_num(rows - centre), -limit, limit) @ weights)
