"""What a fit found, as facts for JSON."""

from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.summary import leading, short, target_loadings
from contrastive_lvm.io.tables.prepare import Sets, frame
from contrastive_lvm.io.tables.size_factor_column import sizes_of
from contrastive_lvm.io.tables.table import Table
from contrastive_lvm.linalg.matrices import column_sums, is_sparse, row_slices

ROWS = 5  # outliers that are listed
FAR = 6.0  # robust standard deviations of a row's log-likelihood
LIGHT = 0.5  # weight below which a row is an outlier under Student-t noise
LOOKED_AT = 2000  # rows from which shares of networks are estimated


def findings(model: Any, sets: Sets, *, top: int, found: "Unusual | None" = None) -> dict[str, Any]:
    """Everything that is printed, without the warnings; `found` may be known already."""
    found = unusual(model, sets) if found is None else found
    linear = isinstance(model, ContrastiveLVM)
    observed = {"target": column_sums(sets.target.values)[1]}
    if sets.background is not None:
        observed["background"] = column_sums(sets.background.values)[1]
    tables = {"target": sets.target, "background": sets.background}
    return {
        "estimator": type(model).__name__,
        "likelihood": short(model.likelihood),
        **{name: _set(tables[name], seen) for name, seen in observed.items()},
        "features": len(sets.preparation.features),
        "left_out": sets.dropped,
        "scale": sets.preparation.scaling.method,
        "n_target": int(model.n_target_),
        "n_shared": int(model.n_shared_),
        "variance": _shares(model) if linear else _network_shares(model, sets),
        "dimensions": _dimensions(model, sets, top),
        "selected_features": _selected(model, sets) if linear else None,
        "outliers": _outliers(found, sets.target),
        "lower_bound": float(model.lower_bound_),
        "iterations": int(model.n_iter_),
        "converged": bool(model.converged_),
    }


def _set(table: Table | None, observed: Array) -> dict[str, Any]:
    if table is None:
        return {}
    n, d = table.values.shape
    missing = 1.0 - float(observed.sum()) / (n * d)
    return {"file": table.source, "rows": int(n), "missing": max(0.0, missing)}


def _shares(model: Any) -> dict[str, Any]:
    return {
        "target": model.target_variance_ratio_.tolist(),
        "shared": model.shared_variance_ratio_.tolist(),
        "noise": float(model.noise_variance_ratio_),
    }


def _network_shares(model: Any, sets: Sets) -> dict[str, Any]:
    """Variances of the parts that decoders give to some rows of the target."""
    few = sets.target._replace(values=sets.target.values[:LOOKED_AT])
    rows = frame(few, named=sets.preparation.named)
    parts = {
        name: float(model.reconstruct(rows, parts=(name,)).var(axis=0).sum())
        for name in ("target", "shared")
    }
    noise = float(np.sum(np.broadcast_to(model.noise_variance_, (model.n_features_in_,))))
    total = sum(parts.values()) + noise
    return {
        "target": [parts["target"] / total],
        "shared": [parts["shared"] / total],
        "noise": noise / total,
    }


def _dimensions(model: Any, sets: Sets, top: int) -> list[dict[str, Any]]:
    loadings, stds = effects(model, sets)
    loadings = loadings[: model.n_target_]
    linear = isinstance(model, ContrastiveLVM)
    shares = model.target_variance_ratio_.tolist() if linear else [None] * len(loadings)
    found = []
    for k, row in enumerate(loadings):
        features = [
            {
                "feature": sets.preparation.features[i],
                "loading": float(row[i]),
                "std": None if stds is None else float(stds[k, i]),
            }
            for i in leading(row, top)
        ]
        found.append({"dimension": k + 1, "share": shares[k], "features": features})
    return found


