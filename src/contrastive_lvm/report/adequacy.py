"""Sentences for the report about whether the background suits the model."""

import numpy as np

from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.model_check import (
    BackgroundCheck,
    SetCovariance,
    check_background,
    some_features,
)
from contrastive_lvm.io.tables.on_disk import some_of
from contrastive_lvm.io.tables.prepare import Sets
from contrastive_lvm.linalg.matrices import has_missing, is_sparse, widen
from contrastive_lvm.report.findings import Fitted

MOST_AUC = 0.8  # of separating the sets by their shared latents


def shared_note(auc: float) -> tuple[str, str]:
    """Return whether the shared latents separate the sets, as a level and a sentence.

    >>> shared_note(0.52)[0], shared_note(0.97)[0]
    ('good', 'care')
    """
    curve = f"(area under the ROC curve {auc:.2f}; 0.5 is chance)"
    if auc <= MOST_AUC:
        return "good", f"The shared latents hardly separate the two sets {curve}."
    return "care", (
        f"The shared latents separate the two sets {curve}: what the sets have in common differs "
        "between them, so part of the contrast may be there. Choose a background that varies in "
        "every way that the target does except for the one of interest, or allow another number "
        "of shared dimensions."
    )


def background_notes(model: Fitted, sets: Sets, auc: float | None = None) -> list[dict[str, str]]:
    """Return sentences with a level, "good" or "care"; `auc` is that of the shared latents.

    Noise and structure of the background alone cannot be checked for autoencoders, counts, heavy
    tails, covariates and missing entries.
    """
    found = [] if auc is None else [shared_note(auc)]
    found += _checked(model, sets)
    return [{"level": level, "text": text} for level, text in found]


def _checked(model: Fitted, sets: Sets) -> list[tuple[str, str]]:
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
    chosen, some = some_features(tables[0].shape[1]), list(map(some_of, tables))
    covariances = [
        SetCovariance(np.cov(widen(rows)[:, chosen].T, bias=True), rows.shape[0]) for rows in some
    ]
    found = check_background(model.posterior_, *covariances)
    return [_noise(found, model), _own(found)]


def _noise(found: BackgroundCheck, model: ContrastiveLVM) -> tuple[str, str]:
    ratio = f"{found.noise_ratio:.2g} times"
    if not found.noise_differs:
        return "good", (
            "Outside of the fitted dimensions, both sets vary alike: the noise variance of the "
            f"target is {ratio} that of the background."
        )
    if np.array_equal(model.noise_variance_, model.background_noise_variance_):
        return "care", (
            f"The noise variance of the target is {ratio} that of the background, but the model "
            "has one for both: give each set its own (sets='own', or --own-noise)."
        )
    return "good", (
        f"The noise variance of the target is {ratio} that of the background; the model has one "
        "for each."
    )


def _own(found: BackgroundCheck) -> tuple[str, str]:
    if not found.has_own_structure:
        return "good", (
            "The background has no structure beyond the model: it varies at most "
            f"{found.excess:.2g} times as much as expected in any direction."
        )
    return "care", (
        f"In one direction the background varies {found.excess:.2g} times as much as the model "
        "expects, and the target does not: give the background dimensions of its own "
        "(n_background, or --n-background), or allow more shared dimensions."
    )
