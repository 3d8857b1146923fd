"""Predictions: one row step with fitted values, a block of rows at a time.

Missing entries are marginalised exactly, never imputed first. A row without any observed entry
has the prior as its posterior and a log-likelihood of zero. Under a heavy-tailed likelihood the
row step and the scales of the new rows are iterated to their fixed point, so that new rows are
treated exactly as fitted rows were. Likelihoods without a closed form have a row step of their own
(`rows.gaussian_vi_rows`) and predict on the data's scale: means of counts and probabilities.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.likelihoods.values import LeftOut, Scaler
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import SMALL_BLOCK, make_block, row_slices, widen
from contrastive_lvm.rows.gaussian_vi_rows import Generalised, row_ascents
from contrastive_lvm.rows.latent_distribution import LatentDistribution, correct
from contrastive_lvm.rows.masked_rows import mean_of, prepare, residual_of, row_step
from contrastive_lvm.rows.scale_mixture_rows import RowStep, WeightedBlock

SCALE_SWEEPS, SCALE_TOL = 1000, 1e-9  # at most, and the change of scales at which a row stops


class Linear(NamedTuple):
    """One set's view of the model: `x = L h + M c + mean + noise`."""

    loadings: Loadings  # (D, K)
    mean: Array  # (D,)
    psi: Array  # (D,)
    scaler: Scaler | None = None  # of a heavy-tailed likelihood
    noise_factor: float = 1.0  # variance of an unseen entry's noise over psi
    draw_scales: Callable[[np.random.RandomState, tuple[int, int]], Array] | None = None
    effects: Array | None = None  # (D, C) M
    covariates: Array | None = None  # (N, C) of the rows in question; None where they are zero
    distribution: LatentDistribution | None = None  # of latents that are not standard normal

    def means_of(self, rows: slice) -> Array:
        """Return the means of some rows: (D,), or (B, D) if covariates are given."""
        own = None if self.covariates is None else self.covariates[rows]
        return mean_of(self.mean, self.effects, own)

    @property
    def L(self) -> Array:
        """Loadings, or their posterior means."""
        return self.loadings.mean


Fixed = Linear | Generalised  # parameters


class Drawn(NamedTuple):
    """One set's view of the model at several draws of its parameters.

    Predictions are those of the mixture: `E[f] = mean_s f_s`, and variances are the mean of those
    at single draws and the variance of their means.
    """

    views: tuple[Fixed, ...]


View = Fixed | Drawn


def fixed(model: View) -> tuple[Fixed, ...]:
    """Return the model at each draw of its parameters, or the model alone."""
    return model.views if isinstance(model, Drawn) else (model,)


def mean_over_draws(each: Iterable[Array]) -> Array:
    """Return the mean of arrays of equal shape, one of them in memory at a time."""
    values = iter(each)
    total, n = next(values), 1
    for value in values:
        total, n = total + value, n + 1
    return total if n == 1 else np.asarray(total / n)


def log_mean_over_draws(each: Iterable[Array]) -> Array:
    """Return the logarithm of the mean of exponentials."""
    values = np.stack(list(each))
    return np.asarray(np.logaddexp.reduce(values) - np.log(len(values)))


class RowPosteriors(NamedTuple):
    """The posterior of a block of rows."""

    rows: slice
    values: Array  # (B, D) zeros where missing
    observed: np.ndarray  # (P, D) bool, one row a pattern
    pattern: np.ndarray  # (B,)
    mean: Array  # (K, B)
    cov: Array  # (Q, P) packed
    bound: Array  # (B,) log-likelihood, or its bound
    weights: Array | None = None  # (B, D) or (B, 1) E[u]; None when patterns share their cov
    probabilities: Array | None = None  # (B, C) of the components of a mixture


def row_posteriors(model: Fixed, X: Matrix) -> Iterator[RowPosteriors]:
    """Yield the posteriors of rows, a block at a time in their order."""
    if isinstance(model, Generalised):
        yield from _generalised_posteriors(model, X)
        return
    if model.scaler is not None:
        yield from _weighted_posteriors(model, model.scaler, X)
        return
    coefficients = prepare(model.loadings, model.psi)
    for rows in row_slices(*X.shape):
        block = make_block(X[rows])
        with _refusing_overflow(block.values):
            m = row_step(coefficients, residual_of(block, model.means_of(rows)), block)
        found = RowPosteriors(
            rows, block.values, block.observed > 0, block.pattern, m.mean, m.cov, m.log_likelihood
        )
        yield found if model.distribution is None else _corrected(found, model.distribution)


