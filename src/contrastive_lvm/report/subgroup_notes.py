"""Subgroups of the target and what annotations explain, for the page and the command line."""

from typing import Any

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Array, Column
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.io.tables.prepare import Sets, frame
from contrastive_lvm.io.tables.row_columns import facts_of_rows
from contrastive_lvm.report.evidence import Evidence, replicates_of, rounded
from contrastive_lvm.report.findings import Fitted
from contrastive_lvm.resampling import LEVEL
from contrastive_lvm.resampling.annotations import annotation_sentences, explained
from contrastive_lvm.resampling.subgroup_refits import differences

COLUMN = "subgroup of the model"


def probabilities_of(model: Fitted, sets: Sets) -> Array | None:
    """Return the probabilities of the target's rows, or None without two subgroups or more."""
    if not isinstance(model, ContrastiveLVM) or model.n_subgroups_ < 2:
        return None
    rows = frame(sets.target, named=sets.preparation.named)
    return np.asarray(model.predict_proba(rows, **facts_of_rows(sets.target, sets.preparation)))


def annotation_notes(
    sets: Sets, points: dict[str, Array], probabilities: Array | None
) -> list[str]:
    """Describe what annotations of the target's rows explain; replicates stay together."""
    prepared, found = sets.preparation, sets.target.annotations
    left_out = {prepared.replicates, prepared.sizes, *prepared.covariates}
    named = [str(name) for name in found.columns if str(name) not in left_out]
    used = found.rename(columns=str)[named].loc[:, ~pd.Index(named).duplicated()]
    chosen = [name for name in used if _is_compared(used[name])][:10]
    spaces = {name: points[name] for name in ("target", "shared")}
    if probabilities is not None:
        spaces["subgroups"] = probabilities
    if not chosen:
        return []
    groups = replicates_of(sets).get("groups")
    if groups is not None and len(set(groups)) < 2:
        return []
    n = 40 * len(chosen) * len(spaces)  # enough for p-values that hold for all comparisons
    table = explained(spaces, used[chosen], groups, n, 0)
    labels = None if probabilities is None else probabilities.argmax(axis=1)
    return annotation_sentences(table, used, labels)


def notes_of_fit(model: Fitted, sets: Sets) -> list[str]:
    """Describe what the annotations explain, computed from the rows alone."""
    rows = frame(sets.target, named=sets.preparation.named)
    latents = model.latents(rows, **facts_of_rows(sets.target, sets.preparation))
    points = {"target": np.asarray(latents.target), "shared": np.asarray(latents.shared)}
    return annotation_notes(sets, points, probabilities_of(model, sets))


def _is_compared(column: Column) -> bool:
    """Tell whether a column is compared: numbers, or text with few values."""
    return pd.api.types.is_numeric_dtype(column) or column.nunique() <= 60


def subgroup_facts(
    model: Fitted, sets: Sets, evidence: Evidence, probabilities: Array | None
) -> dict[str, Any] | None:
    """Collect the facts on the page about the subgroups of the rows that it draws."""
    if probabilities is None or not isinstance(model, ContrastiveLVM):
        return None
    mixture, labels = model.posterior_.latent_mixtures["target"], probabilities.argmax(axis=1)
    sure = probabilities.max(axis=1) >= 0.9
    table = [
        {
            "share": float(share),
            "rows": int((labels == c).sum()),
            "certain": int(((labels == c) & sure).sum()),
            "features": apart,
        }
        for c, (share, apart) in enumerate(
            zip(mixture.weights, differences_in_words(model, sets, evidence), strict=True)
        )
    ]
    return {
        "column": COLUMN,
        "table": table,
        "means": mixture.means.tolist(),
        "covariances": mixture.covariances.tolist(),
        "stability": _stability(sets, evidence),
        "errors": evidence.subgroups is not None,
    }


def differences_in_words(model: ContrastiveLVM, sets: Sets, evidence: Evidence) -> list[str]:
    """Describe the features in which each subgroup differs most, with errors if there are any."""
    names = sets.preparation.features
    return [_in_words(c, moved, names, evidence) for c, moved in enumerate(differences(model))]


def _in_words(c: int, moved: Array, names: list[str], evidence: Evidence) -> str:
    order, errors = np.argsort(-np.abs(moved), kind="stable"), [""] * len(moved)
    if evidence.subgroups is not None:
        found = evidence.subgroups.differences
        if found.separation[c] > LEVEL:
            p = rounded(float(found.separation[c]))
            return f"nothing: there is no valley between it and another subgroup (p = {p})"
        own = found.table[found.table.subgroup == c]
        errors = [f" ± {error:.2g}" for error in own["std"]]
        order = order[own.qvalue.to_numpy()[order] <= LEVEL]
    top = [f"{names[j]} {moved[j]:+.2g}{errors[j]}" for j in order[:5]]
    return ", ".join(top) or "no feature at 5%"


def _stability(sets: Sets, evidence: Evidence) -> str:
    """Describe how stable subgroups are, if that was computed."""
    if evidence.subgroups is None:
        return ""
    found = evidence.subgroups.stability
    what = "rows" if sets.preparation.replicates is None else "replicates"
    pairs = ", ".join(f"{share:.0%}" for share in found.comembership)
    return (
        f"In {len(found.adjusted_rand)} fits to resampled {what}, the mean adjusted Rand index "
        f"with these subgroups was {found.adjusted_rand.mean():.2f} (1 if they are the same, 0 by "
        f"chance). Of the pairs of rows within subgroups 1 to {len(found.comembership)}, {pairs} "
        "stayed together."
    )
