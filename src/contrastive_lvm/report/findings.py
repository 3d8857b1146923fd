"""What a fit found, as facts for JSON."""

from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.estimators.summary import leading, short, target_loadings
from contrastive_lvm.io.tables.prepare import Sets, frame
from contrastive_lvm.io.tables.size_factor_column import sizes_of
from contrastive_lvm.io.tables.table import Table
from contrastive_lvm.linalg.matrices import column_sums, is_sparse, row_slices

LISTED = 5  # outliers
FAR = 6.0  # robust standard deviations of a row's log-likelihood that make it an outlier
LIGHT = 0.5  # weight below which a row is an outlier under Student-t noise
LOOKED_AT = 2000  # rows from which the shares of an autoencoder's parts are estimated


class Outlyingness(NamedTuple):
    """How badly each row of the target fits the model."""

    measure: str  # "weight", small for outliers, or "distance", large for them
    values: Array  # (n,)


def findings(
    model: Any, sets: Sets, *, top: int, rows: Outlyingness | None = None
) -> dict[str, Any]:
    """Collect what is printed about a fit, without advice; `rows` may be known already."""
    tables = {"target": sets.target, "background": sets.background}
    return {
        "estimator": type(model).__name__,
        "likelihood": short(model.likelihood),
        **{name: _set(table) for name, table in tables.items() if table is not None},
        "features": len(sets.preparation.features),
        "left_out": sets.dropped,
        "scale": sets.preparation.scaling.method,
        "n_target": int(model.n_target_),
        "n_shared": int(model.n_shared_),
        "variance": _shares(model, sets),
        "dimensions": _dimensions(model, sets, top),
        "selected_features": ranked_features(model, sets) if drops_features(model) else None,
        "outliers": _outliers(rows or outlyingness(model, sets), sets.target),
        "lower_bound": float(model.lower_bound_),
        "iterations": int(model.n_iter_),
        "converged": bool(model.converged_),
    }


def _set(table: Table) -> dict[str, Any]:
    observed = column_sums(table.values)[1].sum() / np.prod(table.values.shape)
    return {"file": table.source, "rows": table.n_rows, "missing": max(0.0, 1.0 - float(observed))}


def _is_linear(model: Any) -> bool:
    return hasattr(model, "target_components_")


def _shares(model: Any, sets: Sets) -> dict[str, Any]:
    """Divide the target's variance among target, shared and noise.

    For autoencoders these are the variances of what the decoders give for some rows of the target.
    """
    if _is_linear(model):
        return {
            "target": model.target_variance_ratio_.tolist(),
            "shared": model.shared_variance_ratio_.tolist(),
            "noise": float(model.noise_variance_ratio_),
        }
    rows = frame(some_rows(sets.target, slice(LOOKED_AT)), named=sets.preparation.named)
    variances = {
        name: float(model.reconstruct(rows, parts=(name,)).var(axis=0).sum())
        for name in ("target", "shared")
    }
    noise = float(np.sum(np.broadcast_to(model.noise_variance_, (model.n_features_in_,))))
    total = sum(variances.values()) + noise
    return {name: [own / total] for name, own in variances.items()} | {"noise": noise / total}


def some_rows(table: Table, rows: Any) -> Table:
    """Choose rows of a table, with their annotations."""
    return table._replace(values=table.values[rows], annotations=table.annotations.iloc[rows])


def _dimensions(model: Any, sets: Sets, top: int) -> list[dict[str, Any]]:
    loadings, stds = effects(model, sets)
    loadings = loadings[: model.n_target_]
    shares = model.target_variance_ratio_.tolist() if _is_linear(model) else [None] * len(loadings)
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
    """Return what a unit of each dimension adds to each feature, and its standard deviation.

    These are the loadings of linear models, target dimensions first; for autoencoders half of what
    a step from -1 to 1 along each target dimension changes.
    """
    if not _is_linear(model):
        return target_loadings(model), None
    target, shared = model.target_components_, model.shared_components_
    tables = [table for table in (sets.target, sets.background) if table is not None]
    observed = [column_sums(table.values)[1] for table in tables]
    stds = [
        _loading_stds(model, model.target_components_std_, len(target), observed[0]),
        _loading_stds(model, model.shared_components_std_, len(shared), sum(observed)),
    ]
    known = [std for std in stds if std is not None]
    return np.vstack([target, shared]), np.vstack(known) if len(known) == 2 else None


def _loading_stds(model: Any, posterior: Array | None, n: int, observed: Any) -> Array | None:
    """Return standard deviations of loadings, latents taken as known.

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


def drops_features(model: Any) -> bool:
    """Return whether the model dropped some features."""
    return _is_linear(model) and not model.selected_features_.all()


def ranked_features(model: Any, sets: Sets) -> list[str]:
    """Return the names of the selected features, the most relevant first."""
    order = np.argsort(-model.feature_relevance_, kind="stable")
    return [sets.preparation.features[i] for i in order if model.selected_features_[i]]


def outlyingness(model: Any, sets: Sets) -> Outlyingness:
    """Return the weights of rows if the model weights them, else how improbable they are."""
    prepared, table = sets.preparation, sets.target
    rows, sizes = frame(table, named=prepared.named), sizes_of(table, prepared.sizes)
    if not _is_linear(model):
        return Outlyingness("distance", _distances(model.score_samples(rows, n_draws=10), table))
    one = some_rows(table, slice(1))
    probe = model.outliers(frame(one, named=prepared.named), **sizes_of(one, prepared.sizes))
    if (probe.weights != 1.0).any():
        return Outlyingness("weight", model.outliers(rows, **sizes).row_weights)
    return Outlyingness("distance", _distances(model.score_samples(rows, **sizes), table))


def _outliers(rows: Outlyingness, table: Table) -> dict[str, Any]:
    labels, weights = table.labels(), rows.measure == "weight"
    outlying = rows.values < LIGHT if weights else rows.values > FAR
    order = np.argsort(rows.values if weights else -rows.values, kind="stable")
    worst = [int(i) for i in order[:LISTED] if outlying[i]]
    listed = [{"row": labels[i], rows.measure: float(rows.values[i])} for i in worst]
    return {"count": int(outlying.sum()), "rows": listed}


def _distances(scores: Array, table: Table) -> Array:
    """Return how far each row's log-likelihood per entry is below the median.

    The unit is a robust standard deviation: 1.4826 times the median absolute deviation.
    """
    scores = scores / np.maximum(_observed_of_rows(table), 1.0)
    below = np.median(scores) - scores
    spread = 1.4826 * np.median(np.abs(below))
    return np.asarray(below / spread if spread > 0 else np.zeros(len(scores)))


def _observed_of_rows(table: Table) -> Array:
    """Count the observed entries of each row, (n,)."""
    n, d = table.values.shape
    if is_sparse(table.values):
        return np.full(n, float(d))
    counts = [(~np.isnan(table.values[rows])).sum(axis=1) for rows in row_slices(n, d)]
    return np.concatenate(counts).astype(np.float64)
