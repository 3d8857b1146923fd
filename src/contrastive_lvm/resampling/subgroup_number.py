"""The number of subgroups: components of target latents that are separated by a valley.

A mixture of normal distributions fits any cloud that is not normal better than one component does:
two overlapping components describe a skewed or a heavy-tailed cloud. Such components are no
subgroups. A number of components is therefore only considered if there is a valley between every
two of them: the rows of the two, projected on the direction that separates them best, must not be
unimodal by the test of `unimodality`, whose null hypothesis holds for every cloud with one centre.
Numbers are tried from 2 on, until two in a row have no valleys.
Among these numbers the one with the greatest held-out log-likelihood is chosen; 1 is always one of
them. `pvalue` is about two components in place of one: the larger of that test's p-value and of
the likelihood ratio's, which is compared with samples of the standard model (McLachlan 1987).

All steps use the latents of the standard model, N(m, V) for each row, to which mixtures are fitted
quickly. Rows of a replicate count as one, the mean of their latents.
"""

import warnings
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from contrastive_lvm.arrays import TINY, Array, RowLabels
from contrastive_lvm.checks import Seed, check_integer
from contrastive_lvm.coordinate_ascent.mixture_problem import fit_mixture
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.input_rows import rows_for_fit
from contrastive_lvm.estimators.subgroups import linear_view
from contrastive_lvm.linalg.normal_mixture import NormalMixture, condition
from contrastive_lvm.prediction import Linear, column_moments
from contrastive_lvm.priors.mixture import Mixture
from contrastive_lvm.resampling import LEVEL
from contrastive_lvm.resampling.compared_rows import unfitted_model
from contrastive_lvm.resampling.parallel import seed_sequence
from contrastive_lvm.resampling.replicates import check_replicates
from contrastive_lvm.resampling.unimodality import dip_pvalue
from contrastive_lvm.rows.reader import RowReader, Rows


class SubgroupChoice(NamedTuple):
    """The number of subgroups, and the table of all numbers that were tried."""

    n_components: int  # number of subgroups; 1: none
    pvalue: float  # p-value of one subgroup against two or more
    table: pd.DataFrame  # one row for each number that was tried


class LatentUnits(NamedTuple):
    """Posteriors of the target latents of independent units, rows or replicates."""

    mean: Array  # (U, T)
    cov: Array  # (T, T)

    def take(self, at: npt.NDArray[np.intp]) -> "LatentUnits":
        """Return some of the units."""
        return LatentUnits(self.mean[at], self.cov)


def choose_subgroups(
    X: Any,
    *,
    background: Any = None,
    model: ContrastiveLVM | None = None,
    most: int = 8,
    groups: RowLabels = None,
    background_groups: RowLabels = None,
    cv: int = 5,
    n_resamples: int = 39,
    random_state: Seed = None,
) -> SubgroupChoice:
    """Choose the number of subgroups among the rows of a target; 1 means none.

    Parameters
    ----------
    X, background : array-like
        The two sets, as in `ContrastiveLVM.fit`.
    model : ContrastiveLVM or None
        The model; its `latent_prior` may set the kind of covariance of the components. None is
        `ContrastiveLVM()`. The model is first fitted without subgroups.
    most : int
        Largest number to try.
    groups, background_groups : array-like of shape (n,) and (m,), optional
        The replicate of each row. All rows of a replicate belong to the same subgroup: the mean of
        their latents replaces them, so there are as many units as replicates.
    cv : int
        Number of folds of the held-out log-likelihood.
    n_resamples : int
        Number of samples from the model without subgroups, with which the likelihood ratio is
        compared.
    random_state : int, generator or None
        Draws folds and samples.

    Returns
    -------
    SubgroupChoice
        `n_components`, the `pvalue` of there being one, and a `table` with the columns
        `n_components`, `log_likelihood` (held out, of all units, less that of one component; NaN
        where there are no valleys), `standard_error` (of that difference), `lower_bound` (the
        same, of the fit to all units) and `valley_pvalue` (the largest over pairs of components).

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> found = clvm.choose_subgroups(data.target, background=data.background, random_state=0)
    >>> found.n_components, found.pvalue
    (4, 0.025)
    """
    estimator = unfitted_model(model)
    prior = estimator.latent_prior or Mixture()
    estimator.set_params(latent_prior=None).fit(
        X, background=background, groups=groups, background_groups=background_groups
    )
    view = linear_view(estimator._fitted())
    units = latent_units(view, rows_for_fit(copy(estimator), X), estimator.n_target_, groups)
    rng = np.random.default_rng(seed_sequence(random_state))
    return choose_number(units, prior, most, cv=cv, n_resamples=n_resamples, rng=rng)


