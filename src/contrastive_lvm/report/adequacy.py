"""Whether the background of a model is adequate, in sentences for the report."""

import numpy as np

from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.model_check import (
    BackgroundCheck,
    SetCovariance,
    check_background,
    some_features,
)
from contrastive_lvm.io.tables.prepare import Sets
from contrastive_lvm.linalg.matrices import has_missing, is_sparse, widen
from contrastive_lvm.report.findings import Fitted


def background_notes(model: Fitted, sets: Sets) -> list[dict[str, str]]:
    """Return sentences with a level, "good" or "care"; none where it cannot be checked.

    That is with autoencoders, counts, heavy tails, covariates, or missing entries.
    """
    tables = [table.values for table in sets.tables]
    if (
        not isinstance(model, ContrastiveLVM)
        or len(tables) < 2
        or not np.all(model.noise_variance_)
        or model.posterior_.df is not None
        or model.posterior_.effects
        or any(is_sparse(values) or has_missing(values) for values in tables)
    ):
        return []
    chosen = some_features(tables[0].shape[1])
    covariances = [
        SetCovariance(np.cov(widen(rows)[:, chosen].T, bias=True), rows.shape[0]) for rows in tables
    ]
    found = check_background(model.posterior_, *covariances)
    return [{"level": level, "text": text} for level, text in (_noise(found, model), _own(found))]


def _noise(found: BackgroundCheck, model: ContrastiveLVM) -> tuple[str, str]:
    ratio = f"{found.noise_ratio:.2g} times"
    if not found.noise_differs:
        return "good", (
            "Outside the fitted dimensions both sets vary alike: the target's noise variance is "
            f"{ratio} the background's."
        )
    if np.array_equal(model.noise_variance_, model.background_noise_variance_):
        return "care", (
            f"The target's noise variance is {ratio} the background's, but the model has one for "
            "both: give each set its own (sets='own', or --own-noise)."
        )
    return "good", (
        f"The target's noise variance is {ratio} the background's; each set has its own."
    )


def _own(found: BackgroundCheck) -> tuple[str, str]:
    if not found.has_own_structure:
        return "good", (
            "The background has no structure beyond the model: in no direction does it vary much "
            f"more than expected (at most {found.excess:.2g} times)."
        )
    return "care", (
        f"The background varies {found.excess:.2g} times as much as the model expects in a "
        "direction in which the target does not: allow dimensions of its own (n_background, or "
        "--n-background) or more shared ones."
    )
