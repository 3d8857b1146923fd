"""What a fit found, as facts for JSON."""

from typing import Any

import numpy as np

from contrastive_lvm.core.blocks import column_sums, is_sparse
from contrastive_lvm.core.types import Array
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.summary import leading, short, target_loadings
from contrastive_lvm.tables.prepare import Sets, frame
from contrastive_lvm.tables.sizes import sizes_of
from contrastive_lvm.tables.table import Table

ROWS = 5  # outliers that are listed
FAR = 6.0  # robust standard deviations of a row's log-likelihood
LIGHT = 0.5  # weight below which a row is an outlier under Student-t noise
LOOKED_AT = 2000  # rows from which shares of networks are estimated


def findings(model: Any, sets: Sets, *, top: int) -> dict[str, Any]:
    """Everything that is printed, without the warnings."""
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
        "dimensions": _dimensions(model, sets, observed["target"], top),
        "selected_features": _selected(model, sets) if linear else None,
        "outliers": _outliers(model, sets, observed["target"]),
        "bound": float(model.bound_),
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


def _dimensions(model: Any, sets: Sets, observed: Array, top: int) -> list[dict[str, Any]]:
    loadings, sds, shares = target_loadings(model), None, [None] * model.n_target_
    if isinstance(model, ContrastiveLVM):
        sds, shares = _loading_sds(model, observed), model.target_variance_ratio_.tolist()
    found = []
    for k, row in enumerate(loadings):
        features = [
            {
                "feature": sets.preparation.features[i],
                "loading": float(row[i]),
                "sd": None if sds is None else float(sds[k, i]),
            }
            for i in leading(row, top)
        ]
        found.append({"dimension": k + 1, "share": shares[k], "features": features})
    return found


def _loading_sds(model: Any, observed: Array) -> Array | None:
    """Standard deviations of the target loadings, latents taken as known.

    Those of the posterior where there is one. Points have the error of a regression on latents of
    unit variance, `sqrt(noise variance / rows)`.
    """
    if model.target_components_std_ is not None:
        posterior: Array = model.target_components_std_
        return posterior
    noise = np.broadcast_to(model.noise_variance_, observed.shape)
    if not noise.all():
        return None
    sd = np.sqrt(noise / np.maximum(observed, 1.0))
    return np.broadcast_to(sd, model.target_components_.shape)


def _selected(model: Any, sets: Sets) -> list[str] | None:
    """Features in the order of their relevance, if some were dropped."""
    if model.selected_features_.all():
        return None
    return ranked_features(model, sets)


def ranked_features(model: Any, sets: Sets) -> list[str]:
    """Selected features, the most relevant first."""
    order = np.argsort(-model.feature_relevance_, kind="stable")
    return [sets.preparation.features[i] for i in order if model.selected_features_[i]]


def _outliers(model: Any, sets: Sets, observed: Array) -> dict[str, Any]:
    rows, labels = frame(sets.target, named=sets.preparation.named), sets.target.labels()
    linear = isinstance(model, ContrastiveLVM)
    sizes = sizes_of(sets.target, sets.preparation.sizes)
    if linear and model.posterior_.df is not None:
        found = model.outliers(rows, **sizes)
        weights, light = found.row_weights, [i for i in found.rows if found.row_weights[i] < LIGHT]
        listed = [{"row": labels[i], "weight": float(weights[i])} for i in light[:ROWS]]
        return {"count": len(light), "rows": listed}
    scores = model.score_samples(rows, **(sizes if linear else {"n_draws": 10}))
    far = _distances(scores, sets.target, observed)
    worst = np.argsort(-far, kind="stable")[:ROWS]
    listed = [{"row": labels[i], "distance": float(far[i])} for i in worst if far[i] > FAR]
    return {"count": int((far > FAR).sum()), "rows": listed}


def _distances(scores: Array, table: Table, observed: Array) -> Array:
    """How far below the median the log-likelihood of each row's entries is, in robust sds."""
    n, d = table.values.shape
    counts = np.full(n, float(d))
    if observed.sum() < n * d and not is_sparse(table.values):
        counts = np.maximum((~np.isnan(table.values)).sum(axis=1), 1.0)
    scores = scores / counts
    middle = np.median(scores)
    spread = 1.4826 * np.median(np.abs(scores - middle))
    distances: Array = (middle - scores) / spread if spread > 0 else np.zeros(n)
    return distances