def _corrected(block: RowPosteriors, distribution: LatentDistribution) -> RowPosteriors:
    """Return posteriors under another distribution of the latents than the standard normal."""
    found, B = correct(distribution, block.mean, block.cov, block.pattern), len(block.values)
    return block._replace(
        observed=block.observed[block.pattern],
        pattern=np.arange(B),
        mean=found.mean,
        cov=found.cov,
        bound=block.bound + found.log_ratio,
        weights=np.ones((B, 1)),
        probabilities=found.posterior.probabilities,
    )


@contextmanager
def _refusing_overflow(values: Array) -> Iterator[None]:
    """Refuse rows whose squares overflow in units of the noise variance."""
    try:
        with np.errstate(over="raise"):
            yield
    except FloatingPointError as error:
        reason = (
            f"contains the value {np.nanmax(np.abs(values)):.3g}, whose square overflows in units "
            "of the noise variance; correct it, or replace it by NaN."
        )
        raise InvalidDataError("X", reason) from error


def _weighted_posteriors(model: Linear, scaler: Scaler, X: Matrix) -> Iterator[RowPosteriors]:
    for rows in row_slices(*X.shape, elements=SMALL_BLOCK):
        values = widen(X[rows])
        with _refusing_overflow(values):
            block = _fixed_point(model, scaler, values, model.means_of(rows))
        yield RowPosteriors(
            rows,
            np.nan_to_num(values),
            ~np.isnan(values),
            np.arange(len(values)),
            block.mean,
            block.cov,
            block.bound,
            block.scales.weights,
            None if block.posterior is None else block.posterior.probabilities,
        )


def _generalised_posteriors(model: Generalised, X: Matrix) -> Iterator[RowPosteriors]:
    for rows, entries, state in row_ascents(model, X):
        (B, D), observed = entries.values.shape, entries.observed
        if not np.isfinite(state.bound).all():
            far = np.abs(entries.values[~np.isfinite(state.bound)]).max()
            reason = (
                f"contains the value {far:.3g}, so far out that its likelihood is not a number; "
                "correct it, or replace it by NaN."
            )
            raise InvalidDataError("X", reason)
        yield RowPosteriors(
            rows,
            entries.values,
            np.ones((B, D), dtype=bool) if observed is None else observed > 0,
            np.arange(B),
            state.mean,
            state.cov,
            state.bound,
            np.ones((B, 1)),
        )


def _fixed_point(model: Linear, scaler: Scaler, values: Array, mean: Array) -> WeightedBlock:
    """Alternate latents and scales of a block of rows until the scales stand still.

    A row stops when its own scales do, so that its posterior does not depend on its neighbours.
    """
    values = values - mean
    step = RowStep(model.loadings, model.psi, np.zeros(len(model.psi)), scaler, model.distribution)
    weights = step(values, np.ones((len(values), 1))).scales.weights
    moving = np.arange(len(values))
    for _ in range(SCALE_SWEEPS):
        renewed = step(values[moving], weights[moving]).scales.weights
        change = np.abs(renewed - weights[moving]).max(axis=1)
        weights[moving] = renewed
        moving = moving[change >= SCALE_TOL]
        if not len(moving):
            break
    return step(values, weights)


def left_out(model: Linear, X: Matrix, weights: Array) -> LeftOut:
    """Predict each observed entry from the others of its row.

    Removing an entry from the row step is a change of rank one: with the leverage `s = w var(l' h)
    / psi`, residual and variance are those given all entries over `1 - s`. Without the entry the
    variance is at most `l' l`, that of the prior, so that `1 - s` is at least `psi / (psi + w l'
    l)`; rounding may take it below.
    """
    parts, prior = [], np.square(model.L).sum(axis=1)
    for block in row_posteriors(model, X):
        fitted = block.mean.T @ model.L.T
        variance = packed.unpack(block.cov)[block.pattern]  # (B, K, K)
        variance = np.einsum("dk,bkl,dl->bd", model.L, variance, model.L)
        scale = 1.0 if block.weights is None else block.weights
        least = model.psi / (model.psi + scale * prior)
        rest = np.maximum(1.0 - scale * variance / model.psi, least)
        residual = (block.values - model.means_of(block.rows) - fitted) / rest
        of_rows = np.broadcast_to(weights[block.rows, None], residual.shape)
        noise = np.broadcast_to(model.psi, residual.shape)
        seen = block.observed[block.pattern] & (of_rows > 0)
        parts.append([x[seen] for x in (residual, variance / rest, noise, of_rows)])
    return LeftOut(*(np.concatenate(x) for x in zip(*parts, strict=True)))


