"""The path of the group lasso over its strength, from which users choose rho."""

import logging
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from contrastive_lvm.arrays import Array, Covariates
from contrastive_lvm.checks import check_integer
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent
from contrastive_lvm.coordinate_ascent.problem import Problem
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.linear_fit import compress, read_input
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.priors.flat import Flat
from contrastive_lvm.priors.group_lasso import GroupLasso
from contrastive_lvm.progress import progress, verbosity

logger = logging.getLogger(__name__)
MOST_FEATURES = 1000  # that the weakest strength of a default grid keeps
LEAST = 0.01  # of the strength at which the last feature of the unpenalised fit would go


class LassoPath(NamedTuple):
    """The target loadings for each strength."""

    rhos: Array  # (R,) strengths, ascending
    row_norms: Array  # (R, D) norm of each feature's target loadings, exactly zero when dropped
    bounds: Array  # (R,) penalised log-likelihoods
    log_likelihoods: Array  # (R,) log-likelihoods without the penalty
    n_selected: np.ndarray  # (R,) numbers of features that are kept
    models: list[ContrastiveLVM]  # the fitted estimators, one for each strength

    @property
    def steadiest(self) -> int:
        """Return the index of a strength to look at first: the middle of the longest plateau.

        As the strength grows, irrelevant features vanish one after the other, while relevant ones
        stay for a long time. A plateau is a run of strengths that keep the same features, some but
        not all. Without a plateau, this is the index of the strongest penalty that keeps any
        feature.
        """
        kept = np.asarray(self.row_norms > 0)
        some = np.asarray(kept.any(axis=1) & ~kept.all(axis=1))
        same = some[1:] & (kept[1:] == kept[:-1]).all(axis=1)
        longest, end, run = 0, max(0, int(kept.any(axis=1).sum()) - 1), 0
        for i, steady in enumerate(same, start=1):
            run = run + 1 if steady else 0
            if run > longest:
                longest, end = run, i
        return end - longest // 2


def group_lasso_path(
    estimator: ContrastiveLVM,
    X: Any,
    *,
    background: Any = None,
    rhos: ArrayLike | None = None,
    n_rhos: int = 30,
    covariates: Covariates = None,
    background_covariates: Covariates = None,
) -> LassoPath:
    """Fit an estimator for a grid of group-lasso strengths, each fit starting from the one before.

    Parameters
    ----------
    estimator : ContrastiveLVM
        The model; its `target_prior` may be a `GroupLasso` (for its groups) or None.
    X, background : array-like
        As in `fit`.
    rhos : array-like or None
        Strengths; None is a logarithmic grid up to where no feature is left.
    n_rhos : int
        Size of that grid.
    covariates, background_covariates : frames or array-like, optional
        As in `fit`.

    Returns
    -------
    LassoPath

    Examples
    --------
    >>> import numpy as np
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_contrastive(random_state=0)
    >>> path = clvm.group_lasso_path(
    ...     clvm.ContrastiveLVM(2, 8), data.target, background=data.background, n_rhos=5
    ... )
    >>> path.row_norms.shape, bool((np.diff(path.n_selected) <= 0).all())
    ((5, 50), True)
    """
    prior = parse_params.prior("target_prior", estimator.target_prior)
    lasso = prior if isinstance(prior, GroupLasso) else GroupLasso()
    if prior not in (lasso, Flat()):
        raise InvalidParameterError(
            "target_prior", prior, "is not a GroupLasso; give estimator a GroupLasso or None."
        )
    shell: ContrastiveLVM = clone(estimator).set_params(target_prior=lasso)
    given = read_input(shell, X, background, covariates=(covariates, background_covariates))
    engine = given.engine
    if not isinstance(engine, CoordinateAscent):
        raise InvalidParameterError("inference", engine, "has no closed form; use 'em'.")
    model, data = compress(given, engine)
    if any(block.automatic for block in model.blocks):
        model = engine._sized(model, data)
    target = next(block for block in model.blocks if block.name == "target")
    if target.n_components == 0:
        reason = "leaves no loadings to choose features by; use at least 1."
        raise InvalidParameterError("n_target", 0, reason)
    bound_lasso = replace(lasso, groups=getattr(target.prior, "groups", None))
    unpenalised = Problem(model.with_priors({"target": Flat()}), data)
    current = engine._run(unpenalised.model, data)
    grid = _grid(rhos, n_rhos, unpenalised, current, bound_lasso)

    def fit(rho: float, start: Posterior) -> Posterior:
        penalised = model.with_priors({"target": replace(bound_lasso, rho=float(rho))})
        problem = Problem(penalised, data)
        return engine._continue(problem.begin(problem.point_of(start)))

    models = []
    with (
        verbosity(enabled=bool(estimator.verbose)),
        progress("group lasso", len(grid), logger, unit="strength") as advance,
    ):
        if rhos is None and data.n_features > MOST_FEATURES:
            grid, current = _worth_trying(grid, current, fit)
        for rho in grid:
            current = fit(rho, current)
            fitted: ContrastiveLVM = copy(shell).set_params(target_prior=replace(lasso, rho=rho))
            fitted._publish(current, model)
            models.append(fitted)
            advance(1, f"{int((fitted.feature_relevance_ > 0).sum())} features")
    norms = np.array([fitted.feature_relevance_ for fitted in models])
    parts = [fitted.posterior_.bound_parts or {} for fitted in models]
    likelihoods = [sum(v for k, v in part.items() if "rows" in k) for part in parts]
    return LassoPath(
        grid,
        norms,
        np.array([fitted.lower_bound_ for fitted in models]),
        np.array(likelihoods),
        (norms > 0).sum(axis=1),
        models,
    )


def _grid(
    rhos: ArrayLike | None, n_rhos: int, problem: Problem, start: Posterior, lasso: GroupLasso
) -> Array:
    if rhos is not None:
        grid = np.unique(np.asarray(rhos, dtype=np.float64))
        if len(grid) == 0 or not (grid > 0).all() or not np.isfinite(grid).all():
            raise InvalidParameterError("rhos", rhos, "must be positive numbers.")
        return grid
    n_rhos = check_integer("n_rhos", n_rhos, 2)
    # At rho_g the gradient of the unpenalised fit no longer holds the group away from zero.
    slope = problem.slope_without("target", problem.point_of(start), problem.first_carry())
    strongest = lasso._strength_without_features(slope)
    return np.geomspace(LEAST * strongest, strongest, n_rhos)


def _worth_trying(
    grid: Array, unpenalised: Posterior, fit: Callable[[float, Posterior], Posterior]
) -> tuple[Array, Posterior]:
    """Return a grid that leaves few of many features, and the fit to its first strength.

    A weak penalty selects nearly all of many features, which takes long and is of no use. Fits
    begin with the strongest penalty and look for the first that selects more than `MOST_FEATURES`;
    the grid begins before it.
    """
    first, found = grid[-1], unpenalised
    for rho in grid[::-1]:
        trial = fit(rho, unpenalised)
        if (trial.loadings["target"] != 0).any(axis=1).sum() > MOST_FEATURES:
            break
        first, found = rho, trial
    return np.geomspace(first, grid[-1], len(grid)), found