def effects(model: Any, sets: Sets) -> tuple[Array, Array | None]:
    """What a unit of each dimension adds to each feature, target dimensions first, and its std.

    Loadings of linear models; of networks half of what a step from -1 to 1 changes, for the target
    alone.
    """
    if not isinstance(model, ContrastiveLVM):
        return target_loadings(model), None
    loadings = np.vstack([model.target_components_, model.shared_components_])
    tables = [t for t in (sets.target, sets.background) if t is not None]
    target, both = (sum(column_sums(t.values)[1] for t in own) for own in (tables[:1], tables))
    parts = [
        _loading_stds(model, model.target_components_std_, len(model.target_components_), target),
        _loading_stds(model, model.shared_components_std_, len(model.shared_components_), both),
    ]
    if any(part is None for part in parts):
        return loadings, None
    return loadings, np.vstack([part for part in parts if part is not None])


def _loading_stds(model: Any, posterior: Array | None, n: int, observed: Any) -> Array | None:
    """Standard deviations of loadings, latents taken as known.

    Those of the posterior where there is one. Points have the error of a regression on latents of
    unit variance, `sqrt(noise variance / rows)`.
    """
    if posterior is not None:
        return posterior
    noise = np.broadcast_to(model.noise_variance_, observed.shape)
    if not noise.all():
        return None
    std = np.sqrt(noise / np.maximum(observed, 1.0))
    return np.broadcast_to(std, (n, len(std)))


def _selected(model: Any, sets: Sets) -> list[str] | None:
    """Features in the order of their relevance, if some were dropped."""
    if model.selected_features_.all():
        return None
    return ranked_features(model, sets)


def ranked_features(model: Any, sets: Sets) -> list[str]:
    """Selected features, the most relevant first."""
    order = np.argsort(-model.feature_relevance_, kind="stable")
    return [sets.preparation.features[i] for i in order if model.selected_features_[i]]


class Unusual(NamedTuple):
    """How badly each row of the target fits the model."""

    measure: str  # "weight", small for outliers, or "distance", large for them
    values: Array  # (n,)

    @property
    def order(self) -> np.ndarray:
        """Rows from the most outlying on."""
        outlying = self.values if self.measure == "weight" else -self.values
        return np.argsort(outlying, kind="stable")

    @property
    def outlying(self) -> np.ndarray:
        """Which rows are outliers."""
        return self.values < LIGHT if self.measure == "weight" else self.values > FAR


def unusual(model: Any, sets: Sets) -> Unusual:
    """Weights under Student-t noise, else how improbable rows are beside the others."""
    rows = frame(sets.target, named=sets.preparation.named)
    sizes = sizes_of(sets.target, sets.preparation.sizes)
    if not isinstance(model, ContrastiveLVM):
        return Unusual("distance", _distances(model.score_samples(rows, n_draws=10), sets.target))
    if model.posterior_.df is not None:
        return Unusual("weight", model.outliers(rows, **sizes).row_weights)
    return Unusual("distance", _distances(model.score_samples(rows, **sizes), sets.target))


def _outliers(found: Unusual, table: Table) -> dict[str, Any]:
    labels, outlying = table.labels(), found.outlying
    worst = [int(i) for i in found.order[:ROWS] if outlying[i]]
    listed = [{"row": labels[i], found.measure: float(found.values[i])} for i in worst]
    return {"count": int(outlying.sum()), "rows": listed}


def _distances(scores: Array, table: Table) -> Array:
    """How far below the median the log-likelihood of each row's entries is, in robust stds."""
    scores = scores / np.maximum(entries_of_rows(table), 1.0)
    middle = np.median(scores)
    spread = 1.4826 * np.median(np.abs(scores - middle))
    distances: Array = (middle - scores) / spread if spread > 0 else np.zeros(len(scores))
    return distances


def entries_of_rows(table: Table) -> Array:
    """Number of observed entries of each row, (n,)."""
    n, d = table.values.shape
    if is_sparse(table.values):
        return np.full(n, float(d))
    counts = [
        (~np.isnan(table.values[rows])).sum(axis=1) for rows in row_slices(*table.values.shape)
    ]
    return np.concatenate(counts).astype(np.float64)