def latent_means(model: View, X: Matrix) -> Array:
    """Return `E[h | x]`, (N, K)."""
    if isinstance(model, Drawn):
        return mean_over_draws(latent_means(view, X) for view in model.views)
    means = np.empty((X.shape[0], model.L.shape[1]))
    for block in row_posteriors(model, X):
        means[block.rows] = block.mean.T
    return means


def latent_moments(model: View, X: Matrix) -> tuple[Array, Array]:
    """Return `E[h | x]`, (N, K), and `cov(h | x)`, (N, K, K).

    With Gaussian noise the covariance depends only on which entries are missing; when none is,
    one matrix is repeated without being copied.
    """
    if isinstance(model, Drawn):
        return _moments_over_draws([latent_moments(view, X) for view in model.views])
    N, K = X.shape[0], model.L.shape[1]
    means, cov, common = np.empty((N, K)), None, np.empty((K, K))
    for block in row_posteriors(model, X):
        means[block.rows] = block.mean.T
        of_pattern = packed.unpack(block.cov)
        if cov is None and block.weights is None and block.observed.all():
            common = of_pattern[0]
            continue
        if cov is None:
            cov = np.empty((N, K, K))
            cov[: block.rows.start] = common
        cov[block.rows] = of_pattern[block.pattern]
    return means, np.broadcast_to(common, (N, K, K)) if cov is None else cov


def column_moments(model: View, X: Matrix, columns: np.ndarray) -> tuple[Array, Array]:
    """Return `E[h_b | x]`, (N, T), and `cov(h_b | x)`, (N, T, T), of some of the latents."""
    if isinstance(model, Drawn):
        return _moments_over_draws([column_moments(view, X, columns) for view in model.views])
    means, covs = [], []
    for block in row_posteriors(model, X):
        means.append(block.mean[columns].T)
        covs.append(packed.unpack(block.cov)[:, columns[:, None], columns][block.pattern])
    return np.concatenate(means), np.concatenate(covs)


def component_probabilities(model: View, X: Matrix) -> Array:
    """Return the probabilities of a mixture's components given each row, (N, C)."""
    if isinstance(model, Drawn):
        return mean_over_draws(component_probabilities(view, X) for view in model.views)
    parts = [block.probabilities for block in row_posteriors(model, X)]
    return np.concatenate([part for part in parts if part is not None])


