"""Rows of counts, binary and mixed data for coordinate ascent, and where it starts.

A start is the optimum of a Gaussian stand-in: the same model with a noise variance for each
feature, fitted to rows that are nearly linear in the predictor (`ln(1 + x / size)` of counts). Its
loadings are divided by the slope of these rows in the predictor. Of large sets out of core it uses
evenly spaced rows.

With very many features the fit begins with those that vary most, and the others follow: their
loadings start at zero, where they leave the latents of rows as they are.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from contrastive_lvm.arrays import Array, Matrix, Parameters
from contrastive_lvm.coordinate_ascent.generalised_problem import GeneralisedProblem
from contrastive_lvm.coordinate_ascent.problem import Problem
from contrastive_lvm.coordinate_ascent.regression import without_effects
from contrastive_lvm.coordinate_ascent.starts import (
    deterministic_starts,
    random_start,
    with_supported_sizes,
)
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.model import Model
from contrastive_lvm.rows.data import Data, Linearized, prepare, variances_of
from contrastive_lvm.rows.generalised_rows import GeneralisedRows
from contrastive_lvm.rows.reader import LocalRows, RowReader, Rows

MOST_LOADING = 3.0  # on the predictor of counts and binary data: more would overshoot
START_ENTRIES = 1 << 24  # of sets out of core from which a start is found
START_ROWS = 2000  # of each set, at least
# Features to begin with, or this share of them if that is more, where there are at least four times
# as many.
LEADING, LEADING_SHARE = 1000, 0.1


def prepare_generalised(
    model: Model,
    sets: Sequence[Rows],
    weights: Sequence[Array | None] | None,
    log_sizes: Sequence[Array],
    covariates: Sequence[Array] | None = None,
) -> Data:
    """Return the rows of all sets for sweeps, with transformed rows for the start."""
    given = [None] * len(sets) if weights is None else list(weights)
    readers = [X if isinstance(X, RowReader) else LocalRows(X) for X in sets]
    D, likelihood = readers[0].shape[1], model.likelihood
    known = [None] * len(sets) if covariates is None else list(covariates)
    rows = [
        GeneralisedRows(reader, own, sizes, likelihood, columns)
        for reader, own, sizes, columns in zip(readers, given, log_sizes, known, strict=True)
    ]
    variances, pooled = variances_of(rows)
    some = [_some_rows(r, sets) for r in readers]
    found = [
        likelihood._linearize(X, sizes[at]) for (X, at), sizes in zip(some, log_sizes, strict=True)
    ]
    own = [None if w is None else w[at] for (_, at), w in zip(some, given, strict=True)]
    columns = None
    if covariates is not None:
        columns = [c[at] for (_, at), c in zip(some, covariates, strict=True)]
    linear = prepare([one.rows for one in found], weights=own, covariates=columns)
    if not linear.variance.any():  # rows differ only in their sizes, but predictors need a unit
        linear = linear._replace(variance=np.ones_like(linear.variance))
    n_rows = np.array([r.n_rows for r in rows])
    linearized = Linearized(
        without_effects(model, linear) if model.covariates else linear,
        np.average([one.slope for one in found], axis=0, weights=n_rows),
        tuple(one.intercept for one in found),
    )
    return Data(
        rows,
        readers,
        D,
        span=None,
        complete=False,
        narrow=False,
        variances=variances,
        variance=pooled,
        linearized=linearized,
    )


def _some_rows(reader: RowReader, sets: Sequence[Rows]) -> tuple[Matrix, np.ndarray]:
    """Return rows in memory and their positions; evenly spaced rows of a large set out of core."""
    n_rows, n_features = reader.shape
    share = START_ENTRIES / (n_features * sum(other.shape[0] for other in sets))
    n = min(n_rows, max(START_ROWS, int(share * n_rows)))
    if reader.in_memory or n == n_rows:
        return reader.load(), np.arange(n_rows)
    at = np.linspace(0, n_rows - 1, n).astype(np.intp)
    return reader.take(at), at


def with_linear_sizes(model: Model, linearized: Linearized) -> Model:
    """Return the model with sizes of automatic blocks that its stand-in supports."""
    sized = with_supported_sizes(stand_in_of(model), linearized.data)
    return replace(sized, likelihood=model.likelihood)


def stand_in_starts(
    model: Model, data: Data, *, posterior: bool, seed: int | None
) -> list[tuple[Problem, Array]]:
    """Return where the stand-in starts, at random when a seed is given."""
    problem = Problem(stand_in_of(model), _linear(data).data, posterior=posterior)
    starts = deterministic_starts(problem)
    if seed is None:
        return starts
    first = starts[0][0]
    return [(first, random_start(first, np.random.default_rng(seed)))]


def from_stand_in(
    model: Model, data: Data, stand_in: Problem, point: Array
) -> tuple[GeneralisedProblem, Array]:
    """Return the problem, and the point that a fit of its stand-in leads to."""
    p, linear = stand_in.unflatten(point), _linear(data)
    sizes = {block.name: block.n_components for block in stand_in.model.blocks}
    problem = GeneralisedProblem(model.with_sizes(sizes), data, posterior=stand_in.posterior)
    on_scale = model.likelihood._is_on_data_scale(len(p.L))
    L = p.L / linear.slope[:, None]
    L = np.where(on_scale[:, None], L, np.clip(L, -MOST_LOADING, MOST_LOADING))
    first = model.likelihood._first_nuisance(p.psi)
    effects = tuple(M / linear.slope[:, None] for M in p.effects)
    means = linear.intercepts
    if effects:  # of rows whose covariates are zero
        parts = zip(means, effects, linear.data.sets, strict=True)
        means = tuple(mean - M @ rows.covariate_mean for mean, M, rows in parts)
    start = Parameters(L, first.noise, means, first.df or 0.0, effects, dispersion=first.dispersion)
    return problem, problem.flatten(start)


def leading_features(
    started: GeneralisedProblem, start: Array
) -> tuple[GeneralisedProblem, Array, np.ndarray] | None:
    """Return the problem of the features that vary most, its start, and which they are.

    None if there are not many more features than that, or if features differ in kind.
    """
    model, data = started.model, started.data
    n, D = max(LEADING, int(LEADING_SHARE * data.n_features)), data.n_features
    in_memory = all(reader.in_memory for reader in data.readers)
    alike = model.treats_features_alike and not model.likelihood._refers_to_features
    if 4 * n > D or not in_memory or not alike:
        return None
    at = np.sort(np.argsort(-_linear(data).data.variance, kind="stable")[:n])
    readers: list[RowReader] = [LocalRows(reader.load()[:, at]) for reader in data.readers]
    rows = [
        GeneralisedRows(
            reader,
            own.weights,
            own.known[:, 0],
            model.likelihood,
            own.known[:, 1:] if model.covariates else None,
        )
        for reader, own in zip(readers, map(started._rows, range(len(readers))), strict=True)
    ]
    leading = data._replace(
        sets=rows,
        readers=readers,
        n_features=n,
        variances=[variance[at] for variance in data.variances],
        variance=data.variance[at],
        linearized=None,
    )
    problem = GeneralisedProblem(model, leading, posterior=started.posterior)
    return problem, problem.flatten(_of_features(started.unflatten(start), at)), at


def with_the_others(
    started: GeneralisedProblem, start: Array, found: Parameters, at: np.ndarray
) -> Array:
    """Return a start that has what was found for some features; loadings of others are zero."""
    p = started.unflatten(start)
    L, dispersion = np.zeros_like(p.L), p.dispersion
    L[at] = found.L
    means = tuple(mean.copy() for mean in p.means)
    effects = tuple(M.copy() for M in p.effects)
    parts = (*found.means, *found.effects)
    for whole, part in zip((*means, *effects), parts, strict=True):
        whole[at] = part
    if dispersion is not None and found.dispersion is not None:
        dispersion = dispersion.copy()
        dispersion[at] = found.dispersion
    return started.flatten(p._replace(L=L, means=means, effects=effects, dispersion=dispersion))


def _of_features(p: Parameters, at: np.ndarray) -> Parameters:
    return p._replace(
        L=p.L[at],
        psi=p.psi[at],
        means=tuple(mean[at] for mean in p.means),
        effects=tuple(M[at] for M in p.effects),
        dispersion=None if p.dispersion is None else p.dispersion[at],
    )


def stand_in_of(model: Model) -> Model:
    """Return the model with Gaussian noise."""
    return replace(model, likelihood=Gaussian("isotropic"))


def _linear(data: Data) -> Linearized:
    if data.linearized is None:
        raise TypeError("these rows were prepared for a likelihood with a closed form.")
    return data.linearized
