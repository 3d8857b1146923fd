"""Are subgroups stable? The same model is fitted to resampled rows, and puts all rows in subgroups.

Rows are drawn with replacement, whole replicates at a time, and enter as weights. Two partitions of
the rows are compared by the adjusted Rand index (Hubert and Arabie 1985), which is 1 for the same
and 0 on average for unrelated ones.
"""

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_integer
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.priors.mixture import Mixture
from contrastive_lvm.resampling.parallel import seed_sequence
from contrastive_lvm.resampling.replicates import check_replicates, draw_weights


class SubgroupStability(NamedTuple):
    """How alike subgroups are when other rows, or replicates, are drawn."""

    adjusted_rand: Array  # (n_resamples,) with the subgroups of the model
    comembership: Array  # (C,) share of pairs of a subgroup that stay together, the largest first


def subgroup_stability(
    model: ContrastiveLVM,
    X: Any,
    *,
    background: Any = None,
    groups: Any = None,
    background_groups: Any = None,
    n_resamples: int = 20,
    random_state: Any = None,
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
    if model._fitted() and model.n_subgroups_ < 2:
        reason = "has no subgroups that could be stable; fit with two or more."
        raise InvalidParameterError("latent_prior", model.latent_prior, reason)
    prior = model.latent_prior or Mixture()
    refit = clone(model).set_params(
        n_target=model.n_target_,
        n_shared=model.n_shared_,
        latent_prior=Mixture(model.n_subgroups_, prior.covariance),
    )
    sets = [X] if background is None else [X, background]
    labels = [groups, background_groups][: len(sets)]
    replicates = check_replicates(
        labels, [Z.shape[0] if hasattr(Z, "shape") else len(Z) for Z in sets]
    )
    rng, first = np.random.default_rng(seed_sequence(random_state)), model.predict(X)
    own = np.eye(model.n_subgroups_)[first]
    pairs = own.sum(axis=0) * (own.sum(axis=0) - 1.0)
    indices, together = [], np.zeros(model.n_subgroups_)
    for _ in range(check_integer("n_resamples", n_resamples, 1)):
        weights = (*draw_weights(replicates, rng), None)
        refit.fit(
            X, background=background, sample_weight=weights[0], background_sample_weight=weights[1]
        )
        other = refit.predict(X)
        indices.append(adjusted_rand_score(first, other))
        counts = own.T @ np.eye(model.n_subgroups_)[other]
        together += (counts * (counts - 1.0)).sum(axis=1) / np.maximum(pairs, 1.0)
    return SubgroupStability(np.array(indices), together / n_resamples)