def _moments_over_draws(each: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    means = np.stack([mean for mean, _ in each])  # (S, N, K)
    apart = means - means.mean(axis=0)
    cov = mean_over_draws(cov for _, cov in each)
    return means.mean(axis=0), cov + np.einsum("snk,snl->nkl", apart, apart) / len(each)


def log_likelihoods(model: View, X: Matrix) -> Array:
    """Return the marginal log-density of the observed entries of each row, (N,).

    Exact for Gaussian noise and point loadings; otherwise the row's part of the bound, which is
    below it at point loadings.
    """
    if isinstance(model, Drawn):
        return log_mean_over_draws(log_likelihoods(view, X) for view in model.views)
    values = np.empty(X.shape[0])
    for block in row_posteriors(model, X):
        values[block.rows] = block.bound
    return values


def scale_weights(model: View, X: Matrix) -> Array:
    """`E[u | x]` of each entry or row under a heavy-tailed likelihood; NaN where missing."""
    if isinstance(model, Drawn):
        return mean_over_draws(scale_weights(view, X) for view in model.views)
    parts = []
    for block in row_posteriors(model, X):
        weights = np.ones((len(block.values), 1)) if block.weights is None else block.weights
        per_entry = weights.shape[1] > 1
        parts.append(np.where(block.observed, weights, np.nan) if per_entry else weights)
    return np.concatenate(parts)


def rows_at(model: View, h: Array) -> Array:
    """Return the expected rows, (N, D), at given latents, (N, K)."""
    if isinstance(model, Drawn):
        return mean_over_draws(rows_at(view, h) for view in model.views)
    predictor: Array = model.means_of(slice(len(h))) + h @ model.L.T
    if isinstance(model, Linear):
        return predictor
    for rows in row_slices(*predictor.shape):
        e = predictor[rows] + model.offset(rows)
        predictor[rows], _ = model.observation.response(e, np.zeros_like(e))
    return predictor


def reconstruct(model: View, X: Matrix, kept: np.ndarray, *, with_covariates: bool = True) -> Array:
    """Return expected rows from the latents that are `kept`, (K,) bool; the others are zero."""
    return mean_over_draws(
        rows_at(
            view if with_covariates else view._replace(covariates=None),
            latent_means(view, X) * kept,
        )
        for view in fixed(model)
    )


def fill(model: View, X: Matrix, *, with_std: bool) -> tuple[Array, Array | None]:
    """Return rows with missing entries filled by conditional means, and standard deviations.

    Under Gaussian noise `x_d | x_O` has the mean `mean_d + E[l_d]' E[h]` and the variance `var(l_d'
    h) + psi_d E[1/u]`; in general those of the response to a normal predictor with the moments of
    `l_d' h`. An observed entry stays as it is, with standard deviation zero. The result has the
    precision of the input.
    """
    if isinstance(model, Drawn):
        return _fill_over_draws([fill(view, X, with_std=with_std) for view in model.views])
    filled = np.empty(X.shape, dtype=X.dtype)
    std = np.zeros(X.shape, dtype=X.dtype) if with_std else None
    for block in row_posteriors(model, X):
        observed = block.observed[block.pattern]
        predicted, variance = _predicted(model, block, with_variance=with_std)
        filled[block.rows] = np.where(observed, block.values, predicted)
        if std is not None and variance is not None:
            std[block.rows] = np.where(observed, 0.0, np.sqrt(variance))
    return filled, std


def _fill_over_draws(each: list[tuple[Array, Array | None]]) -> tuple[Array, Array | None]:
    filled = np.stack([values for values, _ in each])  # (S, N, D)
    mean = filled.mean(axis=0)
    stds = [std for _, std in each if std is not None]
    if not stds:
        return mean, None
    return mean, np.sqrt(np.square(stds).mean(axis=0) + filled.var(axis=0))


def _predicted(
    model: Fixed, block: RowPosteriors, *, with_variance: bool
) -> tuple[Array, Array | None]:
    """Return means and variances of new entries of a block's rows, (B, D)."""
    predictor: Array = model.means_of(block.rows) + block.mean.T @ model.L.T
    if isinstance(model, Generalised):
        predictor += model.offset(block.rows)
        return model.observation.response(predictor, _fitted_variance(model, block))
    if not with_variance:
        return predictor, None
    return predictor, _fitted_variance(model, block) + model.psi * model.noise_factor


def _fitted_variance(model: Fixed, block: RowPosteriors) -> Array:
    """`var(l_d' h_i) = tr(E[l l'] cov(h)) + E[h]' C_d E[h]`, (B, D)."""
    i, j = packed.pair_indices(model.L.shape[1])
    twice = np.where(i == j, 1.0, 2.0)[:, None]
    variance: Array = (block.cov.T @ (twice * model.loadings.pairs()))[block.pattern]
    if model.loadings.cov is not None:
        variance += (block.mean[i] * block.mean[j]).T @ (twice * model.loadings.cov.packed())
    return variance


def draw(
    model: View, n: int, rng: np.random.RandomState, *, active: np.ndarray | None = None
) -> Array:
    """Draw `n` new rows; where `active`, (K,) bool, is given, only these latents vary."""
    if isinstance(model, Drawn):  # a draw of the parameters for each row
        chosen, rows = rng.randint(len(model.views), size=n), np.empty((0, 0))
        for i in np.unique(chosen).tolist():
            drawn_rows = draw(model.views[i], n, rng, active=active)
            rows = rows if rows.size else np.empty_like(drawn_rows)
            rows[chosen == i] = drawn_rows[chosen == i]
        return rows
    h = rng.standard_normal((n, model.L.shape[1]))
    if isinstance(model, Linear) and model.distribution is not None:
        h[:, model.distribution.columns] = model.distribution.mixture.draw(n, rng)
    if isinstance(model, Generalised) and model.scales is not None:
        h *= model.scales
    if active is not None:
        h[:, ~active] = 0.0
    if isinstance(model, Generalised):
        predictor = model.means_of(slice(n)) + h @ model.L.T + model.offset(slice(n))
        return model.observation.draw(predictor, rng)
    noise = rng.standard_normal((n, len(model.mean))) * np.sqrt(model.psi)
    if model.draw_scales is not None:
        noise /= np.sqrt(model.draw_scales(rng, noise.shape))
    drawn: Array = model.means_of(slice(n)) + h @ model.L.T + noise
    return drawn
