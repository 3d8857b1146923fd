"""Subgroups of the target and what annotations explain, for the page and the command line."""

from typing import Any

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Array
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.io.tables.prepare import Sets, frame
from contrastive_lvm.io.tables.row_columns import facts_of_rows
from contrastive_lvm.linalg.matrices import has_missing, is_sparse
from contrastive_lvm.report.evidence import replicates_of
from contrastive_lvm.report.findings import Fitted, effects
from contrastive_lvm.resampling.annotations import annotation_sentences, explained
from contrastive_lvm.resampling.subgroup_stability import subgroup_stability

CERTAIN = 0.9  # probability of a row whose subgroup is called certain
N_FEATURES = 5  # that are named for each subgroup
MOST_ANNOTATIONS, MOST_CLASSES = 10, 60  # that are compared, and values of a column of text
PERMUTATIONS = 40  # for each comparison, so that sentences about all of them are possible
MOST_ENTRIES = 50_000  # of complete rows, whose stability is looked at unasked
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
    """Say what the annotations of the target's rows explain, with replicates respected."""
    prepared, found = sets.preparation, sets.target.annotations
    left_out = {prepared.replicates, prepared.sizes, *prepared.covariates}
    named = [str(name) for name in found.columns if str(name) not in left_out]
    used = found.rename(columns=str)[named].loc[:, ~pd.Index(named).duplicated()]
    chosen = [name for name in used if _is_compared(used[name])][:MOST_ANNOTATIONS]
    spaces = {name: points[name] for name in ("target", "shared")}
    if probabilities is not None:
        spaces["subgroups"] = probabilities
    if not chosen:
        return []
    groups = replicates_of(sets).get("groups")
    if groups is not None and len(set(groups)) < 2:
        return []
    n = PERMUTATIONS * len(chosen) * len(spaces)
    table = explained(spaces, used[chosen], groups, n, 0)
    labels = None if probabilities is None else probabilities.argmax(axis=1)
    return annotation_sentences(table, used, labels)


def notes_of_fit(model: Fitted, sets: Sets) -> list[str]:
    """Say what the annotations explain, from the rows alone."""
    rows = frame(sets.target, named=sets.preparation.named)
    latents = model.latents(rows, **facts_of_rows(sets.target, sets.preparation))
    points = {"target": np.asarray(latents.target), "shared": np.asarray(latents.shared)}
    return annotation_notes(sets, points, probabilities_of(model, sets))


def _is_compared(column: "pd.Series[Any]") -> bool:
    """Whether a column is worth a comparison: numbers, or few kinds of text."""
    return pd.api.types.is_numeric_dtype(column) or column.nunique() <= MOST_CLASSES


def subgroup_facts(model: Fitted, sets: Sets, probabilities: Array | None) -> dict[str, Any] | None:
    """Collect what the page says about the subgroups of the rows that it draws."""
    if probabilities is None or not isinstance(model, ContrastiveLVM):
        return None
    mixture, names = model.posterior_.latent_mixtures["target"], sets.preparation.features
    labels, sure = probabilities.argmax(axis=1), probabilities.max(axis=1) >= CERTAIN
    moved = mixture.means @ effects(model)[: model.n_target_]  # (C, D)
    table = []
    for c, share in enumerate(mixture.weights):
        top = np.argsort(-np.abs(moved[c]), kind="stable")[:N_FEATURES]
        features = ", ".join(f"{names[j]} {moved[c, j]:+.2g}" for j in top)
        own = labels == c
        line = {"share": float(share), "rows": int(own.sum()), "certain": int((own & sure).sum())}
        table.append({**line, "features": features})
    return {
        "column": COLUMN,
        "table": table,
        "means": mixture.means.tolist(),
        "covariances": mixture.covariances.tolist(),
        "stability": _stability(model, sets),
    }


def _stability(model: ContrastiveLVM, sets: Sets) -> str:
    """Say how stable subgroups are, where twenty fits take some seconds at most."""
    tables = sets.tables
    dense = not any(is_sparse(t.values) or has_missing(t.values) for t in tables)
    small = dense and sum(t.values.size for t in tables) <= MOST_ENTRIES
    robust = model._fitted().likelihood._is_scale_mixture
    if robust or not small or sets.preparation.covariates:
        return ""
    X, background = sets.frames()
    found = subgroup_stability(
        model, X, background=background, random_state=0, **replicates_of(sets)
    )
    what = "rows" if sets.preparation.replicates is None else "replicates"
    pairs = ", ".join(f"{100 * share:.0f} %" for share in found.comembership)
    return (
        f"In {len(found.adjusted_rand)} fits to resampled {what} the subgroups agreed with these "
        f"by an adjusted Rand index of {found.adjusted_rand.mean():.2f} on average (1 is the same, "
        f"0 chance); {pairs} of the pairs of each subgroup stayed together."
    )
