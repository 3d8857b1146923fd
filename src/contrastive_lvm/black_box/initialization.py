"""Where black-box inference begins: the closed-form answer, or that of a Gaussian stand-in.

Random starts of gradient ascent end at poor optima; the closed form of a nearby model costs less
than the first hundred gradient steps. For large sets out of core it is found from some rows.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from contrastive_lvm import prediction as predict
from contrastive_lvm.arrays import Array, Matrix, noise_of
from contrastive_lvm.coordinate_ascent.em import EM
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent
from contrastive_lvm.coordinate_ascent.problem import Problem
from contrastive_lvm.coordinate_ascent.starts import deterministic_starts, random_start
from contrastive_lvm.coordinate_ascent.variational_bayes import VariationalBayes
from contrastive_lvm.likelihoods.base import Likelihood, Nuisance
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.model import Model
from contrastive_lvm.priors.base import AnyPrior
from contrastive_lvm.priors.flat import Flat
from contrastive_lvm.rows.data import prepare
from contrastive_lvm.rows.reader import RowReader, Rows

DISPERSION = 0.5  # of negative binomials, to begin with
MOST_LOADING = 3.0  # on the predictor of counts and binary data: more would overshoot
START_ENTRIES = 1 << 24  # of sets out of core from which a start is found
START_ROWS = 2000  # of each set, at least


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


def starting_point(
    model: Model,
    sets: Sequence[Rows],
    log_sizes: Sequence[Array],
    *,
    seed: int | None = None,
    settle: bool = True,
    sample: int = 0,
) -> StartingPoint:
    """Return where the closed-form ascent has settled, from a random start when a seed is given.

    Without `settle`, return the start of that ascent, from moments alone. From large sets out of
    core it takes random rows, which `sample` seeds; only the latents are found for all rows, in
    one pass.
    """
    some = [_some_rows(X, s, sets, sample) for X, s in zip(sets, log_sizes, strict=True)]
    if model.likelihood._has_closed_form:
        start = _linear_start(model, [X for X, _ in some], seed, settle=settle)
        return start._replace(latents=_all_latents(start, None, sets, log_sizes))
    linearized = [model.likelihood._linearize(X, s) for X, s in some]
    n_rows = np.array([X.shape[0] for X in sets], dtype=np.float64)
    slope = np.average([rows.slope for rows in linearized], axis=0, weights=n_rows)
    stand_in = replace(model, likelihood=Gaussian("feature"))
    start = _linear_start(stand_in, [rows.rows for rows in linearized], seed, settle=settle)
    scaled, noisy = (
        model.likelihood._is_on_data_scale(len(slope)),
        model.likelihood._has_noise(len(slope)),
    )
    L = start.L / slope[:, None]
    return start._replace(
        model=replace(start.model, likelihood=model.likelihood),
        L=np.where(scaled[:, None], L, np.clip(L, -MOST_LOADING, MOST_LOADING)),
        means=tuple(rows.intercept for rows in linearized),
        latents=_all_latents(start, model.likelihood, sets, log_sizes),
        nuisance=Nuisance(np.where(noisy, start.nuisance.noise, 0.0), np.full(len(L), DISPERSION)),
        unit=np.where(scaled, start.unit, 1.0),
    )


def _some_rows(X: Rows, log_sizes: Array, sets: Sequence[Rows], seed: int) -> tuple[Matrix, Array]:
    """Return rows in memory and their log sizes; of a large set out of core, random ones."""
    if not isinstance(X, RowReader):
        return X, log_sizes
    n_rows, n_features = X.shape
    share = START_ENTRIES / (n_features * sum(other.shape[0] for other in sets))
    n = min(n_rows, max(START_ROWS, int(share * n_rows)))
    rng = np.random.default_rng(seed)
    at = np.arange(n_rows) if n == n_rows else np.sort(rng.choice(n_rows, n, replace=False))
    return X.take(at), log_sizes[at]


def _all_latents(
    start: StartingPoint,
    likelihood: Likelihood | None,
    sets: Sequence[Rows],
    log_sizes: Sequence[Array],
) -> tuple[Array, ...]:
    """Return the latents of all rows; where a start has seen some rows only, in one pass."""
    found = []
    for i, (X, sizes) in enumerate(zip(sets, log_sizes, strict=True)):
        if isinstance(X, RowReader) and len(start.latents[i]) < X.shape[0]:
            view = _view(start.model, i, start.L, start.means[i], start.nuisance.noise)
            latents = X.map(partial(_chunk_latents, view, likelihood, sizes))
            found.append(np.asarray(latents))
        else:
            found.append(start.latents[i])
    return tuple(found)


def _chunk_latents(
    view: predict.Linear, likelihood: Likelihood | None, log_sizes: Array, X: Matrix, at: slice
) -> Array:
    rows = X if likelihood is None else likelihood._linearize(X, log_sizes[at]).rows
    return predict.latent_means(view, rows)


def _view(model: Model, i: int, L: Array, mean: Array, psi: Array) -> predict.Linear:
    """Return what rows of the i-th set follow."""
    active = np.ascontiguousarray(L[:, model.active_columns(model.sets[i])])
    return predict.Linear(Loadings(active), mean, noise_of(psi, i))


def _linear_start(
    model: Model, sets: list[Matrix], seed: int | None, *, settle: bool
) -> StartingPoint:
    """Return the start of a model with a closed form."""
    fitted, engine = _closed_form(model)
    data = prepare(sets, scale_mixture=fitted.likelihood._is_scale_mixture)
    fitted = engine._sized(fitted, data)
    starts = deterministic_starts(Problem(fitted, data, posterior=engine._posterior))
    if seed is not None:
        first = starts[0][0]
        starts = [(first, random_start(first, np.random.default_rng(seed)))]
    problem, point = engine._best(starts)[:2] if settle else starts[0]
    p, sizes = problem.unflatten(point), {b.name: b.n_components for b in problem.model.blocks}
    sized, psi = model.with_sizes(sizes), p.psi
    views = [_view(sized, i, p.L, mean, psi) for i, mean in enumerate(p.means)]
    latents = [predict.latent_means(view, X) for view, X in zip(views, sets, strict=True)]
    nuisance = Nuisance(psi, np.zeros(len(p.L)), p.df or None)
    stds = tuple(_latent_std(view.L, view.psi) for view in views)
    return StartingPoint(sized, p.L, p.means, nuisance, tuple(latents), stds, problem.unit)


def _closed_form(model: Model) -> tuple[Model, CoordinateAscent]:
    """Return a model and an engine in closed form, flat priors in place of those that clash.

    No engine has both points, as a lasso needs them, and a posterior, as a horseshoe does.
    """
    if any(prior._unsupported_reason(posterior=False) is not None for prior in model.priors):
        clash: dict[str, AnyPrior] = {
            block.name: Flat()
            for block in model.blocks
            if block.prior._unsupported_reason(posterior=True) is not None
        }
        return model.with_priors(clash), VariationalBayes()
    points = any(prior._unsupported_reason(posterior=True) is not None for prior in model.priors)
    points = points or not any(prior._has_posterior for prior in model.priors)
    return model, EM() if points else VariationalBayes()


def _latent_std(L: Array, psi: Array) -> Array:
    """Return standard deviations of the latents of a complete row."""
    precision = np.eye(L.shape[1]) + (L.T / psi) @ L
    return np.asarray(np.sqrt(np.diagonal(np.linalg.inv(precision))))
