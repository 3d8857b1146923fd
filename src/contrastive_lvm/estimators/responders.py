"""The rows of a target that responded, and how strongly.

Rows of the target that did not respond are like rows of the background: given the target's
loadings, their target latents lie where those of the background's rows lie. So one component of a
mixture of target latents is fitted to the background's rows and tied to them, and the others are
free and fitted to the target's rows, as many as BIC supports, which may be none. All rows enter
through their posterior N(m, V) under a standard normal prior (`linalg.normal_mixture`), so that the
uncertainty of rows counts.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_number
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.prediction_model import RowFacts
from contrastive_lvm.estimators.subgroups import linear_view
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.linalg.normal_mixture import (
    MixturePosterior,
    NormalMixture,
    condition,
    standard_normal,
)
from contrastive_lvm.prediction import column_moments
from contrastive_lvm.priors.mixture import Mixture

MOST_FREE = 3  # components of rows that responded
MOST_STEPS, STANDS_STILL = 500, 1e-7  # of EM; nats per row and step
BISECTIONS = 50  # of quantiles


class Responders(NamedTuple):
    """Probabilities of response, and its strength relative to rows without any."""

    probabilities: Array  # (N,) probabilities of response
    strength: Array  # (N, n_target) mean target latents minus those of rows without response
    low: Array  # (N, n_target) lower limits of the interval of the strength
    high: Array  # (N, n_target) upper limits of the interval of the strength
    share: float  # share of the rows that responded


def responders(
    model: ContrastiveLVM, X: Any, *, background: Any, confidence_level: float = 0.9
) -> Responders:
    """Find the rows of a target that responded: those that are not like the background.

    Parameters
    ----------
    model : ContrastiveLVM
        A fitted model with Gaussian or Student-t noise and at least one target dimension.
    X : array-like or sparse matrix of shape (n, d)
        Rows of the target.
    background : array-like or sparse matrix of shape (m, d)
        Rows without any response: the background of the fit.
    confidence_level : float
        Level of the intervals of the strength, given the fitted model.

    Returns
    -------
    Responders
        Named tuple `probabilities, strength, low, high, share`: the probability that each row
        responded; the distance of its target latents from those of rows without response, with the
        limits of an interval, (n, n_target); and the share of rows that responded. The uncertainty
        of loadings and components is not included.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 10).fit(data.target, background=data.background)
    >>> found = clvm.responders(model, data.target, background=data.background)
    >>> found.probabilities.shape, found.strength.shape
    ((400,), (400, 2))
    """
    level = check_number("confidence_level", confidence_level, 0.0, 1.0, "between 0 and 1")
    model._fitted()
    if model.n_target_ == 0:
        reason = "leaves no dimension to respond in; fit with at least one."
        raise InvalidParameterError("n_target", 0, reason)
    tied = _single(*_latents(model, background))
    mean, cov = _latents(model, X)
    mixture = max(
        (_with_tied(tied, mean, cov, n) for n in range(MOST_FREE + 1)), key=lambda own: own[1]
    )[0]
    found = condition(mixture, mean, cov, np.arange(len(mean)))
    centre, tails = tied.means[0], np.array([1.0 - level, 1.0 + level]) / 2.0
    low, high = (_quantiles(found, tail) - centre for tail in tails)
    share = float(1.0 - mixture.weights[0])
    return Responders(1.0 - found.probabilities[:, 0], found.mean() - centre, low, high, share)


def _latents(model: ContrastiveLVM, X: Any) -> tuple[Array, Array]:
    """Return the posteriors of the target latents under a standard normal prior."""
    linear_view(model._fitted())
    view, rows = model._rows(X, "target", RowFacts())
    plain: Any = view
    return column_moments(plain._replace(distribution=None), rows, np.arange(model.n_target_))


def _single(mean: Array, cov: Array) -> NormalMixture:
    """Fit one normal distribution to uncertain latents."""
    return _ascended(Mixture(1), standard_normal(mean.shape[1]), mean, cov, n_tied=0)[0]


def _with_tied(
    tied: NormalMixture, mean: Array, cov: Array, n_free: int
) -> tuple[NormalMixture, float]:
    """Fit free components and a tied one; return them with their penalised likelihood."""
    (n, T), C = mean.shape, n_free + 1
    if n_free == 0:
        found = condition(tied, mean, cov, np.arange(n))
        return tied, float(found.log_ratio.sum())
    far = ((mean - tied.means[0]) ** 2).sum(axis=1)
    order = np.argsort(far)[n // 2 :]
    parts = [mean[part] for part in np.array_split(order, n_free)]
    spread = np.cov(mean[order].T).reshape(T, T) + 0.1 * np.eye(T)
    start = NormalMixture(
        np.full(C, 1.0 / C),
        np.vstack([tied.means, *(part.mean(axis=0)[None] for part in parts)]),
        np.stack([tied.covariances[0], *[spread] * n_free]),
    )
    fitted, value = _ascended(Mixture(C), start, mean, cov, n_tied=1)
    n_parameters = n_free * (1 + T + T * (T + 1) // 2)
    return fitted, value - 0.5 * n_parameters * np.log(n)


def _ascended(
    prior: Mixture, mixture: NormalMixture, mean: Array, cov: Array, n_tied: int
) -> tuple[NormalMixture, float]:
    """Raise the likelihood by EM; the first `n_tied` components keep their means and spreads."""
    pattern: npt.NDArray[np.intp] = np.arange(len(mean))
    if (cov == cov[0]).all():
        cov, pattern = cov[:1], np.zeros(len(mean), dtype=np.intp)
    before, value = -np.inf, 0.0
    for _ in range(MOST_STEPS):
        found = condition(mixture, mean, cov, pattern)
        value = float(found.log_ratio.sum())
        if value - before < STANDS_STILL * len(mean):
            break
        before = value
        new = prior._maximized(mixture, found.sums(pattern, None))
        means, covs = new.means.copy(), np.array(new.covariances)
        means[:n_tied], covs[:n_tied] = mixture.means[:n_tied], mixture.covariances[:n_tied]
        mixture = NormalMixture(new.weights, means, covs)
    return mixture, value


def _quantiles(found: MixturePosterior, tail: float) -> Array:
    """Return quantiles of each latent under its posterior, a mixture of normal ones, (N, T)."""
    stds = np.sqrt(np.einsum("cptt->cpt", found.covariances))  # (C, N, T)
    reach = 10.0 * stds
    low, high = (found.means - reach).min(axis=0), (found.means + reach).max(axis=0)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        below = np.einsum("nc,cnt->nt", found.probabilities, ndtr((middle - found.means) / stds))
        low, high = np.where(below < tail, middle, low), np.where(below < tail, high, middle)
    return np.asarray(0.5 * (low + high))
