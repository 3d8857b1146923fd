"""Subgroups of the rows of a target: methods of models with a mixture of target latents."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm import prediction
from contrastive_lvm.arrays import Array
from contrastive_lvm.estimators.input_rows import by_chunks
from contrastive_lvm.estimators.prediction_model import RowFacts
from contrastive_lvm.exceptions import InvalidParameterError

if TYPE_CHECKING:
    from contrastive_lvm.estimators.linear_predictions import LinearPredictions


class Subgroups(NamedTuple):
    """Subgroups of rows: those of the rows, and where they lie among the target latents."""

    labels: npt.NDArray[np.intp]  # (N,) the most probable subgroup of each row
    probabilities: Array  # (N, C)
    means: Array  # (C, n_target) of the target latents in each subgroup
    weights: Array  # (C,) shares of the subgroups, the largest first


def has_subgroups(model: Any) -> bool:
    """Whether the target latents have a mixture as their prior."""
    return model.latent_prior is not None


def predict_proba(self: "LinearPredictions", X: Any, *, covariates: Any = None) -> Array:
    """Probability of each subgroup for rows of the target, the target latents integrated out.

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
    return _probabilities(self, X, covariates=covariates)


@by_chunks
def _probabilities(model: "LinearPredictions", X: Any, *, covariates: Any) -> Array:
    view, rows = model._rows(X, "target", RowFacts(covariates=covariates))
    if model.n_target_ == 0:
        return np.ones((rows.shape[0], 1))
    return prediction.component_probabilities(view, rows)


def predict(self: "LinearPredictions", X: Any, *, covariates: Any = None) -> npt.NDArray[np.intp]:
    """Most probable subgroup of rows of the target, (n,); 0 is the largest subgroup.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, latent_prior=clvm.Mixture(4))
    >>> model = model.fit(data.target, background=data.background)
    >>> model.predict(data.target[[0, 100, 200, 300]])
    array([3, 2, 1, 0])
    """
    return np.asarray(np.asarray(_probabilities(self, X, covariates=covariates)).argmax(axis=1))


def subgroups(self: "LinearPredictions", X: Any, *, covariates: Any = None) -> Subgroups:
    """Subgroups of rows of the target, with probabilities.

    Probabilities are those of the fitted model given the whole row, missing entries and target
    latents integrated out; that its parameters are estimates is not counted in.

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
    probabilities = np.asarray(_probabilities(self, X, covariates=covariates))
    mixture = self.posterior_.latent_mixtures["target"]
    labels = np.asarray(probabilities.argmax(axis=1))
    return Subgroups(labels, probabilities, mixture.means.copy(), mixture.weights.copy())
