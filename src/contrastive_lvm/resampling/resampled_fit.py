"""A fit, the rows that it was fitted to, and refits of it to resampled rows."""

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from contrastive_lvm.arrays import Array, Covariates, RowLabels
from contrastive_lvm.draws import signed_permutations
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.linear_fit import FitInput, read_input
from contrastive_lvm.estimators.multi_set_lvm import MultiSetLVM
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.linalg.gauge import ROTATIONS
from contrastive_lvm.model import LoadingBlock
from contrastive_lvm.resampling.parallel import resample
from contrastive_lvm.resampling.refit import Refit, Refitted, closed_form_engine
from contrastive_lvm.resampling.replicates import (
    Replicates,
    check_replicates,
    draw_weights,
    replicate_labels,
)

Draw = Callable[[Replicates, np.random.Generator], Sequence[tuple[Array, ...]]]


class ResampledFit(NamedTuple):
    """A fitted estimator, its rows prepared for refits, and the replicates that are drawn."""

    fitted: Any  # ContrastiveLVM or MultiSetLVM
    refit: Refit
    replicates: Replicates

    @property
    def n_replicates(self) -> dict[str, int]:
        """Number of replicates of each set."""
        members = self.replicates.members().sum(axis=1).tolist()
        return dict(zip(self.refit.model.sets, members, strict=True))

    def block(self, name: str) -> LoadingBlock:
        """Return a block of the model."""
        return next(block for block in self.refit.model.blocks if block.name == name)

    def results(
        self, draw: Draw, n: int, seeds: np.random.SeedSequence, n_jobs: int | None
    ) -> list[Refitted]:
        """Refit the model under the weights that are drawn with each of n seeds."""
        run, batch = partial(_refits, draw, self.refit, self.replicates), self.refit.batch
        n_jobs = n_jobs if self.refit.can_travel else 1
        return resample(run, n, seeds, batch=batch, name="bootstrap", n_jobs=n_jobs)

    def components(self, results: list[Refitted], block: str) -> Array:
        """Return the components of a block in all refits, (B, K, D), rotated as in the fit."""
        method = self.fitted.posterior_.rotations.get(block)
        found = [each.loadings[block] for each in results]
        if method is None:
            return np.array([own.T for own in found])
        L = np.array([own @ ROTATIONS[method](own) for own in found])
        turns = signed_permutations(L, self.fitted.posterior_.loadings[block])
        return np.swapaxes(L @ turns, 1, 2)


def of_two_sets(
    model: ContrastiveLVM,
    sets: tuple[Any, Any],
    groups: tuple[RowLabels, RowLabels],
    covariates: tuple[Covariates, Covariates],
    n_refits: int,
) -> ResampledFit:
    """Fit a model to a target and a background, unless it is fitted, and prepare refits."""
    X, background = sets
    fitted = copy(model)
    if not hasattr(model, "posterior_"):
        known = {"covariates": covariates[0], "background_covariates": covariates[1]}
        fitted = clone(model).fit(X, background=background, **known)
    fitted._prediction_model.encode(covariates[0], np.shape(X)[0])  # refuses wrong covariates
    size = int(fitted.n_target_)
    given = read_input(copy(fitted), X, background, n_target=size, covariates=covariates)
    n_rows = [rows.shape[0] for rows in given.sets]
    return _checked(fitted, given, check_replicates(groups[: len(n_rows)], n_rows), n_refits)


def of_several_sets(
    model: MultiSetLVM,
    X: Any,
    sets: RowLabels,
    groups: RowLabels,
    covariates: Covariates,
    n_refits: int,
) -> ResampledFit:
    """Fit a model to several sets, unless it is fitted, and prepare refits."""
    fitted = model
    if not hasattr(model, "posterior_"):
        fitted = clone(model).fit(X, sets=sets, covariates=covariates)
    rows, given = copy(fitted)._read_input(X, sets, covariates=covariates, blocks=fitted.blocks_)
    labels = None if groups is None else replicate_labels("groups", groups, fitted.n_samples_)
    own = [None if labels is None else labels[at] for at in rows.places.values()]
    names = tuple(f"groups in set {name!r}" for name in rows.places)
    replicates = check_replicates(own, list(rows.n_rows.values()), names)
    return _checked(fitted, given, replicates, n_refits)


def _checked(fitted: Any, given: FitInput, replicates: Replicates, n_refits: int) -> ResampledFit:
    """Prepare refits, unless the rows are not those of the fit."""
    closed_form_engine(given)
    n_features = given.sets[0].shape[1]
    if n_features != fitted.n_features_in_:
        reason = (
            f"has {n_features} features, but the model was fitted to {fitted.n_features_in_}; pass "
            "the rows of the fit, or a model that has not been fitted."
        )
        raise InvalidDataError("X", reason)
    posterior = fitted.posterior_
    if any(len(mixture.weights) > 1 for mixture in posterior.latent_mixtures.values()):
        reason = (
            "has subgroups, whose loadings bootstrap cannot refit; use subgroup_differences, or "
            "fit with latent_prior=None."
        )
        raise InvalidParameterError("latent_prior", fitted.latent_prior, reason)
    for block in posterior.rotations:  # resamples are fitted with uncorrelated latents
        posterior = posterior.rotated(block, None)
    refit = Refit.of_fit(given, posterior, n_refits=n_refits)
    gain = refit([np.ones(rows.shape[0]) for rows in given.sets]).lower_bound - fitted.lower_bound_
    if not abs(gain) < 0.5:
        reason = (
            f"is not what the model was fitted to: a refit changes the lower bound by {gain:.3g} "
            "nats; pass the rows of the fit, without weights, or a model that has not been fitted."
        )
        raise InvalidDataError("X", reason)
    return ResampledFit(fitted, refit, replicates)


def draw_resample(replicates: Replicates, rng: np.random.Generator) -> list[tuple[Array, ...]]:
    """Draw the weights of one resample."""
    return [draw_weights(replicates, rng)]


def _refits(
    draw: Draw, refit: Refit, replicates: Replicates, rngs: list[np.random.Generator]
) -> list[Refitted]:
    weights = [_allowed(draw, refit, replicates, rng) for rng in rngs]
    return refit.many([each for drawn in weights for each in drawn])


def _allowed(
    draw: Draw, refit: Refit, replicates: Replicates, rng: np.random.Generator
) -> Sequence[tuple[Array, ...]]:
    """Draw weights until the model can be fitted under them."""
    for _ in range(100):
        weights = draw(replicates, rng)
        if all(refit.allows(each) for each in weights):
            return weights
    kind = "groups" if replicates.labelled else "X"
    reason = (
        "leaves too few distinct rows or observed entries to fit the model in 100 "
        "successive resamples; use fewer dimensions, or features with more observed entries."
    )
    raise InvalidDataError(kind, reason)