def latent_units(
    view: Linear,
    rows: Rows,
    n_target: int,
    groups: RowLabels = None,
    weights: Array | None = None,
    covariates: Array | None = None,
) -> LatentUnits:
    """Return the target latents of a fit without subgroups, of rows or of replicates.

    They are standardized: as a whole they have mean 0 and covariance I, their uncertainty included.
    Of more than 5,000 rows, as many that are evenly spaced are used.
    """
    at, unit = unit_of_rows(rows.shape[0], groups, weights)
    X = rows.take(at) if isinstance(rows, RowReader) else rows[at]
    view = view if covariates is None else view._replace(covariates=covariates[at])
    mean, covs = column_moments(view, X, np.arange(n_target))
    cov, counts = covs.mean(axis=0), np.bincount(unit)
    mean = np.column_stack([np.bincount(unit, own) / counts for own in mean.T])
    mean = mean - mean.mean(axis=0)
    root = np.linalg.inv(np.linalg.cholesky(mean.T @ mean / len(mean) + cov))
    return LatentUnits(mean @ root.T, root @ cov @ root.T)


def unit_of_rows(
    n_rows: int, groups: RowLabels = None, weights: Array | None = None
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the rows that are used, and the unit of each: itself, or its replicate."""
    at = np.arange(n_rows) if weights is None else np.flatnonzero(weights)
    at = at[np.linspace(0, len(at) - 1, min(len(at), 5000)).astype(np.intp)]
    if groups is None:
        return at, np.arange(len(at))
    replicate = check_replicates([groups], [n_rows]).rows[0][at]
    return at, np.unique(replicate, return_inverse=True)[1]


def warn_about_replicates(units: LatentUnits, prior: Mixture) -> None:
    """Warn if the latents of neighbouring rows are correlated within their subgroups.

    Independent rows have no correlation, with a standard error of `1 / sqrt(pairs)` at most.
    """
    mixture, _ = fit_mixture(prior, units.mean, units.cov[None])
    labels = _labels(units, mixture)
    centres = np.stack([units.mean[labels == c].mean(axis=0) for c in np.unique(labels)])
    rest = units.mean - centres[np.unique(labels, return_inverse=True)[1]]
    pairs = np.flatnonzero(labels[1:] == labels[:-1])
    products = (rest[pairs] * rest[pairs + 1]).sum(axis=1)
    correlation = products.sum() / np.maximum((rest[pairs] ** 2).sum(), TINY)
    if correlation > max(0.3, 4.0 / np.sqrt(max(1, len(pairs)))):
        warnings.warn(
            f"groups=None, but rows next to each other are alike (correlation {correlation:.2f} "
            "within subgroups); name the replicates they belong to by groups=..., or leave this "
            "aside if the order of rows has another reason.",
            UserWarning,
            stacklevel=6,
        )


def _labels(units: LatentUnits, mixture: NormalMixture) -> npt.NDArray[np.intp]:
    """Return the most probable component of each unit."""
    pattern = np.zeros(len(units.mean), dtype=np.intp)
    found = condition(mixture, units.mean, units.cov[None], pattern)
    return np.asarray(found.probabilities.argmax(axis=1))


def choose_number(
    units: LatentUnits,
    prior: Mixture,
    most: int = 8,
    *,
    cv: int = 5,
    n_resamples: int = 39,
    rng: np.random.Generator,
) -> SubgroupChoice:
    """Choose the number of components of a mixture of standardized latents."""
    most = check_integer("most", most, 1)
    n, T = units.mean.shape
    folds = rng.permutation(np.arange(n) % check_integer("cv", cv, 2))
    lines, failures, pvalue = [(1, 0.0, 0.0, 0.0, np.nan)], 0, 1.0
    for C in range(2, most + 1):
        if n < max(10, C * (T + 1)) or failures == 2 or T == 0:
            break
        own = Mixture(C, prior.covariance)
        mixture, gain = fit_mixture(own, units.mean, units.cov[None])
        valley = valley_pvalue(units, mixture)
        if C == 2:
            pvalue = valley
            if valley <= LEVEL:
                pvalue = max(valley, ratio_pvalue(units, own, n_resamples, rng))
        failures = failures + 1 if valley > LEVEL else 0
        held_out = np.full(n, np.nan) if failures else _held_out(units, own, mixture, folds)
        error = float(np.sqrt(n) * held_out.std(ddof=1))
        lines.append((C, float(held_out.sum()), error, gain, valley))
    columns = ["n_components", "log_likelihood", "standard_error", "lower_bound", "valley_pvalue"]
    table = pd.DataFrame(lines, columns=columns)
    allowed = table[(table.n_components == 1) | (table.valley_pvalue <= LEVEL)]
    best = int(np.argmax(allowed.log_likelihood.to_numpy()))
    chosen = int(allowed.n_components.to_numpy()[best])
    return SubgroupChoice(chosen if pvalue <= LEVEL else 1, pvalue, table)


def valley_pvalue(units: LatentUnits, mixture: NormalMixture) -> float:
    """Return the largest p-value, over pairs of components, of there being no valley."""
    labels, C, worst = _labels(units, mixture), len(mixture.weights), 0.0
    for i in range(C):
        for j in range(i):
            worst = max(worst, pair_pvalue(units.mean[labels == i], units.mean[labels == j]))
    return worst


def pair_pvalue(first: Array, second: Array) -> float:
    """Return the p-value of no valley along the direction that separates two clouds best."""
    if min(len(first), len(second)) < 2:
        return 1.0
    away = first.mean(axis=0) - second.mean(axis=0)
    within = np.cov(np.vstack([first - first.mean(axis=0), second - second.mean(axis=0)]).T)
    within = np.atleast_2d(within) + 1e-6 * np.eye(len(away))
    axis = np.linalg.solve(within, away)
    return dip_pvalue(np.concatenate([first, second]) @ axis)


def _held_out(
    units: LatentUnits, prior: Mixture, start: NormalMixture, folds: npt.NDArray[np.intp]
) -> Array:
    """Return held-out log-likelihoods of the units, less those under one component."""
    gains = np.zeros(len(folds))
    for fold in range(folds.max() + 1):
        rest, own = units.take(np.flatnonzero(folds != fold)), np.flatnonzero(folds == fold)
        mixture, _ = fit_mixture(prior, rest.mean, rest.cov[None], start=start)
        pattern = np.zeros(len(own), dtype=np.intp)
        gains[own] = condition(mixture, units.mean[own], units.cov[None], pattern).log_ratio
    return gains


def ratio_pvalue(
    units: LatentUnits, prior: Mixture, n_resamples: int, rng: np.random.Generator
) -> float:
    """Compare a likelihood ratio with those of samples of the standard model.

    There `h ~ N(0, I)` and `m = (I - V) h + noise` has the covariance `I - V`.
    """
    n, T = units.mean.shape
    used = min(n, 500)
    gain = _ratio(prior, units.take(rng.permutation(n)[:used]))
    values, vectors = np.linalg.eigh(np.eye(T) - units.cov)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    larger = 0
    for _ in range(check_integer("n_resamples", n_resamples, 1)):
        mean = rng.standard_normal((used, T)) @ root.T
        larger += _ratio(prior, LatentUnits(mean, units.cov)) >= gain
    return (1 + larger) / (1 + n_resamples)


def _ratio(prior: Mixture, units: LatentUnits) -> float:
    """Return the log-likelihood ratio of a mixture, by a few steps of EM, against one component."""
    mean = units.mean - units.mean.mean(axis=0)
    total = np.linalg.inv(np.linalg.cholesky(mean.T @ mean / len(mean) + units.cov))
    cov = (total @ units.cov @ total.T)[None]
    return fit_mixture(prior, mean @ total.T, cov, n_starts=2, most=30)[1]
