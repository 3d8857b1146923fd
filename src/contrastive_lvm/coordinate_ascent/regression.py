"""The start for effects of covariates: least squares, without any latents.

Least squares maximise the likelihood where rows are complete and each set has effects of its own,
since all features then have the same regressors and all rows of a set the same covariance.
Otherwise (effects shared by sets of different covariances, missing entries, heavy tails) they are a
start. This is the loading step of a model with known columns only. Rows are returned as residuals,
so that sizes, spectra and limits of the noise are those of the residuals.
"""

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.loading_step import (
    SetStatistics,
    loading_step,
    mean_changes,
    normal_equations,
)
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.linalg.matrices import first_determined
from contrastive_lvm.model import Model
from contrastive_lvm.rows.data import Data, variances_of
from contrastive_lvm.rows.generalised_rows import GeneralisedRows


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows as a variance that is not finite
def without_effects(model: Model, data: Data) -> Data:
    """Return the rows as residuals of their regression on the covariates."""
    given = [rows for rows in data.sets if not isinstance(rows, GeneralisedRows)]
    sums = [rows.sums_with_covariates() for rows in given]
    sets = [SetStatistics(s, model.effect_columns(i), np.ones(1)) for i, s in enumerate(sums)]
    D, P = len(data.variance), model.n_effects
    _refuse_undetermined(model, normal_equations(sets, P).reduced)
    step = loading_step(sets, P, np.ones(D), np.zeros((1, P)), np.arange(0))
    rows = [
        s.about(s.mean + change, step.loadings.mean[:, own.columns], square)
        for s, own, change, square in zip(
            given, sets, mean_changes(sets, step.loadings), step.square, strict=True
        )
    ]
    variances, pooled = variances_of(rows)
    return data._replace(sets=rows, variances=variances, variance=pooled)


def _refuse_undetermined(model: Model, matrices: Array) -> None:
    """Refuse a feature whose observed entries do not determine the effects of all covariates."""
    stack = matrices if matrices.ndim == 3 else matrices[None]
    for d, matrix in enumerate(stack):
        j = first_determined(matrix, np.diagonal(matrix))
        if j is None:
            continue
        reason = (
            f"has a column {model.covariates[j % len(model.covariates)]!r} that the sets "
            "and the other covariates determine"
        )
        if matrices.ndim == 3:
            reason += f" in the rows that observe feature {d}; drop the feature, or"
        raise InvalidDataError("covariates", f"{reason}; leave the covariate out.")
