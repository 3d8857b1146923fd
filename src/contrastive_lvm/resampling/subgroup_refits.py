"""A model with subgroups fitted again, from the start, to resampled rows.

Rows are drawn with replacement, whole replicates at a time, and enter as weights. Each refit puts
all rows into subgroups. Its subgroups are numbered so that as many rows as possible are in
subgroups of the same number as in the model.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

from contrastive_lvm.arrays import Array, Covariates, RowLabels
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.input_rows import read_rows
from contrastive_lvm.estimators.units import scaling_of, without_preparation
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.priors.mixture import Mixture
from contrastive_lvm.resampling.parallel import resample
from contrastive_lvm.resampling.replicates import Replicates, check_replicates, draw_weights


class GroupedRows(NamedTuple):
    """A model with subgroups and the rows it was fitted to, in the units of the model."""

    model: ContrastiveLVM
    X: Any
    background: Any
    covariates: tuple[Covariates, Covariates]
    groups: tuple[RowLabels, RowLabels]
    replicates: Replicates

    @property
    def n_units(self) -> int:
        """Return the number of replicates, or rows, of the set that has fewer."""
        return int(self.replicates.members().sum(axis=1).min())

    def predicted(self, model: ContrastiveLVM) -> npt.NDArray[np.intp]:
        """Return the subgroup of each row of the target under a model."""
        return np.asarray(model.predict(self.X, covariates=self.covariates[0]))

    def fit(
        self, latent_prior: Mixture | None, weights: tuple[Array | None, ...]
    ) -> ContrastiveLVM:
        """Fit a model of the same size with another prior of the latents to weighted rows.

        Warnings about the fit are not repeated.
        """
        model = clone(self.model).set_params(
            n_target=self.model.n_target_,
            n_shared=self.model.n_shared_,
            latent_prior=latent_prior,
        )
        weights = (*weights, None, None)
        with warnings.catch_warnings(action="ignore"):
            fitted: ContrastiveLVM = model.fit(
                self.X,
                background=self.background,
                covariates=self.covariates[0],
                background_covariates=self.covariates[1],
                sample_weight=weights[0],
                background_sample_weight=weights[1],
            )
        return fitted


class SubgroupRefit(NamedTuple):
    """The result of a refit, with subgroups in the order of the model's."""

    labels: npt.NDArray[np.intp]  # (N,) of all rows of the target
    differences: Array  # (C, D) of the subgroups' means from the target's


def grouped_rows(
    model: ContrastiveLVM,
    sets: tuple[Any, Any],
    groups: tuple[RowLabels, RowLabels],
    covariates: tuple[Covariates, Covariates],
) -> GroupedRows:
    """Check that a model has subgroups, and find the replicate of each row."""
    model._fitted()
    if model.n_subgroups_ < 2:
        reason = "has no subgroups that could be compared; fit with two or more."
        raise InvalidParameterError("latent_prior", model.latent_prior, reason)
    X, background = sets
    if scaling_of(model) is not None:
        X = read_rows(model, X)
        background = None if background is None else read_rows(model, background, name="background")
        model = without_preparation(model)
    given = [X] if background is None else [X, background]
    sizes = [Z.shape[0] if hasattr(Z, "shape") else len(Z) for Z in given]
    replicates = check_replicates(groups[: len(given)], sizes)
    return GroupedRows(model, X, background, covariates, groups, replicates)


def subgroup_refits(
    rows: GroupedRows, n_resamples: int, seeds: np.random.SeedSequence
) -> list[SubgroupRefit]:
    """Fit the model to rows that are drawn with replacement."""
    first, C = rows.predicted(rows.model), rows.model.n_subgroups_
    own, prior = np.eye(C)[first], rows.model.latent_prior or Mixture()
    same = Mixture(C, prior.covariance)

    def refits(generators: list[np.random.Generator]) -> list[SubgroupRefit]:
        return [refit(rng) for rng in generators]

    def refit(rng: np.random.Generator) -> SubgroupRefit:
        found = rows.fit(same, draw_weights(rows.replicates, rng))
        labels = rows.predicted(found)
        order = linear_sum_assignment(-(own.T @ np.eye(C)[labels]))[1]
        return SubgroupRefit(np.argsort(order)[labels], differences(found)[order])

    return resample(refits, n_resamples, seeds, name="subgroups")


def differences(model: ContrastiveLVM) -> Array:
    """Return how the means of the subgroups differ from that of the target, (C, D)."""
    mixture = model.posterior_.latent_mixtures["target"]
    return np.asarray(mixture.means @ model.target_components_)
