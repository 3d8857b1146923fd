"""Where black-box inference begins: the closed-form answer, or that of a Gaussian stand-in.

Random starts of gradient ascent end at poor optima; the closed form of a nearby model costs less
than the first hundred gradient steps. Of rows that are elsewhere it is found from some of them.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from contrastive_lvm import prediction as predict
from contrastive_lvm.arrays import Array, Matrix, Parameters
from contrastive_lvm.coordinate_ascent.em import EM
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent, compress
from contrastive_lvm.coordinate_ascent.sweep import Task
from contrastive_lvm.coordinate_ascent.variational_bayes import VariationalBayes
from contrastive_lvm.likelihoods.base import Likelihood, Nuisance
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.model import Model
from contrastive_lvm.priors.base import Prior
from contrastive_lvm.priors.flat import Flat
from contrastive_lvm.priors.group_lasso import GroupLasso
from contrastive_lvm.rows.reader import RowReader

DISPERSION = 0.5  # to begin with
MOST_LOADING = 3.0  # of the predictor of counts and binary data: more would overshoot
START_ENTRIES = 1 << 24  # of rows elsewhere that a start is found from
START_ROWS = 2000  # of each set, at least


class Start(NamedTuple):
    """Values of everything that is not observed; the model has the size that it begins with.

    The latents' columns are those of `L = [S | W]`; rows of the background have the first only.
    """

    model: Model
    L: Array  # (D, K)
    means: tuple[Array, ...]  # (D,) each
    nuisance: Nuisance
    latents: tuple[Array, ...]  # (N, K), (M, k)
    spreads: tuple[Array, ...]  # (K,), (k,) standard deviations of the latents
    unit: Array  # (D,) of loadings and means: standard deviations of the predictor


def starting_point(
    model: Model,
    sets: list[Matrix],
    log_sizes: list[Array],
    *,
    seed: int | None = None,
    settle: bool = True,
    sample: int = 0,
) -> Start:
    """The closed-form ascent until it has settled, from a random start when a seed is given.

    Without `settle` the start of that ascent, from moments alone. Of a large set that is elsewhere
    it sees random rows, which `sample` seeds; only their latents are found for all rows, in a pass.
    """
    few = [_few(X, s, sets, sample) for X, s in zip(sets, log_sizes, strict=True)]
    if model.likelihood._has_closed_form:
        begun = _linear_start(model, [X for X, _ in few], seed, settle=settle)
        return begun._replace(latents=_all_latents(begun, None, sets, log_sizes))
    working = [model.likelihood.working(X, s) for X, s in few]
    weights = np.array([X.shape[0] for X in sets], dtype=np.float64)
    slope = np.average([w.slope for w in working], axis=0, weights=weights)
    stand_in = replace(model, likelihood=Gaussian("feature"))
    begun = _linear_start(stand_in, [w.rows for w in working], seed, settle=settle)
    latents = _all_latents(begun, model.likelihood, sets, log_sizes)
    noisy = model.likelihood.noisy_columns(len(slope))
    L = begun.L / slope[:, None]
    return begun._replace(
        model=replace(begun.model, likelihood=model.likelihood),
        L=np.where(noisy[:, None], L, np.clip(L, -MOST_LOADING, MOST_LOADING)),
        means=tuple(w.intercept for w in working),
        latents=latents,
        nuisance=Nuisance(np.where(noisy, begun.nuisance.noise, 0.0), np.full(len(L), DISPERSION)),
        unit=np.where(noisy, begun.unit, 1.0),
    )


def _few(X: Matrix, log_sizes: Array, sets: list[Matrix], seed: int) -> tuple[Matrix, Array]:
    """Rows in memory and their log sizes: all, or of a large set elsewhere some in proportion."""
    if not isinstance(X, RowReader):
        return X, log_sizes
    n_rows, n_features = X.shape
    share = START_ENTRIES / (n_features * sum(other.shape[0] for other in sets))
    n = min(n_rows, max(START_ROWS, int(share * n_rows)))
    rng = np.random.default_rng(seed)
    at = np.arange(n_rows) if n == n_rows else np.sort(rng.choice(n_rows, n, replace=False))
    return X.take(at), log_sizes[at]


def _all_latents(
    begun: Start, likelihood: Likelihood | None, sets: list[Matrix], log_sizes: list[Array]
) -> tuple[Array, ...]:
    """Those of a start, and where it has seen some rows only those of all, in one pass."""
    psi, found = begun.nuisance.noise, []
    for latents, mean, X, s in zip(begun.latents, begun.means, sets, log_sizes, strict=True):
        if len(latents) < X.shape[0]:
            L = np.ascontiguousarray(begun.L[:, : latents.shape[1]])
            law = predict.Linear(Loadings(L), mean, psi)
            found.append(np.asarray(X.map(partial(_block_latents, law, likelihood, s))))
        else:
            found.append(latents)
    return tuple(found)


def _block_latents(
    law: predict.Linear, likelihood: Likelihood | None, log_sizes: Array, block: Matrix, rows: slice
) -> Array:
    if likelihood is not None:
        block = likelihood.working(block, log_sizes[rows]).rows
    return predict.latent_means(law, block)


def _linear_start(model: Model, sets: list[Matrix], seed: int | None, *, settle: bool) -> Start:
    """Of a model with a closed form."""
    fitted = replace(model, shared_prior=_smooth(model, 0), target_prior=_smooth(model, 1))
    engine: CoordinateAscent = VariationalBayes()
    if engine.objection(fitted) is not None or fitted.all_flat:
        engine = EM()
    data = compress(fitted, sets, posterior=True)
    task = Task(fitted, data, posterior=engine.posterior)
    if fitted.sizes_itself:
        task, point = task.sized_start()
        starts = [point]
    else:
        starts = task.spectral_starts()
    if seed is not None:
        starts = [task.random_start(np.random.default_rng(seed))]
    point = engine.best_start(task, starts).point if settle else starts[0]
    p = task.unflatten(point)
    sized = replace(model, n_shared=task.model.n_shared, n_target=task.model.n_target)
    widths = [sized.n_columns, sized.n_shared][: len(sets)]
    latents, spreads = zip(
        *(_latents(p, i, X, k) for i, (X, k) in enumerate(zip(sets, widths, strict=True))),
        strict=True,
    )
    psi = np.broadcast_to(p.psi, (len(p.L),)).copy()
    nuisance = Nuisance(psi, np.zeros(len(psi)), p.df or None)
    return Start(sized, p.L, p.means, nuisance, latents, spreads, task.unit)


def _smooth(model: Model, which: int) -> Prior | GroupLasso:
    """A prior that goes with the other one: no engine has both a lasso's zeros and a posterior."""
    prior, other = model.priors[which], model.priors[1 - which]
    alone = isinstance(other, Flat | GroupLasso)
    return Flat() if isinstance(prior, GroupLasso) and not alone else prior


def _latents(p: Parameters, i: int, X: Matrix, k: int) -> tuple[Array, Array]:
    """Posterior means of a set's latents, and their standard deviations in a complete row."""
    L = np.ascontiguousarray(p.L[:, :k])
    psi = np.broadcast_to(p.psi, (len(L),))
    means = predict.latent_means(predict.Linear(Loadings(L), p.means[i], psi), X)
    precision = np.eye(k) + (L.T / psi) @ L
    return means, np.sqrt(np.diagonal(np.linalg.inv(precision)))
