"""The stability of subgroups: refits to resampled rows put all rows into subgroups again.

Two partitions of the rows are compared by the adjusted Rand index (Hubert and Arabie 1985), which
is 1 for the same and 0 on average for unrelated ones.
"""

from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import adjusted_rand_score

from contrastive_lvm.arrays import Array, Covariates, RowLabels
from contrastive_lvm.checks import Seed, check_integer
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.resampling.parallel import seed_sequence
from contrastive_lvm.resampling.subgroup_refits import (
    GroupedRows,
    SubgroupRefit,
    grouped_rows,
    subgroup_refits,
)


class SubgroupStability(NamedTuple):
    """How similar the subgroups of resampled rows, or replicates, are to the original ones."""

    adjusted_rand: Array  # (n_resamples,) index of each refit against the subgroups of the model
    comembership: Array  # (C,) share of pairs of a subgroup that stay together, the largest first


def subgroup_stability(
    model: ContrastiveLVM,
    X: Any,
    *,
    background: Any = None,
    groups: RowLabels = None,
    background_groups: RowLabels = None,
    covariates: Covariates = None,
    background_covariates: Covariates = None,
    n_resamples: int = 20,
    random_state: Seed = None,
) -> SubgroupStability:
    """Fit a model with subgroups to resampled rows, and compare the subgroups of all rows.

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
    random_state : int, generator or None

    Returns
    -------
    SubgroupStability
        Named tuple `adjusted_rand, comembership`: the adjusted Rand index of each refit, and for
        each subgroup the share of its pairs of rows that are in one subgroup of a refit.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 10, latent_prior=clvm.Mixture(4))
    >>> model = model.fit(data.target, background=data.background)
    >>> found = clvm.subgroup_stability(
    ...     model, data.target, background=data.background, n_resamples=3, random_state=0
    ... )
    >>> found.adjusted_rand.round(2), found.comembership.round(2)
    (array([1., 1., 1.]), array([1., 1., 1., 1.]))
    """
    labels, known = (groups, background_groups), (covariates, background_covariates)
    rows = grouped_rows(model, (X, background), labels, known)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    return stability_of(rows, subgroup_refits(rows, n_resamples, seed_sequence(random_state)))


def stability_of(rows: GroupedRows, refits: list[SubgroupRefit]) -> SubgroupStability:
    """Compare the subgroups of refits with those of the model."""
    first = rows.predicted(rows.model)
    own = np.eye(rows.model.n_subgroups_)[first]
    pairs = own.sum(axis=0) * (own.sum(axis=0) - 1.0)
    together = np.zeros(len(pairs))
    for refit in refits:
        counts = own.T @ np.eye(len(pairs))[refit.labels]
        together += (counts * (counts - 1.0)).sum(axis=1) / np.maximum(pairs, 1.0)
    indices = [adjusted_rand_score(first, refit.labels) for refit in refits]
    return SubgroupStability(np.array(indices), together / len(refits))
