"""Scores of new rows: how much they resemble the target, and whether they are normal."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from contrastive_lvm.arrays import Array, Covariates
from contrastive_lvm.checks import check_positive
from contrastive_lvm.estimators.frames import RowNumbers
from contrastive_lvm.estimators.monitoring import (
    Charts,
    Monitoring,
    NormalRows,
    calibrated_limits,
    chart,
    limits,
)
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.linalg.matrices import densify
from contrastive_lvm.prediction import Linear

if TYPE_CHECKING:
    from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM


def enrichment(
    self: "ContrastiveLVM",
    X: Any,
    *,
    size_factors: RowNumbers = None,
    covariates: Covariates = None,
) -> Array:
    """Return the log-likelihood ratio of target against background for each row, (n,).

    `ln p(x | target) - ln p(x | background)`: it is positive for rows that resemble the target. If
    the sets differ only in the target dimensions, the likelihood of a row alone says little,
    because most of it concerns what they share.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
    size_factors : array-like of shape (n,), optional, as in `fit`
    covariates : array-like of shape (n, c), optional, as in `fit`

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
    >>> bool(model.enrichment(data.target).mean() > 0 > model.enrichment(data.background).mean())
    True
    """
    facts: dict[str, Any] = {"size_factors": size_factors, "covariates": covariates}
    first, second = (self.score_samples(X, of=of, **facts) for of in ("target", "background"))
    return np.asarray(first - second)


def monitor(
    self: "ContrastiveLVM", X: Any, *, alpha: float = 0.01, reference: Any = None
) -> Monitoring:
    """Compare rows with normal ones, those of the background: charts, limits and alarms.

    Parameters
    ----------
    X : array-like of shape (n, d)
        New rows.
    alpha : float
        Share of normal rows that raise an alarm in at least one of the three charts.
    reference : array-like of shape (m, d), optional
        Normal rows that were not used in the fit. The limits are then set so that a share alpha of
        these rows exceeds them, whatever their distribution. Without a reference, the limits come
        from normal distributions with the fitted parameters. Those are right for many independent
        rows that the model describes, and too narrow for correlated rows, heavy tails or few rows
        in the fit.

    Returns
    -------
    Monitoring
        Named tuple
        `t2, t2_limit, shared_t2, shared_t2_limit, spe, spe_limit, alarms, contributions`: the
        squared distance along the dimensions that only the target has, along those of the
        background, and outside of these (squared prediction error, in units of the noise variance);
        the alarms, (n,); and the contribution of each feature to `shared_t2 + spe`, (n, d).

    Notes
    -----
    `estimators/monitoring.py` has the equations.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
    >>> found = model.monitor(data.target)
    >>> bool(found.alarms.mean() > 0.3), found.contributions.shape
    (True, (400, 30))
    """
    alpha = check_positive("alpha", alpha, 1.0, "a share between 0 and 1, such as 0.01")
    normal = _normal_rows(self)
    found = _charts("X", _complete(self, X), normal)
    if reference is None:
        bounds = limits(normal, alpha)
    else:
        bounds = calibrated_limits(_reference(self, reference, normal, alpha), alpha)
    pairs = list(zip(found[:3], bounds, strict=True))
    alarms = np.any([values > limit for values, limit in pairs], axis=0)
    (t2, t2_limit), (shared, shared_limit), (spe, spe_limit) = pairs
    return Monitoring(
        t2, t2_limit, shared, shared_limit, spe, spe_limit, alarms, found.contributions
    )


def _reference(model: "ContrastiveLVM", rows: Any, normal: NormalRows, alpha: float) -> Charts:
    values = _complete(model, rows)
    least = int(np.ceil(1.0 / alpha)) - 1
    if len(values) < least:
        reason = f"has {len(values)} rows, but alpha={alpha:g} needs at least {least}; give more."
        raise InvalidDataError("reference", reason)
    return _charts("reference", values, normal)


def _charts(name: str, values: Array, normal: NormalRows) -> Charts:
    """Return the charts of rows, or refuse rows so far out that they have none."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = chart(values, normal)
    if not all(np.isfinite(part).all() for part in found):
        reason = "contains values whose squares overflow in units of the noise; correct them."
        raise InvalidDataError(name, reason)
    return found


def _complete(model: "ContrastiveLVM", X: Any) -> Array:
    return np.asarray(densify(model._read(X)), dtype=np.float64)


def _normal_rows(model: "ContrastiveLVM") -> NormalRows:
    """Return the model of background rows; refuse likelihoods without a closed form."""
    fitted = model._fitted()
    for block in fitted.posterior.rotations:  # latents are then uncorrelated
        fitted = replace(fitted, posterior=fitted.posterior.rotated(block, None))
    view = fitted.view("background")
    if not isinstance(view, Linear):
        reason = "has no charts, which need noise variances; use Gaussian() or StudentT()."
        raise InvalidParameterError("likelihood", fitted.likelihood, reason)
    if view.effects is not None:
        reason = "have no charts; remove the effects of covariates from rows first."
        raise InvalidParameterError("covariates", "those of the fit", reason)
    W = fitted.posterior.loadings.get("target", np.zeros((len(view.mean), 0)))
    scaled = getattr(model, "normal_components_", None)
    return NormalRows(view.mean, view.psi, view.L if scaled is None else scaled.T, W)
