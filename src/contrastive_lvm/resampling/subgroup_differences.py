"""Differences between subgroups, with errors that account for how subgroups were found.

The difference of subgroup c is `W m_c`, the mean of its rows less that of the target, by feature.
The same features put rows into subgroups, so errors computed as if subgroups were known are too
small, and any cloud that is cut in two has "differences". Two questions therefore decide about a
feature.

Given that the subgroups exist, `W m_c` is a parameter of the mixture, and its error is that of the
whole fit: replicates are drawn with replacement, everything is fitted again from the start, and
subgroups are matched (`subgroup_refits`). With R replicates, `d` the difference of the fit and
`d_b` those of the refits,

    se^2 = R / (R - 1) mean_b (d_b - d)^2,

and interval and p-value are those of Student's t distribution with R - 1 degrees of freedom, as in
`bootstrap`.

Do they exist? `separation` has the p-value of each subgroup: the larger one of the bootstrapped
likelihood ratio's and of those of there being no valley between it and another subgroup
(`subgroup_number`), both from the latents of a model without subgroups. "The feature sets apart a
subgroup that exists" is rejected where either is: a p-value is the larger of the two (Berger 1982),
which keeps its level if there is one cloud, and if there are subgroups that do not differ in the
feature. False discoveries are controlled in the same way.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control
from scipy.stats import t as student_t

from contrastive_lvm.arrays import Array, Covariates, RowLabels
from contrastive_lvm.checks import Seed, check_integer, check_number
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.input_rows import rows_for_fit
from contrastive_lvm.estimators.subgroups import linear_view
from contrastive_lvm.priors.mixture import Mixture
from contrastive_lvm.resampling import LEVEL
from contrastive_lvm.resampling.parallel import seed_sequence
from contrastive_lvm.resampling.subgroup_number import (
    latent_units,
    pair_pvalue,
    ratio_pvalue,
    unit_of_rows,
)
from contrastive_lvm.resampling.subgroup_refits import (
    GroupedRows,
    SubgroupRefit,
    differences,
    grouped_rows,
    subgroup_refits,
)

N_SAMPLES = 99  # of the standard model, for the likelihood ratio


class SubgroupDifferences(NamedTuple):
    """The features in which subgroups differ, and whether subgroups are separated at all."""

    separation: Array  # (C,) p-value of each subgroup not being separated from the others
    table: pd.DataFrame  # a row for each subgroup and feature


def subgroup_differences(
    model: ContrastiveLVM,
    X: Any,
    *,
    background: Any = None,
    groups: RowLabels = None,
    background_groups: RowLabels = None,
    covariates: Covariates = None,
    background_covariates: Covariates = None,
    n_resamples: int = 100,
    confidence_level: float = 0.9,
    random_state: Seed = None,
) -> SubgroupDifferences:
    """Find the features in which each subgroup differs from the average row of the target.

    Parameters
    ----------
    model : ContrastiveLVM
        A fitted model with two subgroups or more; refits have as many, and as many dimensions.
    X, background : array-like
        The two sets, as in `fit`.
    groups, background_groups : array-like of shape (n,) and (m,), optional
        The replicate of each row; whole replicates are drawn.
    covariates, background_covariates : optional, as in `fit`
    n_resamples : int
        Number of refits.
    confidence_level : float
    random_state : int, generator or None

    Returns
    -------
    SubgroupDifferences
        `separation`, for each subgroup the p-value of the hypothesis that it is not separated from
        all others, and a `table` with the columns `subgroup` (from 0, as in `predict`), `feature`,
        `difference` (of the subgroup's mean from that of the target, in the units of the model),
        its standard error `std` and interval `low`, `high`; `pvalue` of the hypothesis that the
        subgroup is not separated from the others or does not differ in this feature; and `qvalue`,
        the share of false discoveries among all values as small. A subgroup that is not separated
        at 5 % has no errors and no intervals.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 10, latent_prior=clvm.Mixture(4))
    >>> model = model.fit(data.target, background=data.background)
    >>> found = clvm.subgroup_differences(
    ...     model, data.target, background=data.background, n_resamples=5, random_state=0
    ... )
    >>> found.separation
    array([0.01, 0.01, 0.01, 0.01])
    >>> found.table.shape
    (120, 8)
    """
    level = check_number("confidence_level", confidence_level, 0.0, 1.0, "between 0 and 1")
    n_resamples = check_integer("n_resamples", n_resamples, 2)
    labels, known = (groups, background_groups), (covariates, background_covariates)
    rows = grouped_rows(model, (X, background), labels, known)
    for_refits, for_samples = seed_sequence(random_state).spawn(2)
    separation = separation_of(rows, np.random.default_rng(for_samples))
    refits = subgroup_refits(rows, n_resamples, for_refits) if separation.min() <= LEVEL else []
    return differences_of(rows, separation, refits, level)


def separation_of(rows: GroupedRows, rng: np.random.Generator) -> Array:
    """Return the p-value of each subgroup not being separated from all others, (C,).

    The likelihood ratio is computed only if it can change the result.
    """
    plain, C, groups = rows.fit(None, ()), rows.model.n_subgroups_, rows.groups[0]
    view, values = linear_view(plain._fitted()), rows_for_fit(plain, rows.X)
    at, unit = unit_of_rows(values.shape[0], groups)
    known = plain._fitted().encode(rows.covariates[0], values.shape[0])
    codes = None if known is None else known.values
    units = latent_units(view, values, plain.n_target_, groups, covariates=codes)
    belongs = np.zeros((len(units.mean), C))
    np.add.at(belongs, (unit, rows.predicted(rows.model)[at]), 1.0)
    own = [units.mean[belongs.argmax(axis=1) == c] for c in range(C)]
    found = np.zeros(C)
    for i in range(C):
        for j in range(i):
            found[[i, j]] = np.maximum(found[[i, j]], pair_pvalue(own[i], own[j]))
    if found.min() > LEVEL:
        return found
    prior = replace(rows.model.latent_prior or Mixture(), n_components=2)
    return np.maximum(found, ratio_pvalue(units, prior, N_SAMPLES, rng))


def differences_of(
    rows: GroupedRows,
    separation: Array,
    refits: list[SubgroupRefit],
    confidence_level: float = 0.9,
) -> SubgroupDifferences:
    """Return the table of a model and its refits, without errors of unseparated subgroups."""
    fit, R = differences(rows.model), rows.n_units
    (C, D), away = fit.shape, np.array([refit.differences - fit for refit in refits])
    std = np.full((C, D), np.nan)
    if (separation <= LEVEL).any():
        std = np.sqrt(R / (R - 1.0) * np.square(away).mean(axis=0))
        std[separation > LEVEL] = np.nan
    width = student_t.ppf(0.5 + 0.5 * confidence_level, R - 1) * std
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(fit == 0.0, 0.0, np.abs(fit) / std)
    p = np.where(np.isnan(ratio), 1.0, 2.0 * student_t.sf(ratio, R - 1))
    q = false_discovery_control(p.ravel()).reshape(p.shape)
    names = getattr(rows.model, "feature_names_in_", [f"x{i}" for i in range(D)])
    columns = {
        "subgroup": np.repeat(np.arange(C), D),
        "feature": np.tile(np.asarray(names, dtype=object), C),
        "difference": fit.ravel(),
        "std": std.ravel(),
        "low": (fit - width).ravel(),
        "high": (fit + width).ravel(),
        "pvalue": np.maximum(p, separation[:, None]).ravel(),
        "qvalue": np.maximum(q, separation[:, None]).ravel(),
    }
    return SubgroupDifferences(separation, pd.DataFrame(columns))
