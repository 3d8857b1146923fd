"""Subgroups of the rows of a target: methods of models with a mixture of target latents."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from contrastive_lvm import prediction
from contrastive_lvm.arrays import Array, Covariates, RowLabels
from contrastive_lvm.checks import RandomState
from contrastive_lvm.estimators.input_rows import by_chunks
from contrastive_lvm.estimators.linear_fit import run_engine
from contrastive_lvm.estimators.prediction_model import (
    PredictionModel,
    RowFacts,
    contrastive_predictions,
)
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.model import Model
from contrastive_lvm.priors.mixture import Mixture

if TYPE_CHECKING:
    from contrastive_lvm.estimators.linear_fit import FitInput
    from contrastive_lvm.estimators.linear_predictions import LinearPredictions


class Subgroups(NamedTuple):
    """Subgroups of rows, and where they lie among the target latents."""

    labels: npt.NDArray[np.intp]  # (N,) the most probable subgroup of each row
    probabilities: Array  # (N, C) probabilities of the subgroups
    means: Array  # (C, n_target) mean target latents of each subgroup
    weights: Array  # (C,) shares of the subgroups, the largest first


def has_subgroups(model: Any) -> bool:
    """Tell whether the target latents have a mixture as their prior."""
    return model.latent_prior is not None


@by_chunks
def predict_proba(self: "LinearPredictions", X: Any, *, covariates: Covariates = None) -> Array:
    """Return the probability of each subgroup for rows of the target.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
    covariates : optional, as in `fit`

    Returns
    -------
    ndarray of shape (n, n_components)

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, latent_prior=clvm.Mixture(4))
    >>> model = model.fit(data.target, background=data.background)
    >>> model.predict_proba(data.target[:2]).round(3)
    array([[0., 0., 0., 1.],
           [0., 0., 0., 1.]])
    """
    view, rows = self._rows(X, "target", RowFacts(covariates=covariates))
    if self.n_target_ == 0:
        return np.ones((rows.shape[0], 1))
    return prediction.component_probabilities(view, rows)


def predict(
    self: "LinearPredictions", X: Any, *, covariates: Covariates = None
) -> npt.NDArray[np.intp]:
    """Return the most probable subgroup of rows of the target, (n,); 0 is the largest.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, latent_prior=clvm.Mixture(4))
    >>> model = model.fit(data.target, background=data.background)
    >>> model.predict(data.target[[0, 100, 200, 300]])
    array([3, 2, 1, 0])
    """
    return np.asarray(np.asarray(predict_proba(self, X, covariates=covariates)).argmax(axis=1))


def subgroups(self: "LinearPredictions", X: Any, *, covariates: Covariates = None) -> Subgroups:
    """Return the subgroups of rows of the target, with probabilities.

    The probabilities are conditional on the whole row under the fitted model, with missing entries
    and target latents integrated out. They do not include the uncertainty of the parameters.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
    covariates : optional, as in `fit`

    Returns
    -------
    Subgroups
        Named tuple `labels, probabilities, means, weights`: the most probable subgroup of each
        row, the probabilities of all, (n, n_components), and the subgroups' means among the target
        latents and shares in the target, the largest first.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, latent_prior=clvm.Mixture(4))
    >>> model = model.fit(data.target, background=data.background)
    >>> found = model.subgroups(data.target)
    >>> found.labels[:3], found.means.shape
    (array([3, 3, 3]), (4, 2))
    """
    if not has_subgroups(self):
        reason = "has no subgroups; fit with latent_prior=Mixture(...)."
        raise InvalidParameterError("latent_prior", None, reason)
    probabilities = np.asarray(predict_proba(self, X, covariates=covariates))
    mixture = self.posterior_.latent_mixtures["target"]
    labels = np.asarray(probabilities.argmax(axis=1))
    return Subgroups(labels, probabilities, mixture.means.copy(), mixture.weights.copy())


def with_supported_subgroups(
    given: "FitInput", prior: Mixture, groups: RowLabels, random_state: RandomState
) -> "FitInput":
    """Return the input of a fit with the number of subgroups that a plain fit supports."""
    from contrastive_lvm.resampling.subgroup_number import (
        choose_number,
        latent_units,
        warn_about_replicates,
    )

    reason = given.engine._unsupported_reason(
        _with_subgroups(given.model, replace(prior, n_components=2))
    )
    if reason is not None:
        raise ValueError(reason)
    rng = check_random_state(random_state)
    posterior = run_engine(given, (None, None), 1, rng).best
    view = linear_view(contrastive_predictions(posterior, given.model.likelihood))
    n_target = posterior.loadings["target"].shape[1]
    known = None if given.covariates is None else given.covariates[0]
    units = latent_units(view, given.sets[0], n_target, groups, given.weights[0], known)
    seeded = np.random.default_rng(rng.randint(2**31 - 1))
    choice = choose_number(units, prior, rng=seeded)
    chosen = replace(prior, n_components=choice.n_components)
    if groups is None and choice.n_components > 1:
        warn_about_replicates(units, chosen)
    return given._replace(model=_with_subgroups(given.model, chosen))


def linear_view(predictions: PredictionModel) -> prediction.Linear:
    """Return the model of target rows; refuse likelihoods without a closed form."""
    view = predictions.view("target")
    if not isinstance(view, prediction.Linear):
        reason = "has no closed form; subgroups need Gaussian or Student-t noise."
        raise InvalidParameterError("likelihood", predictions.likelihood, reason)
    return view


def _with_subgroups(model: Model, prior: Mixture) -> Model:
    blocks = (
        replace(block, latent_prior=prior) if block.name == "target" else block
        for block in model.blocks
    )
    return replace(model, blocks=tuple(blocks))
